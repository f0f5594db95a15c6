"""The file system: nodes, names, data and their meaning in each zone; ``fs.fuse`` ties it to the kernel."""
