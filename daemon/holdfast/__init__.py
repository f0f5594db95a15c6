"""Holdfast: state next to the process that uses it."""

__version__ = "0.1.0"
