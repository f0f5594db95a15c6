"""A daemon whose registry of checkpoint formats has one line more."""

from __future__ import annotations

import sys

from holdfast import daemon
from holdfast.fs.file_io.prefetch import Prefetcher
from tests.support.checkpoints.toy_format import WITH_TOY

if __name__ == "__main__":
    Prefetcher.__init__.__defaults__ = (WITH_TOY,)
    sys.exit(daemon.main())
