"""Byte sizes and file modes as people write them: ``"20GiB"``, ``"0644"``."""

from __future__ import annotations

import re
from fractions import Fraction

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_BINARY_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) *([kmgt]i?)?b?", re.IGNORECASE)
_MODE = re.compile(r"(?:0o|0)?[0-7]{1,4}")
_LARGEST_SIZE = 2**63 - 1  # what the kernel's off_t, and every number on the disk, can hold


class ByteSize(int):
    """A number of bytes, written as an integer or with a unit (``512MiB``, ``20GB``)."""

    ALLOWED = "a number of bytes or a size with its unit, as in 500000000, 512MiB or 20GB"

    @classmethod
    def parse(cls, value: object) -> ByteSize:
        """Parse an integer or a text. Raises ``ValueError``, which says what is allowed."""
        if isinstance(value, int) and not isinstance(value, bool):
            number = int(value)
        else:
            match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
            number = int(Fraction(match[1]) * _FACTORS[(match[2] or "").lower()]) if match else -1
        if not 0 <= number <= _LARGEST_SIZE:
            raise ValueError(f"{value!r} is not a size: write {cls.ALLOWED}")
        return cls(number)

    def exact(self) -> str:
        """Return the size as ``parse`` reads it, in the largest binary unit that is exact."""
        for unit, factor in _BINARY_UNITS:
            if self and self % factor == 0:
                return f"{self // factor}{unit}"
        return f"{int(self)}"

    def __str__(self) -> str:
        for unit, factor in _BINARY_UNITS:
            if self >= factor:
                return f"{self / factor:.1f} {unit}"
        return f"{int(self)} B"


class FileMode(int):
    """Permission bits, written in octal (``"0644"``)."""

    ALLOWED = 'octal digits in quotes, as in "0644"'

    @classmethod
    def parse(cls, value: object) -> FileMode:
        """Parse a text; ``ValueError`` says what is allowed. Numbers are refused: TOML would read 0644 as decimal."""
        if not isinstance(value, str) or not _MODE.fullmatch(value):
            raise ValueError(f"{value!r} is not a mode: write {cls.ALLOWED}")
        return cls(int(value, 8))

    def __str__(self) -> str:
        return f"{int(self):04o}"
