"""The measurements behind `timestone bench`."""
