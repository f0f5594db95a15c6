"""Flink: a real one, the files that it writes, and restores of damaged ones."""
