"""The last operations that took long, whether anybody watched or not, so that one can ask afterwards why they did."""

from __future__ import annotations

from collections import deque
from itertools import islice

from holdfast.telemetry.operation_feed import Observed

SLOW_NS = 50_000_000
_KEPT = 1000


class SlowOperations:
    """Keeps the last thousand that took ``SLOW_NS`` or longer."""

    def __init__(self) -> None:
        self._kept: deque[Observed] = deque(maxlen=_KEPT)

    def add(self, operation: Observed) -> None:
        """Keep an operation."""
        self._kept.append(operation)

    def about(self, path: bytes, most: int) -> list[Observed]:
        """Return the last ones, newest first, about ``path`` or what is below it (``b""``: all)."""
        return list(islice((each for each in reversed(self._kept) if _concerns(each, path)), most))


def _concerns(operation: Observed, path: bytes) -> bool:
    below = path + b"/" if path else b""
    names = filter(None, (operation.path, operation.target))
    return any(name == path or name.startswith(below) for name in names)
