"""Notes entries that are made below a directory while somebody walks through it, who would miss some of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.zones import is_at_or_below


class Watch:
    """A watch on the directory at ``path`` (of the tree). ``has_grown``: an entry has been made in it, or below it."""

    __slots__ = ("has_grown", "path")

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.has_grown = False


class Growth:
    """The directories that are being walked through."""

    def __init__(self) -> None:
        self.watches: list[Watch] = []
        """The watches of the moment. Without any, which is nearly always, ``note`` has no effect."""

    @contextmanager
    def watch(self, path: bytes) -> Iterator[Watch]:
        """Watch the directory at ``path`` until the block is left."""
        watch = Watch(path)
        self.watches.append(watch)
        try:
            yield watch
        finally:
            self.watches.remove(watch)

    def note(self, path: bytes) -> None:
        """Note that an entry is about to be made in the directory at ``path``."""
        for watch in self.watches:
            if is_at_or_below(path, watch.path):
                watch.has_grown = True
