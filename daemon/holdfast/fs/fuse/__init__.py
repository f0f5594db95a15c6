"""The FUSE adapter of the file system; the only importer of pyfuse3."""

import holdfast.kernel  # noqa: F401 before pyfuse3 is imported anywhere below: its calls must go through the C module
