"""Stores as released versions of Timestone have written them. Every later version has to read them."""
