"""Disks and mounted file systems: power cuts, damaged files, deep trees."""
