"""Digests against files: before the first use, on request, in the background, and after a lost index."""
