"""Programs that use Timestone the way a user would. `make demo` runs `demo.py`."""
