"""Sending files to the stores, at once or later from a queue."""
