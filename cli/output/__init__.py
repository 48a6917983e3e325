"""What commands print: tables, JSON, records, progress."""
