"""What a rewind takes away is copied first, into a directory of its own in the query's location.

There it stays until a sweep finds it old enough: the note that is written before the copies has the time that counts. A
rewind that is cut off while it copies has taken nothing away; the next try copies what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import trio

from holdfast.checkpoints.sweeps.plan_format import Header, Item
from holdfast.digest import fingerprint_of_buffer
from holdfast.errors import RemoteError
from holdfast.remote import UploadSource, key_below
from holdfast.transfer import RemoteAccess

_NOTE = "rewind.json"
_PARALLEL = 8


async def set_aside(
    access: RemoteAccess, header: Header, items: Sequence[Item], directory: str, sizes_bytes: Mapping[str, int]
) -> None:
    """Copy ``items`` below ``directory``, in a directory named like the plan; both are relative to the plan's root.

    ``sizes_bytes`` are of what is there, by name: copies among them are not made again. Raises ``RemoteError``.
    """
    below = f"{directory}/{header.id}"
    data = msgspec.json.encode(header) + b"\n"
    key, metadata = key_below(header.root, f"{below}/{_NOTE}"), fingerprint_of_buffer(data).metadata()
    source = UploadSource(len(data), data=data)
    await access.retry().run(lambda: access.write_once(key, source, metadata, False))
    missing = [item for item in items if sizes_bytes.get(f"{below}/{item.name}") != item.size_bytes]
    pairs = ((key_below(header.root, item.name), key_below(header.root, f"{below}/{item.name}")) for item in missing)
    await copy_all(access, pairs)


async def copy_all(access: RemoteAccess, pairs: Iterator[tuple[str, str]]) -> None:
    """Copy objects within a store, several at once: pairs of source and target. Raises the first ``RemoteError``."""
    problems: list[RemoteError] = []

    async def work() -> None:
        try:
            for source, target in pairs:
                await access.copy(source, target)
        except RemoteError as problem:
            problems.append(problem)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for _ in range(_PARALLEL):
            nursery.start_soon(work)
    if problems:
        raise problems[0]
