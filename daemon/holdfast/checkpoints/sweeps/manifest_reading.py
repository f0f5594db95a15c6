"""Work on many objects of a store, such as reading manifests: several at once, up to the first that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from holdfast.checkpoints.manifests import Manifest
from holdfast.checkpoints.reachability import Wanted
from holdfast.checkpoints.sweeps.object_stream import read_object
from holdfast.errors import RemoteError
from holdfast.remote import key_below
from holdfast.transfer import RemoteAccess

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


async def read_all(access: RemoteAccess, root: str, wanted: Iterable[Wanted]) -> dict[bytes, Manifest]:
    """Read manifests, whose names are relative to ``root``.

    One that has gone, or is replaced while it is read, is answered by ``Unreadable``. Raises ``RemoteError`` when the store
    does not answer for long.
    """
    answers: dict[bytes, Manifest] = {}

    async def read(each: Wanted) -> None:
        key = key_below(root, each.name.decode())
        answers[each.name] = await access.read(read_object, access.store, key, each)

    await for_each(wanted, read)
    return answers
