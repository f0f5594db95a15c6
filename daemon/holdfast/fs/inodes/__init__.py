"""Inodes: what the kernel knows by an id, with its names, its backing file and its open file."""
