"""Programs that work on a mount for long, and what happens to the node meanwhile."""
