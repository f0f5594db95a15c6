"""``format.json`` of a store directory: the version of its format, and the store's own id."""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack
from pathlib import Path

import msgspec

from holdfast.errors import StoreUnsuitableError
from holdfast.system.whole_file import write_whole

FORMAT_FILE = "format.json"
FORMAT_VERSION = 1
SPREAD_FORMAT_VERSION = 2
"""The format of a store with other disks."""
_ANOTHER = (
    "set store.directory (--store) to a new directory, and keep this one: "
    "working directories, and files that were never sent, are nowhere else"
)


class _Format(msgspec.Struct):
    """The contents of the file; other versions may have more fields."""

    format: int
    store: str


def read_format(path: Path) -> str | None:
    """Return the id of the store at ``path``; None when there is no store yet. Raises ``StoreUnsuitableError``."""
    file = path / FORMAT_FILE
    try:
        content = msgspec.json.decode(file.read_bytes(), type=_Format)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise StoreUnsuitableError(f"{file} is damaged; restore it from a copy, or {_ANOTHER}") from None
    if content.format not in (FORMAT_VERSION, SPREAD_FORMAT_VERSION):
        raise StoreUnsuitableError(
            f"the store directory {path} has format {content.format}, this Holdfast reads formats {FORMAT_VERSION} "
            f"and {SPREAD_FORMAT_VERSION}; install the version that wrote it, or {_ANOTHER}"
        )
    return content.store


def write_format(path: Path, undo: ExitStack) -> str:
    """Make the directory at ``path`` a store; return its id. ``undo`` takes that back. Raises ``OSError``."""
    store_id = uuid.uuid4().hex
    undo.callback((path / FORMAT_FILE).unlink, missing_ok=True)
    write_whole(path / FORMAT_FILE, [msgspec.json.encode(_Format(FORMAT_VERSION, store_id))])
    return store_id


def set_format(path: Path, store_id: str, version: int) -> None:
    """Change the version. The file keeps its mtime, which is that of the store's directories (``implied_times``)."""
    file = path / FORMAT_FILE
    if msgspec.json.decode(file.read_bytes(), type=_Format).format == version:
        return
    before = file.stat()
    write_whole(file, [msgspec.json.encode(_Format(version, store_id))])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
