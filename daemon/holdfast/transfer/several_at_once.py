"""Work on many objects of a store: several at once, up to the first that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from holdfast.errors import RemoteError

_AT_ONCE = 8
_T = TypeVar("_T")


async def for_each(items: Iterable[_T], work: Callable[[_T], Awaitable[object]], at_once: int = _AT_ONCE) -> None:
    """Do ``work`` for each of ``items``, ``at_once`` at a time. The first ``RemoteError`` ends all, and is raised."""
    problems: list[RemoteError] = []
    waiting = iter(items)

    async def take_turns() -> None:
        try:
            for item in waiting:
                await work(item)
        except RemoteError as problem:
            problems.append(problem)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(take_turns)
    if problems:
        raise problems[0]
