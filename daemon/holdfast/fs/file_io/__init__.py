"""Open files: open, read, write, close, and the cache miss behind an open."""
