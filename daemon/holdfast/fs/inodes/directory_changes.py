"""Changes of the names in a store's directories that a LIST shows: the directory gets a later time.

Programs look at that time to learn of new names: Python's import lists a directory again only when its mtime is another. It
is the mtime of the backing directory (``store.directory_times``), and so outlives the daemon. A directory without one, which
only objects imply, gets one with the first change.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import suppress

from holdfast.fs.inodes.invalidation import Invalidation
from holdfast.store import StoreDirectory
from holdfast.transfer import Remote

_LOOKED_AT = 2000
"""The number of names of which each is looked at. Among more, one has changed that is not hidden."""


class DirectoryChanges:
    """Notes changes of the names in the directories of one store.

    ``is_whited_out`` says whether a name was removed here although the store has something of it.
    """

    def __init__(
        self, remote: Remote, store: StoreDirectory, invalidation: Invalidation, is_whited_out: Callable[[bytes], bool]
    ) -> None:
        self._remote = remote
        self._tree = store.tree
        self._implied_times = store.implied_times
        self._invalidation = invalidation
        self._is_whited_out = is_whited_out

    def names_changed(self, key: str, names: Set[bytes]) -> None:
        """Note that ``names`` in the directory ``key`` have come or gone (``transfer.cached_listing.NamesChanged``)."""
        path = f"{self._remote.name}/{key}".rstrip("/").encode()
        if len(names) <= _LOOKED_AT and all(self._is_hidden(b"%s/%s" % (path, name)) for name in names):
            return
        with suppress(OSError):  # the disk takes nothing more, or the directory has just been removed here
            self._touch(path, is_there=self._remote.directories.cached_count(key) > 0)

    def _is_hidden(self, path: bytes) -> bool:
        """Say whether a name was removed here, and the store still has what it led to."""
        return self._remote.deletions.pending(path) or self._is_whited_out(path)

    def _touch(self, path: bytes, *, is_there: bool) -> None:
        try:
            fd = self._tree.open_directory(path)
        except FileNotFoundError:
            if not is_there:
                return
            of_directories = self._remote.ownership.of_directories
            fd = self._tree.make_directories(path, *of_directories, since=self._implied_times)
            self._invalidation.directories_placed(path)
        self._invalidation.touch_directory(fd)
