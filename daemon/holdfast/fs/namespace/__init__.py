"""Names: lookup, listing, create, link, rename, remove, and attributes."""
