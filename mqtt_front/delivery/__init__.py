"""Delivery of records to subscribers: the order of service, and the packing of runs of records.

Read `delivery` first.
"""
