"""Names made around other names: those of temporary files, and of a neighbour's checksums.

Spark writes ``NAME`` as ``.NAME.<uuid>[.TID<task attempt>].tmp`` and renames it; its own checksum stands in ``NAME.crc``;
Hadoop's local file system adds ``.NAME.crc`` to each of these. So one state file may have seven names about it, down to
``..5_<uuid>.zip.crc.<uuid>.tmp.crc``. Here such a name is taken apart, layer by layer. Pure: names in, names out.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from holdfast.checkpoints.formats.interface import UUID
from holdfast.zones import sidecar_owner

TEMPORARY_NAME = re.compile(rb"\.(.+)\.%s(?:\.TID\d+)?\.tmp" % UUID, re.DOTALL)
_CHECKSUM = b".crc"
_MOST_LAYERS = 4
"""The limit of layers. Spark and Hadoop make three (a sidecar of a temporary file of a checksum); more is no name of
theirs."""


class Layer(enum.Enum):
    """The relation of a file to the file after which it is named."""

    TEMPORARY = "temporary"
    """A file that will be renamed to that name."""
    CHECKSUM = "checksum"
    """Spark's checksum of it."""
    SIDECAR = "sidecar"
    """Hadoop's checksum of it."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """The last component of a name, taken apart: the name ``core`` within it, and its ``layers``, the outermost first.

    ``owner`` is the name with only the outermost layer gone: the neighbour that this file belongs to. Without layers
    ``core`` and ``owner`` are the name itself.
    """

    core: bytes
    owner: bytes
    layers: tuple[Layer, ...] = ()


def unwrapped(name: bytes) -> Wrapped:
    """Take ``name``, one component of a path, apart."""
    layers: list[Layer] = []
    core = owner = name
    while len(layers) < _MOST_LAYERS:
        outermost = _outermost(core)
        if outermost is None:
            break
        layer, core = outermost
        owner = owner if layers else core
        layers.append(layer)
    return Wrapped(core, owner, tuple(layers))


def _outermost(name: bytes) -> tuple[Layer, bytes] | None:
    temporary = TEMPORARY_NAME.fullmatch(name)
    if temporary is not None:
        return Layer.TEMPORARY, temporary[1]
    target = sidecar_owner(name)
    if target is not None:
        return Layer.SIDECAR, target
    if name.endswith(_CHECKSUM) and not name.startswith(b".") and len(name) > len(_CHECKSUM):
        return Layer.CHECKSUM, name[: -len(_CHECKSUM)]
    return None
