"""What commands take from the user: places in a log, log names, lines of input."""
