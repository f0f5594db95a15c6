"""HTTP over a Unix socket: queries and actions for people and programs, beside the mount."""
