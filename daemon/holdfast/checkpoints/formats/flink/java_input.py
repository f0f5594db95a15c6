"""Java's ``DataInput`` over a stream of known length, for untrusted bytes.

Big-endian numbers, and texts in modified UTF-8 behind a length of two bytes. Nothing is read or skipped that is not there:
every count is checked against the bytes that are left before anything is allocated for it, and the items of all lists
together against a bound of time. Holds one buffer of 64 KiB.
"""

from __future__ import annotations

import struct

from holdfast.checkpoints.manifests import BrokenError, Readable, Trouble

_BUFFER_BYTES = 64 * 1024
_MOST_ITEMS = 2**21
"""The limit of items in all lists together. One takes up to 10 µs to read. A job of parallelism 1000 that is exchanged all
to all has a million channels."""
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


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
