"""A remote store as the file system sees it: the way to it, the beliefs about it, and what is still to be deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.transfer.access import RemoteAccess
from holdfast.transfer.deletions import Deletions
from holdfast.transfer.listing_cache import ListingCache


class Owned(Protocol):
    """What has an owner, such as ``os.stat_result``."""

    @property
    def st_uid(self) -> int:
        """The user's number."""

    @property
    def st_gid(self) -> int:
        """The group's number."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Owner and mode of what comes from a store, which has none: uid and gid -1 mean those of the directory above."""

    uid: int
    gid: int
    file_mode: int
    directory_mode: int

    def owner(self, above: Owned) -> tuple[int, int]:
        """Return uid and gid of what is directly in the directory ``above``."""
        return (
            above.st_uid if self.uid < 0 else self.uid,
            above.st_gid if self.gid < 0 else self.gid,
        )


@dataclass(frozen=True, slots=True)
class Remote:
    """One store."""

    access: RemoteAccess
    directories: ListingCache
    deletions: Deletions
    ownership: Ownership

    @property
    def name(self) -> str:
        """The zone's name: ``checkpoints`` or ``blobs``."""
        return self.access.name


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """An object, and the path in the tree where this node keeps its copy."""

    path: bytes
    remote: Remote
    key: str

    @property
    def store_path(self) -> bytes:
        """The object's path in the zone that shows the store: ``path`` may be another, of a working directory."""
        return f"{self.remote.name}/{self.key}".encode()
