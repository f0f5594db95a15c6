"""A name that a request is about."""

from __future__ import annotations

from holdfast.fs.inodes.node import Node
from holdfast.zones import NameTable, ZoneName, ZonePath


class Name(ZoneName):
    """The entry ``name`` of ``directory``. A request makes one of each of its names, and hands it on (``NamePolicy``)."""

    __slots__ = ("directory",)

    def __init__(self, directory: Node, place: ZonePath, name: bytes, names: NameTable) -> None:
        super().__init__(place, name, names)
        self.directory = directory
