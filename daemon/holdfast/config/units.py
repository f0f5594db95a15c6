"""Byte sizes, file modes and addresses as people write them: ``"20GiB"``, ``"0644"``, ``":9464"``."""

from __future__ import annotations

import ipaddress
import re
from fractions import Fraction

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_BINARY_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) *([kmgt]i?)?b?", re.IGNORECASE)
_MODE = re.compile(r"(?:0o|0)?[0-7]{1,4}")
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<four>[0-9.]*)):(?P<port>[0-9]{1,5})")
_LOOPBACK = "127.0.0.1"
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


class TcpAddress(str):
    """An IP address and a port, as in ``127.0.0.1:9464`` and ``[::1]:9464``; ``:9464`` is the former. Empty: none."""

    __slots__ = ()
    ALLOWED = "an IP address and a port, as in 127.0.0.1:9464, [::1]:9464, or :9464 for this machine alone; empty for none"

    @classmethod
    def parse(cls, value: object) -> TcpAddress:
        """Parse a text. Raises ``ValueError``, which says what is allowed."""
        match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
        if value == "":
            return cls()
        if match is None or not 0 < int(match["port"]) < 2**16:
            raise ValueError(f"{value!r} is not an address: write {cls.ALLOWED}")
        host = ipaddress.ip_address(match["six"] or match["four"] or _LOOPBACK)
        return cls(f"[{host}]:{match['port']}" if host.version == 6 else f"{host}:{match['port']}")

    @property
    def parts(self) -> tuple[str, int]:
        """The address and the port. Ask this only of an address that is not empty."""
        host, _, port = self.rpartition(":")
        return host.strip("[]"), int(port)
