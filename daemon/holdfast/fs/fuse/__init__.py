"""The FUSE adapter of the file system; the only importer of pyfuse3."""

import holdfast.kernel  # before pyfuse3 is imported anywhere below: its calls must go through the C module
