"""Samples of checkpoints, and how they were made."""
