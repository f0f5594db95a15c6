"""Cached knowledge of the stores: its freshness, and what is hidden from users."""
