"""Long histories of real engines, run by hand: ``./run python -m tests.histories.spark``."""
