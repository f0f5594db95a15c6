"""How far away a store is, and how much the line to it carries: ``30`` or ``30:1000``, in milliseconds and Mbit/s."""

from __future__ import annotations

from dataclasses import dataclass

_BITS = 8


@dataclass(frozen=True)
class StoreLine:
    """A line to the store: a round trip takes ``milliseconds``; 0 ``megabits`` a second: as much as there is."""

    milliseconds: float = 30.0
    megabits: float = 0.0

    @classmethod
    def parse(cls, text: str) -> StoreLine:
        """Read ``MS`` or ``MS:MBIT``. Raises ``ValueError``."""
        milliseconds, _, megabits = text.partition(":")
        return cls(float(milliseconds), float(megabits or 0))

    @property
    def name(self) -> str:
        """How targets are named after it."""
        return f"{self.milliseconds:g}ms" + (f"-{self.megabits:g}mbit" if self.megabits else "")

    @property
    def away_seconds(self) -> float:
        """The delay each way."""
        return self.milliseconds / 2000

    @property
    def bytes_per_second(self) -> int:
        """What the line carries each way; 0: no limit."""
        return int(self.megabits * 1e6 / _BITS)

    def __str__(self) -> str:
        return f"{self.milliseconds:g} ms away" + (f", {self.megabits:g} Mbit/s" if self.megabits else "")
