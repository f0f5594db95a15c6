"""What this node believes of the stores, how fresh that must be for an answer, and what is hidden from users."""
