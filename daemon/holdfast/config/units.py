"""Byte sizes and file modes as people write them: ``"20GiB"``, ``"0644"``."""

from __future__ import annotations

import re

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)


class ByteSize(int):
    """A number of bytes, written as an integer or with a unit (``512MiB``, ``20GB``)."""

    @classmethod
    def parse(cls, text: str) -> ByteSize:
        """Read ``text``; ``ValueError`` says what is allowed."""
        match = _SIZE.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a size: write bytes or a unit, as in 500000000, 512MiB or 20GB")
        return cls(float(match[1]) * _FACTORS[(match[2] or "").lower()])

    def __str__(self) -> str:
        for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if self >= factor:
                return f"{self / factor:.1f} {unit}"
        return f"{int(self)} B"


class FileMode(int):
    """Permission bits, written in octal (``"0644"``)."""

    @classmethod
    def parse(cls, text: str) -> FileMode:
        """Read ``text``; ``ValueError`` says what is allowed."""
        try:
            mode = int(text, 8)
        except ValueError:
            mode = -1
        if not 0 <= mode <= 0o7777:
            raise ValueError(f'{text!r} is not a mode: write octal digits in quotes, as in "0644"')
        return cls(mode)

    def __str__(self) -> str:
        return f"{int(self):04o}"
