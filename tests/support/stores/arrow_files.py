"""pyarrow's local files behind the wrapper through which fsspec also has HDFS: its habits, without a Hadoop."""

from __future__ import annotations

from typing import Any

import fsspec
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow.fs import LocalFileSystem

SCHEME = "arrow+file"


class ArrowFiles(ArrowFSWrapper):  # type: ignore[misc]
    """The file system of ``fsspec+arrow+file://``."""

    protocol = SCHEME

    def __init__(self, **options: Any) -> None:
        super().__init__(fs=LocalFileSystem(), **options)


fsspec.register_implementation(SCHEME, ArrowFiles, clobber=True)
