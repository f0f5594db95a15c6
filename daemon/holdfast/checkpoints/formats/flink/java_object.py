"""Skips one object in Java's serialization format, to find where it ends. Nothing of it is kept or instantiated.

Flink ends its ``_metadata`` with a serialized ``CheckpointProperties``. Its content is of no use here, but where it ends
must be known to tell a whole file from a truncated one, and from one with trailing bytes. Read: objects, class descriptions,
strings, enums, null and references, with fields of primitive types and objects, as ObjectOutputStream writes them for
classes without ``writeObject`` (Java Object Serialization Specification, chapter 6). Anything else is an unknown tag.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.checkpoints.formats.flink.java_input import JavaInput
from holdfast.checkpoints.manifests import BrokenError, Trouble

_HEADER = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS_DESCRIPTION, _OBJECT, _STRING, _END, _ENUM = 0x70, 0x71, 0x72, 0x73, 0x74, 0x78, 0x7E
_FIRST_HANDLE = 0x7E0000
_SERIALIZABLE, _IS_ENUM = 0x02, 0x10
_FIELD_BYTES = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1}
_DEEPEST = 32
_MOST_HANDLES = 4096
"""The limit of handles in one object. CheckpointProperties needs 15."""


@dataclass(slots=True)
class _Description:
    """A class: the types of its own fields in order, and its superclass."""

    fields: str = ""
    superclass: _Description | None = None


class _Skipper:
    def __init__(self, data: JavaInput) -> None:
        self._data = data
        self._handles: list[_Description | None] = []

    def skip(self, depth: int = 0) -> None:
        """Pass over one object, whatever it is."""
        if depth > _DEEPEST:
            raise BrokenError(Trouble.TOO_DEEP, f"a serialized object at byte {self._data.position_bytes}")
        tag = self._data.byte()
        if tag == _OBJECT:
            self._skip_object(depth)
        elif tag == _STRING:
            self._data.skip_text()
            self._remember(None)
        elif tag == _ENUM:
            self._description(depth)
            self._remember(None)
            self.skip(depth + 1)
        elif tag == _REFERENCE:
            self._resolve()
        elif tag != _NULL:
            raise BrokenError(
                Trouble.UNKNOWN_TAG, f"{tag:#x} in a serialized object, before byte {self._data.position_bytes}"
            )

    def _skip_object(self, depth: int) -> None:
        description = self._description(depth)
        self._remember(None)
        line: list[_Description] = []
        while description is not None:
            if len(line) > _DEEPEST:  # a class may claim to be its own ancestor
                raise BrokenError(Trouble.TOO_DEEP, f"the ancestors of a class, before byte {self._data.position_bytes}")
            line.append(description)
            description = description.superclass
        for ancestor in reversed(line):
            for code in ancestor.fields:
                if code in _FIELD_BYTES:
                    self._data.skip(_FIELD_BYTES[code])
                else:
                    self.skip(depth + 1)

    def _description(self, depth: int) -> _Description | None:
        if depth > _DEEPEST:
            raise BrokenError(Trouble.TOO_DEEP, f"a class description at byte {self._data.position_bytes}")
        tag = self._data.byte()
        if tag == _NULL:
            return None
        if tag == _REFERENCE:
            found = self._resolve()
            if found is None:
                raise BrokenError(Trouble.MALFORMED, f"no class is referred to before byte {self._data.position_bytes}")
            return found
        if tag != _CLASS_DESCRIPTION:
            raise BrokenError(Trouble.UNKNOWN_TAG, f"{tag:#x} for a class, before byte {self._data.position_bytes}")
        return self._new_description(depth)

    def _new_description(self, depth: int) -> _Description:
        data = self._data
        description = _Description()
        data.skip_text()
        data.skip(8)
        self._remember(description)
        flags = data.byte()
        if flags & ~_IS_ENUM != _SERIALIZABLE:
            raise BrokenError(Trouble.UNKNOWN_TAG, f"class flags {flags:#x} before byte {data.position_bytes}")
        codes = []
        for _ in range(int.from_bytes(data.take(2), "big")):
            code = chr(data.byte())
            data.skip_text()
            if code in "L[":
                self.skip(depth + 1)
            elif code not in _FIELD_BYTES:
                raise BrokenError(Trouble.UNKNOWN_TAG, f"a field of type {code!r} before byte {data.position_bytes}")
            codes.append(code)
        description.fields = "".join(codes)
        if data.byte() != _END:
            raise BrokenError(Trouble.UNKNOWN_TAG, f"an annotated class before byte {data.position_bytes}")
        description.superclass = self._description(depth + 1)
        return description

    def _remember(self, description: _Description | None) -> None:
        if len(self._handles) >= _MOST_HANDLES:
            raise BrokenError(Trouble.TOO_LARGE, f"more than {_MOST_HANDLES} serialized objects")
        self._handles.append(description)

    def _resolve(self) -> _Description | None:
        index = self._data.int32() - _FIRST_HANDLE
        if not 0 <= index < len(self._handles):
            raise BrokenError(Trouble.MALFORMED, f"a reference to nothing before byte {self._data.position_bytes}")
        return self._handles[index]


def skip_object(data: JavaInput) -> None:
    """Pass over a serialization stream that holds one object. Raises ``BrokenError``."""
    header = data.take(len(_HEADER))
    if header != _HEADER:
        raise BrokenError(Trouble.MALFORMED, f"no serialized object before byte {data.position_bytes}")
    _Skipper(data).skip()
