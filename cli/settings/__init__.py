"""Settings: declared as classes, read from options, environment and file, converted from text."""
