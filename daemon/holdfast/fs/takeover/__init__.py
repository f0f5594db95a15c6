"""Taking over the nodes and open files that the kernel still uses from an earlier daemon."""
