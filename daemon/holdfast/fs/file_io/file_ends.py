"""The ends of files that an engine reads when it opens its state, brought into the page cache ahead of it.

RocksDB reads the ends of all its files before anything else, while a batch waits for it. They are a hundredth of the state,
and take as long as the disk needs if memory has been used for something else meanwhile, or the node was started again. Here
the kernel is asked for them (``system.file_reading``), and reads what it does not have.

All of this waits for the disk: call it in a thread of trio's, whose cancellation ends it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

import trio

from holdfast.checkpoints.formats import Formats
from holdfast.checkpoints.formats.interface import FetchReferences, ListDirectories
from holdfast.store.tree import Tree
from holdfast.system.file_reading import ask_for, reading
from holdfast.zones import ZonePath

_MOST_MANIFESTS = 64
"""The limit of manifests read for one query: those of further partitions are read when they are opened."""
_MOST_NAMES = 20_000
_MOST_FILES = 2_000
"""The limit of files whose ends are asked for behind one manifest."""
_PIECE_BYTES = 2**17
"""The bytes asked for at once: of more, the kernel reads only as much as the read-ahead of the disk."""
_DEEPEST = 3
"""The levels below a query's state: operator, partition, and one of several stores of a partition."""


def read_ends_of_state(tree: Tree, place: ZonePath, ahead: ListDirectories, formats: Formats) -> None:
    """Ask for the ends of what the query in the directory ``place`` opens when it begins, as far as this node has it."""
    for manifest in _newest_manifests(tree, place, ahead):
        above, _, name = manifest.rpartition(b"/")
        references = formats.read_ahead(name)
        if isinstance(references, FetchReferences) and references.end_bytes is not None:
            with suppress(OSError):
                names = names_behind(references, tree.open_file(manifest))
                read_ends(tree, paths_below(place, above, names), references.end_bytes)


def read_ends(tree: Tree, paths: Iterable[bytes], end_bytes: Callable[[int], int]) -> None:
    """Ask for the end of each file in the tree, ``end_bytes`` of its size; for its last piece first, which is read first."""
    for path in islice(paths, _MOST_FILES):
        trio.from_thread.check_cancelled()
        with suppress(OSError, ValueError):  # it is not here, or no file could have such a name
            fd = tree.open_file(path)
            try:
                size = os.fstat(fd).st_size
                begin = max(0, size - end_bytes(size))
                for end in range(size, begin, -_PIECE_BYTES):
                    start = max(begin, end - _PIECE_BYTES)
                    ask_for(fd, start, end - start)
            finally:
                os.close(fd)


def names_behind(ahead: FetchReferences, fd: int) -> list[bytes]:
    """Return the names that the manifest behind ``fd`` refers to; none if it is unreadable. Closes ``fd``."""
    try:
        with reading(fd) as file:
            return ahead.names(file, os.fstat(fd).st_size)
    except OSError:
        return []


def paths_below(place: ZonePath, directory: bytes, names: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the paths of ``names`` below a directory, which may lead out of it, but not out of the zone of ``place``."""
    for name in names:
        path = os.path.normpath(directory + b"/" + name)
        if path.startswith(place.zone.prefix + b"/"):
            yield path


def _newest_manifests(tree: Tree, place: ZonePath, ahead: ListDirectories) -> list[bytes]:
    """Return the paths of the newest manifest in each directory of a query's state."""
    found: list[bytes] = []
    if ahead.state is None or ahead.version is None:
        return found
    top, names = place.child_path(ahead.state), 0
    try:
        top_fd = tree.open_directory(top)
    except OSError:
        return found
    try:
        with suppress(OSError):  # the disk fails, which whoever reads the state is told
            for trail, _, entries in tree.descend(top_fd, _DEEPEST):
                versions = [(version, each.name) for each in entries if (version := ahead.version(each.name)) is not None]
                if versions:
                    found.append(b"/".join([top, *trail, max(versions)[1]]))
                names += len(entries)
                if names > _MOST_NAMES or len(found) == _MOST_MANIFESTS:
                    break
    finally:
        os.close(top_fd)
    return found
