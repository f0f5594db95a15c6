"""Users with a shell and no rights: what they attack with, and how long others wait."""
