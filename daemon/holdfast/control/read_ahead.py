"""Work on files that are found while it goes on: how many there are is known some thousands ahead of the work."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

_T = TypeVar("_T")
_AHEAD = 10_000


class ReadAhead(Generic[_T]):
    """Takes from ``items``. ``found`` counts what was found so far; ``waiting`` was found and not taken yet."""

    def __init__(self, items: AsyncIterator[_T]) -> None:
        self._items = items
        self._is_at_end = False
        self.found = 0
        self.waiting: deque[_T] = deque()

    async def take(self, most: int) -> list[_T]:
        """Return the next ``most`` items, fewer at the end, and none after it."""
        while len(self.waiting) < _AHEAD and not self._is_at_end:
            try:
                self.waiting.append(await anext(self._items))
            except StopAsyncIteration:
                self._is_at_end = True
            else:
                self.found += 1
        return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
