"""HTTP over a Unix socket: what the daemon answers and does for people and programs beside the mount."""
