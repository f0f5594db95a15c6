"""Operations by name: lookup, listing, create, link, rename, remove, and attributes."""
