"""The daemon's process: what it opens, in which order, what it runs while it serves, and how it stops."""
