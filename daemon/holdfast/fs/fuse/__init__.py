"""The kernel's side of the file system; the only importer of pyfuse3."""
