"""Taking over from an earlier daemon the inodes and open files that the kernel goes on using."""
