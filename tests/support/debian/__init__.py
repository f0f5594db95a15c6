"""Bare Debian systems, and the package for them."""
