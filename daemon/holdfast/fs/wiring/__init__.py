"""Assembly of the file system's packages: each module makes the parts of one or two of them."""
