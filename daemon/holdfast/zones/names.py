"""Names in directories, with all that follows from them: zone, path, object key, kind and policy.

Kinds of names among objects are defined by patterns of what engines do with a name.

A pattern is a path below the zone. In a component ``*`` stands for any characters, ``<n>`` for a number, ``<hex>`` for
hexadecimal digits, ``<uuid>`` for a UUID; the component ``**`` stands for any directories, or at the end for everything
below. The first kind that matches wins, in the order of ``NameKind``; all other names are replaceable. The patterns come
from the checkpoint formats (``checkpoints.formats``) and Hadoop's ChecksumFileSystem.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from holdfast.errors import ConfigurationError
from holdfast.zones.name_kinds import NameKind
from holdfast.zones.zone import LONGEST_KEY_BYTES, ZonePath

_HADOOP: Mapping[NameKind, Sequence[str]] = {NameKind.SIDECAR: ("**/.*.crc",)}
"""Patterns of Hadoop's local file system, for any engine that writes through it."""

_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_WORDS = {"*": r"[^/]*", "<n>": r"[0-9]+", "<hex>": r"[0-9a-f]+", "<uuid>": _UUID}
_TOKENS = re.compile(r"\*|<[^<>]*>?|[^*<]+")
_SIDECAR = re.compile(rb"\.(.+)\.crc", re.DOTALL)


class NameTable:
    """The patterns in force: those of the configuration (``added``), then those of the checkpoint formats (``built_in``).

    Raises ``ConfigurationError`` for an invalid pattern.
    """

    def __init__(self, added: Mapping[NameKind, Sequence[str]], built_in: Mapping[NameKind, Sequence[str]]) -> None:
        self._kinds: list[NameKind] = []
        groups = []
        for sources in ((added,), (built_in, _HADOOP)):
            for kind in NameKind:
                patterns = [pattern for source in sources for pattern in source.get(kind, ())]
                if patterns:
                    self._kinds.append(kind)
                    groups.append("(" + "|".join(_to_regex(pattern) for pattern in patterns) + ")")
        self._regex = re.compile(os.fsencode("|".join(groups)))
        self.kind_of = lru_cache(maxsize=4096)(self._kind_of)

    def _kind_of(self, path: bytes) -> NameKind:
        """Return the kind of the name at ``path``, relative to its zone. A path too long for a key matches no pattern.

        Patterns take a microsecond for each byte, and paths are as long as users like.
        """
        if len(path) > LONGEST_KEY_BYTES:
            return NameKind.REPLACEABLE
        match = self._regex.fullmatch(path)
        if match is None or match.lastindex is None:
            return NameKind.REPLACEABLE
        return self._kinds[match.lastindex - 1]


class ZoneName:
    """The entry ``name`` of the directory at ``place``; ``path`` is its path in the tree.

    A file at a name that ``sends`` is, or will become, an object; one that is ``created_once`` may be created only once.
    Names without a store, and those that are too long for any, are all of one kind, which is not looked for.
    """

    __slots__ = ("created_once", "kind", "name", "path", "place", "policy", "sends", "zone")

    def __init__(self, place: ZonePath, name: bytes, names: NameTable) -> None:
        zone = place.zone
        path = place.start + name
        kind = NameKind.REPLACEABLE
        if zone.remote is not None and len(key := path[zone.key_start :]) <= LONGEST_KEY_BYTES:
            kind = names.kind_of(key)
        policy = kind.policy
        self.place = place
        self.zone = zone
        self.name = name
        self.path = path
        self.kind = kind
        self.policy = policy
        self.sends = zone.sends and not policy.stays_here
        self.created_once = zone.sends and policy.created_once

    @property
    def key(self) -> bytes:
        """The path below the zone: the key of the object, if there is one."""
        return self.zone.key_of(self.path)


def sidecar_owner(name: bytes) -> bytes | None:
    """Return the name of the file whose checksum ``name`` holds; None if it is no sidecar's name."""
    match = _SIDECAR.fullmatch(name)
    return match[1] if match else None


def sidecar_of(name: bytes) -> bytes:
    """Return the name of the checksum file of ``name``."""
    return b".%s.crc" % name


def _to_regex(pattern: str) -> str:
    *directories, last = pattern.split("/")
    parts = [r"(?:[^/]+/)*" if part == "**" else _component(part, pattern) + "/" for part in directories]
    parts.append(r"(?s:.+)" if last == "**" else _component(last, pattern))
    return "".join(parts)


def _component(part: str, pattern: str) -> str:
    if not part:
        raise ConfigurationError(f"names: {pattern!r}: a path below the zone, without slashes at its ends or in a row")
    if "**" in part:
        raise ConfigurationError(f"names: {pattern!r}: ** stands between slashes, alone")
    parts = []
    for token in _TOKENS.findall(part):
        if token.startswith("<") and token not in _WORDS:
            raise ConfigurationError(f"names: {pattern!r}: {token} is no word; there are {', '.join(_WORDS)}")
        parts.append(_WORDS.get(token) or re.escape(token))
    return "".join(parts)
