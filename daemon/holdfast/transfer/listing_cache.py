"""The cached listings of a store's directories (``transfer.cached_listing``)."""

from __future__ import annotations

from collections import OrderedDict

from holdfast.remote import ObjectInfo
from holdfast.transfer.cached_listing import CachedListing, NamesChanged, nobody_cares
from holdfast.transfer.store_requests import RemoteAccess

_MOST_NAMES = 250_000
"""The limit of names that are kept in all. A directory counts as one more: without a name in it, it takes 310 bytes
(tracemalloc), a name about 200."""
_FEWEST_DIRECTORIES = 64  # kept however large they are: a directory in use must not be forgotten meanwhile


class ListingCache:
    """The cached listings of one store's directories; the least recently used are forgotten first."""

    def __init__(self, access: RemoteAccess) -> None:
        self.access = access
        self._changed: NamesChanged = nobody_cares
        self._known: OrderedDict[str, CachedListing] = OrderedDict()

    def follow(self, changed: NamesChanged) -> None:
        """Call ``changed`` from now on. Call this before the first ``get``."""
        self._changed = changed

    def get(self, key: str) -> CachedListing:
        """Return the cached listing of the directory ``key``: a new, unknown one if there is none yet."""
        directory = self._known.get(key)
        if directory is None:
            self._shrink()
            directory = self._known[key] = CachedListing(self.access, key, self._changed)
        else:
            self._known.move_to_end(key)
        return directory

    def stored(self, key: str, info: ObjectInfo) -> None:
        """Note that this node has stored the object ``key``, which implies the directories above it."""
        above, _, name = key.rpartition("/")
        directory = self.get(above)
        directory.put(name.encode(), info)
        directory.note_writing()
        while above:
            above, _, name = above.rpartition("/")
            self.get(above).put_directory(name.encode())

    def deleted(self, key: str) -> None:
        """Note that the store has deleted the object ``key``: a LIST that began before must not bring it back."""
        parent, _, name = key.rpartition("/")
        directory = self._known.get(parent)
        if directory is not None:
            was_there = name.encode() in directory
            directory.remove(name.encode())
            if was_there:
                self._changed(parent, {name.encode()})

    def cached_count(self, key: str) -> int:
        """Return how many names are cached of the directory ``key``; 0 when nothing is known of it."""
        directory = self._known.get(key)
        return len(directory) if directory is not None else 0

    def seen(self, key: str, info: ObjectInfo) -> None:
        """Note that the store was seen to have the object ``key``."""
        parent, _, name = key.rpartition("/")
        directory = self._known.get(parent)
        if directory is not None:
            is_new = name.encode() not in directory
            directory.put(name.encode(), info)
            if is_new:
                self._changed(parent, {name.encode()})

    def seen_directory(self, key: str) -> None:
        """Note that the store was seen to have objects below ``key``; what was cached below it is forgotten."""
        self.forget_below(key)
        parent, _, name = key.rpartition("/")
        directory = self._known.get(parent)
        if directory is not None:
            directory.put_directory(name.encode())

    def forget_below(self, key: str) -> None:
        """Forget the directory ``key`` and all below it."""
        prefix = f"{key}/" if key else ""
        for known in [known for known in self._known if known == key or known.startswith(prefix)]:
            del self._known[known]

    def _shrink(self) -> None:
        if len(self._known) % 256:
            return
        total = len(self._known) + sum(map(len, self._known.values()))
        while total > _MOST_NAMES and len(self._known) > _FEWEST_DIRECTORIES:
            total -= 1 + len(self._known.popitem(last=False)[1])
