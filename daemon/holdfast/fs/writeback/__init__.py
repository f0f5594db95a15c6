"""From bytes in a file to an object in a store: at once, or later from a queue."""
