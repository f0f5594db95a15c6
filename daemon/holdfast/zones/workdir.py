"""The names of working directories and of their content (FLIP-198, with RocksDB's directory beside ``tmp``)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from holdfast.config import ROLE_NAME, ROLE_NAME_ALLOWED
from holdfast.errors import ConfigurationError

SKELETON = (b"tmp", b"rocksdb", b"localState", b"blobStorage")
"""The directories that a working directory has from the start."""

VOLATILE = (b"tmp", b"rocksdb")
"""The directories that are emptied whenever the process starts."""

_ID = re.compile(r"[^/\x00]+")
_LONGEST_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class WorkdirName:
    """The name of a working directory: ``<role>_<resource id>``."""

    role: str
    resource_id: str

    @classmethod
    def checked(cls, role: str, resource_id: str) -> WorkdirName:
        """Return the name. Raises ``ConfigurationError``, which says what is allowed."""
        if not ROLE_NAME.fullmatch(role):
            raise ConfigurationError(f"role {role!r}: {ROLE_NAME_ALLOWED}")
        if not _ID.fullmatch(resource_id):
            raise ConfigurationError(f"id {resource_id!r}: any characters but '/'; at least one")
        name = cls(role, resource_id)
        if not _is_text(resource_id):
            raise ConfigurationError(f"id {resource_id!r}: not a text that a file name can hold")
        length_bytes = len(name.encoded())
        if length_bytes > _LONGEST_NAME_BYTES:
            raise ConfigurationError(f"role and id together are {length_bytes} bytes long; at most {_LONGEST_NAME_BYTES}")
        return name

    @classmethod
    def parse(cls, name: bytes) -> WorkdirName | None:
        """Parse a directory's name; None if it is not a working directory's, or not text."""
        role, separator, resource_id = os.fsdecode(name).partition("_")
        if not separator or not resource_id or not ROLE_NAME.fullmatch(role) or not _is_text(resource_id):
            return None
        return cls(role, resource_id)

    def encoded(self) -> bytes:
        """Return the directory's name."""
        return os.fsencode(f"{self.role}_{self.resource_id}")


def _is_text(name: str) -> bool:
    """Say whether a decoded file name is text, so that records and messages can hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
