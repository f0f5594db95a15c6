"""Checking files against their digests: before first use, on request, in the background, and after a lost index."""
