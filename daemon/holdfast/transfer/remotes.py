"""A remote store as the file system sees it: the way to it, the beliefs about it, and what is still to be deleted."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.transfer.access import RemoteAccess
from holdfast.transfer.deletions import Deletions
from holdfast.transfer.directories import RemoteDirectories


@dataclass(frozen=True, slots=True)
class Ownership:
    """Owner and mode of what comes from a store, which has none: uid and gid -1 mean those of the directory above."""

    uid: int
    gid: int
    file_mode: int
    directory_mode: int


@dataclass(frozen=True, slots=True)
class Remote:
    """One store."""

    access: RemoteAccess
    directories: RemoteDirectories
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
