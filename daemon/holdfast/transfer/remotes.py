"""A remote store as the file system sees it: access, cached listings, pending deletions, and the owner of its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.transfer.deletions import Deletions
from holdfast.transfer.listing_cache import ListingCache
from holdfast.transfer.store_requests import RemoteAccess


class Owned(Protocol):
    """Anything with an owner, such as ``os.stat_result``."""

    @property
    def st_uid(self) -> int:
        """The owner's user id."""

    @property
    def st_gid(self) -> int:
        """The owner's group id."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Owner and modes of files and directories made for objects, which have none. -1: the parent directory's uid or gid."""

    uid: int
    gid: int
    file_mode: int
    directory_mode: int

    @property
    def of_directories(self) -> tuple[int, int, int]:
        """The mode, uid and gid of directories, as ``Tree.make_directories`` takes them."""
        return self.directory_mode, self.uid, self.gid

    def owner(self, above: Owned) -> tuple[int, int]:
        """Return uid and gid for a file or directory in the directory ``above``."""
        return above.st_uid if self.uid < 0 else self.uid, above.st_gid if self.gid < 0 else self.gid


@dataclass(frozen=True, slots=True)
class Remote:
    """One store and the state that this node keeps of it."""

    access: RemoteAccess
    directories: ListingCache
    deletions: Deletions
    ownership: Ownership

    @property
    def name(self) -> str:
        """The store's name, which is its zone's too."""
        return self.access.name


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """An object, and the path in the tree where this node keeps its copy."""

    path: bytes
    remote: Remote
    key: str
    store_path: bytes
    """The object's path in the store's own zone; ``path`` may lie in a working directory instead."""
