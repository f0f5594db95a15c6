"""Manifests read from the store, several at once."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from holdfast.checkpoints.manifests import Manifest
from holdfast.checkpoints.reachability import Wanted
from holdfast.checkpoints.sweeps.object_stream import read_object
from holdfast.errors import RemoteError
from holdfast.remote import key_below
from holdfast.transfer import RemoteAccess

_PARALLEL = 8


async def read_all(access: RemoteAccess, root: str, wanted: Iterable[Wanted]) -> dict[bytes, Manifest]:
    """Read manifests, whose names are relative to ``root``.

    One that has gone, or is replaced while it is read, is answered by ``Unreadable``. Raises ``RemoteError`` when the store
    does not answer for long.
    """
    answers: dict[bytes, Manifest] = {}
    problems: list[RemoteError] = []
    waiting = iter(wanted)

    async def work() -> None:
        try:
            for each in waiting:
                key = key_below(root, each.name.decode())
                answers[each.name] = await access.read(read_object, access.store, key, each)
        except RemoteError as problem:
            problems.append(problem)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for _ in range(_PARALLEL):
            nursery.start_soon(work)
    if problems:
        raise problems[0]
    return answers
