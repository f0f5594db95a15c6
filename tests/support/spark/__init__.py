"""Spark: its jobs and programs, the files that it writes, and what it can restore from them."""
