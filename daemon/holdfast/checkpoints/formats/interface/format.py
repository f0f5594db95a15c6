"""A checkpoint format: its layouts, and what it tells the file system of its names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeAlias

from holdfast.checkpoints.formats.interface.locations import GroupLayout, LocationLayout
from holdfast.checkpoints.formats.interface.terms import StateFile, StatefulOperator
from holdfast.checkpoints.formats.interface.trees import TreeLayout
from holdfast.checkpoints.manifests import ManifestKind, MetadataReader
from holdfast.zones import NameKind


@dataclass(frozen=True, slots=True)
class FetchReferences:
    """The file that was opened names others, which will be read next. ``names`` returns them, relative to its directory.

    It takes the file and its size, and returns nothing for a file that it can't read. Raises only the file's ``OSError``.
    ``end_bytes`` says how much of the end of such a file, by its size, the engine reads first, of all of them.
    """

    names: Callable[[BinaryIO, int], list[bytes]]
    end_bytes: Callable[[int], int] | None = None


@dataclass(frozen=True, slots=True)
class ListDirectories:
    """The directories ``names`` beside the file that was opened will be listed next, if ``evidence`` is one of them.

    Later those that match ``in_turn`` are listed, by their paths from there: several at once, in the order of the number
    that follows the first group. Still later the state in the directory ``state`` is opened: in each directory below it the
    newest manifest, by the version that ``version`` finds in its name, and then the files that it refers to.
    """

    names: tuple[bytes, ...]
    evidence: bytes
    in_turn: re.Pattern[bytes] | None = None
    state: bytes | None = None
    version: Callable[[bytes], int | None] | None = None


ReadAhead: TypeAlias = FetchReferences | ListDirectories


@dataclass(frozen=True)
class Format:
    """A checkpoint format.

    - ``name_kinds``: patterns of names, for ``zones.NameTable``;
    - ``temporary_names`` match the last component of a name that is on its way to another; the first group is that;
    - ``attempt_names`` match the last component of those that a writer makes up anew at each attempt: once it has ended,
      nobody comes back for the file;
    - ``logs`` match directories whose write-once names one writer makes; the first group is the checkpoint;
    - ``read_ahead`` says what an open of a name, by its last component, leads to;
    - ``partitions`` match the directory of a partition's state, and what is in it; the first group is the directory;
    - ``state_file`` says which state a file belongs to, by its whole name in its store;
    - ``stateful_operator`` reads what a file, by its name in the checkpoint location, says of an operator with state;
    - ``partitions_now`` says how many partitions an operator has, by its metadata, those that are there, and the bytes of
      the log entry that says how the newest batch runs;
    - ``metadata`` reads the manifests of ``tree``;
    - ``compressed`` reads how long a file is that may be compressed (``WholeLength``), as references ask for it.
    """

    name: str
    name_kinds: Mapping[NameKind, Sequence[str]] = field(default_factory=dict)
    temporary_names: tuple[re.Pattern[bytes], ...] = ()
    attempt_names: tuple[re.Pattern[bytes], ...] = ()
    logs: tuple[re.Pattern[bytes], ...] = ()
    read_ahead: Callable[[bytes], ReadAhead | None] | None = None
    partitions: tuple[re.Pattern[bytes], ...] = ()
    state_file: Callable[[bytes], StateFile | None] | None = None
    stateful_operator: Callable[[bytes, bytes], StatefulOperator | None] | None = None
    partitions_now: Callable[[int, int, bytes], int] | None = None
    locations: LocationLayout | None = None
    groups: GroupLayout | None = None
    tree: TreeLayout[Any] | None = None
    metadata: MetadataReader | None = None
    compressed: ManifestKind | None = None
