"""All formats together, for callers that have a name and don't know which engine wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.checkpoints.formats.interface import (
    LOGS,
    OTHER,
    TEMPORARY,
    Format,
    GroupLayout,
    LocationLayout,
    ReadAhead,
    StateFile,
    StatefulOperator,
    TreeLayout,
)
from holdfast.checkpoints.manifests import ManifestKind, told_apart
from holdfast.errors import ConfigurationError
from holdfast.zones import NameKind

_T = TypeVar("_T")


class Formats:
    """The formats that this Holdfast knows, in the order in which they are asked.

    ``locations``, ``groups`` and ``trees`` are their layouts, each once; rows of Spark's jobs name a layout by its position.
    Raises ``ConfigurationError`` when two have one name, or none reads the manifests of a tree.
    """

    def __init__(self, *formats: Format) -> None:
        self.formats = formats
        if len({each.name for each in formats}) < len(formats):
            raise ConfigurationError("two checkpoint formats have one name")
        self.locations: tuple[LocationLayout, ...] = _each_once(each.locations for each in formats)
        self.groups: tuple[GroupLayout, ...] = _each_once(each.groups for each in formats)
        self.trees: tuple[TreeLayout[Any], ...] = _each_once(each.tree for each in formats)
        self.manifests = tuple(self._manifests_of(tree) for tree in self.trees)
        """The kind of manifest of each tree, with its reader."""
        self.compressed = {kind.name: kind for kind in _each_once(each.compressed for each in formats)}
        """The kinds of files that may be compressed, with readers of their uncompressed length, by the names of the
        kinds."""
        self._temporary_names = _each_once(pattern for each in formats for pattern in each.temporary_names)
        self._attempt_names = _each_once(pattern for each in formats for pattern in each.attempt_names)
        self._logs = _each_once(pattern for each in formats for pattern in each.logs)
        self._read_ahead = _each_once(each.read_ahead for each in formats)
        self._partitions = _each_once(pattern for each in formats for pattern in each.partitions)
        self._state_file = _each_once(each.state_file for each in formats)
        self._stateful_operator = _each_once(each.stateful_operator for each in formats)
        self._partitions_now = _each_once(each.partitions_now for each in formats)

    @property
    def name_kinds(self) -> Mapping[NameKind, Sequence[str]]:
        """The patterns of names of each kind, for ``zones.NameTable``."""
        patterns: dict[NameKind, list[str]] = {}
        for each in self.formats:
            for kind, some in each.name_kinds.items():
                patterns.setdefault(kind, []).extend(some)
        return {kind: _each_once(some) for kind, some in patterns.items()}

    @property
    def purposes(self) -> tuple[str, ...]:
        """The purposes of files, in the order in which a report shows them."""
        of_locations = [purpose for layout in self.locations for purpose in layout.purposes]
        of_trees = [purpose for tree in self.trees for purpose in tree.purposes]
        return _each_once([*of_locations, *of_trees, LOGS, TEMPORARY, OTHER])

    @property
    def named_by(self) -> str:
        """The names by which users drop checkpoints, described for people."""
        return ", or ".join([*(tree.named_by for tree in self.trees), *(layout.named_by for layout in self.locations)])

    def temporary_target(self, name: bytes) -> bytes | None:
        """Return the final name that a temporary file, by its last component, is made for; None where it does not tell."""
        return _first_group(self._temporary_names, name)

    def is_of_one_attempt(self, name: bytes) -> bool:
        """Say whether nobody comes back for a temporary file, by its last component, once its writer has ended."""
        return any(pattern.fullmatch(name) for pattern in self._attempt_names)

    def checkpoint_of_log(self, directory: bytes) -> bytes | None:
        """Return the checkpoint that a directory is a log of, whose write-once names one writer makes; else None."""
        return _first_group(self._logs, directory)

    def read_ahead(self, name: bytes) -> ReadAhead | None:
        """Return what an open of a file leads to, by the last component of its name."""
        for of_format in self._read_ahead:
            hint = of_format(name)
            if hint is not None:
                return hint
        return None

    def partition(self, name: bytes) -> bytes | None:
        """Return the directory with a partition's state that a name is, or lies in, by whole names in the store."""
        return _first_group(self._partitions, name)

    def state_file(self, name: bytes) -> StateFile | None:
        """Return which state a file belongs to, by its whole name in its store; None if it is none of a partition's."""
        for of_format in self._state_file:
            found = of_format(name)
            if found is not None:
                return found
        return None

    def stateful_operator(self, name: bytes, data: bytes) -> StatefulOperator | None:
        """Return what a file, by its name in the checkpoint location, says of an operator with state."""
        for of_format in self._stateful_operator:
            found = of_format(name, data)
            if found is not None:
                return found
        return None

    def partitions_now(self, by_metadata: int, there: int, newest_batch: bytes) -> int:
        """Return how many partitions an operator with state has in the batch whose log entry has these bytes.

        ``by_metadata`` is what its metadata says, ``there`` how many have files; 0: not known.
        """
        return max(of_format(by_metadata, there, newest_batch) for of_format in self._partitions_now)

    def _manifests_of(self, tree: TreeLayout[Any]) -> ManifestKind:
        readers = [each.metadata for each in self.formats if each.tree is tree and each.metadata is not None]
        if not readers:
            raise ConfigurationError(f"no checkpoint format reads {tree.manifest}")
        return ManifestKind(tree.manifest, told_apart(readers))


def _first_group(patterns: Iterable[re.Pattern[bytes]], text: bytes) -> bytes | None:
    for pattern in patterns:
        match = pattern.fullmatch(text)
        if match is not None:
            return match[1]
    return None


def _each_once(values: Iterable[_T | None]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(value for value in values if value is not None))
