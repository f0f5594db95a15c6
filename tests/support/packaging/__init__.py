"""Wheels, and what is in them for clients."""
