"""Guests: other kernels, as user-mode Linux, on this machine's files."""
