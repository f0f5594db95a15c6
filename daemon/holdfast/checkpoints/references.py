"""Names that list others: opening one of them says which files will be asked for next. Only a hint, for fetching ahead."""

from __future__ import annotations

import os

from holdfast.checkpoints.layouts import SparkKind, SparkName, parse_spark
from holdfast.checkpoints.manifests import SparkSnapshot, read_spark_snapshot

_ANY_STORE = b"state/0/0/"


def is_manifest(name: bytes) -> bool:
    """Say whether a file of this name, without its directory, may list others."""
    entry = parse_spark(_ANY_STORE + name)
    return isinstance(entry, SparkName) and entry.kind is SparkKind.ZIP and not entry.layers


def references(fd: int) -> list[bytes]:
    """Return the paths, relative to the directory of the manifest behind ``fd``, that it names; close ``fd``.

    Nothing when it can't be read, whatever the reason: the open that needs the files will tell.
    """
    try:
        with open(fd, "rb") as file:
            snapshot = read_spark_snapshot(file, os.fstat(fd).st_size)
    except OSError:
        return []
    return [each.name for each in snapshot.files] if isinstance(snapshot, SparkSnapshot) else []
