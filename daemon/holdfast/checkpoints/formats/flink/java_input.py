"""Java's ``DataInput`` over a stream of known length, for untrusted bytes.

Big-endian numbers, and texts in modified UTF-8 behind a length of two bytes. Nothing is read or skipped that is not there:
every count is checked against the bytes that are left before anything is allocated for it, and the items of all lists
together against a bound of time. Holds one buffer of 64 KiB.

``skip_object`` skips one object in Java's serialization format, to find where it ends. Nothing of it is kept or
instantiated. Flink ends its ``_metadata`` with a serialized ``CheckpointProperties``. Its content is of no use here, but
where it ends must be known to tell a whole file from a truncated one, and from one with trailing bytes. Read: objects, class
descriptions, strings, enums, null and references, with fields of primitive types and objects, as ObjectOutputStream writes
them for classes without ``writeObject`` (Java Object Serialization Specification, chapter 6). Anything else is an unknown
tag.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from holdfast.checkpoints.manifests import BrokenError, Readable, Trouble

_BUFFER_BYTES = 64 * 1024
_MOST_ITEMS = 2**21
"""The limit of items in all lists together. One takes up to 10 µs to read. A job of parallelism 1000 that is exchanged all
to all has a million channels."""
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_HEADER = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS_DESCRIPTION, _OBJECT, _STRING, _END, _ENUM = 0x70, 0x71, 0x72, 0x73, 0x74, 0x78, 0x7E
_FIRST_HANDLE = 0x7E0000
_SERIALIZABLE, _IS_ENUM = 0x02, 0x10
_FIELD_BYTES = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1}
_DEEPEST = 32
_MOST_HANDLES = 4096
"""The limit of handles in one object. CheckpointProperties needs 15."""


class JavaInput:
    """A reader of the next ``size_bytes`` bytes of ``stream``. All methods raise ``BrokenError``."""

    def __init__(self, stream: Readable, size_bytes: int) -> None:
        self._stream = stream
        self._size_bytes = size_bytes
        self._unread_bytes = size_bytes
        self._buffer = b""
        self._at = 0
        self._items = 0

    @property
    def left_bytes(self) -> int:
        """The number of bytes that have not been taken."""
        return self._unread_bytes + len(self._buffer) - self._at

    @property
    def position_bytes(self) -> int:
        """The number of bytes that have been taken."""
        return self._size_bytes - self.left_bytes

    def take(self, length_bytes: int) -> bytes:
        """Return the next bytes; only for lengths that are small by their nature (at most 64 KiB)."""
        self._need(length_bytes)
        while len(self._buffer) - self._at < length_bytes:
            self._fill()
        taken = self._buffer[self._at : self._at + length_bytes]
        self._at += length_bytes
        return taken

    def skip(self, length_bytes: int) -> None:
        """Pass over bytes without keeping them."""
        if length_bytes < 0:
            raise BrokenError(Trouble.MALFORMED, f"a length of {length_bytes} at byte {self.position_bytes}")
        self._need(length_bytes)
        while length_bytes:
            if self._at == len(self._buffer):
                self._fill()
            step = min(length_bytes, len(self._buffer) - self._at)
            self._at += step
            length_bytes -= step

    def byte(self) -> int:
        """Return an unsigned byte."""
        return self.take(1)[0]

    def int32(self) -> int:
        """Return Java's ``int``."""
        number: int = _INT.unpack(self.take(4))[0]
        return number

    def int64(self) -> int:
        """Return Java's ``long``."""
        number: int = _LONG.unpack(self.take(8))[0]
        return number

    def items(self, item_bytes: int, none: int = 0) -> range:
        """Return the positions of a counted list whose items are to be read one by one; see ``count``."""
        number = self.count(item_bytes, none)
        self._items += number
        if self._items > _MOST_ITEMS:
            raise BrokenError(Trouble.TOO_LARGE, f"more than {_MOST_ITEMS} items at byte {self.position_bytes}")
        return range(number)

    def count(self, item_bytes: int, none: int = 0) -> int:
        """Return a number of items, each of which takes at least ``item_bytes``: no more than can be there.

        ``none`` is another way to say 0.
        """
        at = self.position_bytes
        number = self.int32()
        if number == none:
            return 0
        if number < 0:
            raise BrokenError(Trouble.MALFORMED, f"a count of {number} at byte {at}")
        if number * item_bytes > self.left_bytes:
            raise BrokenError(
                Trouble.TRUNCATED, f"{number} items are announced at byte {at}, {self.left_bytes} bytes are left"
            )
        return number

    def skip_longs(self) -> None:
        """Pass over a counted list of ``long``."""
        self.skip(8 * self.count(8))

    def text(self) -> bytes:
        """Return a text as UTF-8 (what Java can't have read either is ``BrokenError``)."""
        at = self.position_bytes
        raw = self.take(int.from_bytes(self.take(2), "big"))
        if raw.isascii() and b"\x00" not in raw:
            return raw
        try:
            decoded = raw.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
            return decoded.encode("utf-16", "surrogatepass").decode("utf-16").encode()
        except UnicodeError:
            raise BrokenError(Trouble.MALFORMED, f"no modified UTF-8 at byte {at}") from None

    def skip_text(self) -> None:
        """Pass over a text."""
        self.skip(int.from_bytes(self.take(2), "big"))

    def _need(self, length_bytes: int) -> None:
        if length_bytes > self.left_bytes:
            raise BrokenError(
                Trouble.TRUNCATED,
                f"{length_bytes} bytes are wanted at byte {self.position_bytes}, {self.left_bytes} are left",
            )

    def _fill(self) -> None:
        more = self._stream.read(min(_BUFFER_BYTES, self._unread_bytes))
        if not more:
            raise BrokenError(Trouble.TRUNCATED, f"the stream ends {self._unread_bytes} bytes before its announced length")
        self._unread_bytes -= len(more)
        self._buffer = self._buffer[self._at :] + more
        self._at = 0


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
