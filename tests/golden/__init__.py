"""Stores written by released versions of Timestone. Every later version has to read them."""
