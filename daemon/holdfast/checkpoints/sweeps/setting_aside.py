"""Copies of what a rewind takes away, made before it does, in a directory of their own in the query's location.

There they stay until a sweep finds them old enough: the note that is written before the copies has the time that counts. A
rewind that is cut off while it copies has taken nothing away; the next try copies what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from holdfast.checkpoints.reachability import NOTE, Listed
from holdfast.checkpoints.sweeps.plan_format import Header, Item, StoredPlan
from holdfast.digest import fingerprint_of_buffer
from holdfast.errors import PlanOutdatedError
from holdfast.remote import UploadSource, key_below
from holdfast.transfer import RemoteAccess
from holdfast.transfer.several_at_once import for_each

_STEP = 64
_STEP_BYTES = 256 * 2**20


def check_nothing_lost(plan: StoredPlan, left: Collection[Item], directory: str, there: Collection[str]) -> None:
    """Raise ``PlanOutdatedError`` when something has gone that an earlier try of this plan has not set aside.

    Mostly another rewind has taken it. This rewind would then set aside only a part, and could not be undone.
    """
    still = {item.name for item in left}
    lost = next(
        (item.name for item in plan.items if item.name not in still and _copy(plan.header, directory, item) not in there),
        None,
    )
    if lost is not None:
        raise PlanOutdatedError(
            f"{lost} has gone since the plan {plan.header.id} was made, as after another rewind; "
            "nothing was touched, make a new plan"
        )


async def set_aside(
    access: RemoteAccess, header: Header, items: Sequence[Item], directory: str, sizes_bytes: Mapping[str, int]
) -> str:
    """Copy ``items`` below ``directory``, in a directory named like the plan; both are relative to the plan's root.

    ``sizes_bytes`` are of what is there, by name: copies among them are not made again. Returns the key of the directory
    with the copies. Raises ``RemoteError``.
    """
    below = f"{directory}/{header.id}"
    data = msgspec.json.encode(header) + b"\n"
    key, metadata = key_below(header.root, f"{below}/{NOTE.decode()}"), fingerprint_of_buffer(data).metadata()
    source = UploadSource(len(data), data=data)
    await access.retry().run(lambda: access.write_once(key, source, metadata, False))
    missing = [item for item in items if sizes_bytes.get(_copy(header, directory, item)) != item.size_bytes]
    pairs = ((key_below(header.root, item.name), key_below(header.root, _copy(header, directory, item))) for item in missing)
    await copy_all(access, pairs)
    return key_below(header.root, below)


def in_steps(objects: Iterable[Listed]) -> Iterator[list[Listed]]:
    """Divide objects that are to be copied into steps, after each of which somebody is told how far it is."""
    step: list[Listed] = []
    for each in objects:
        step.append(each)
        if len(step) == _STEP or sum(one.size_bytes for one in step) >= _STEP_BYTES:
            yield step
            step = []
    if step:
        yield step


async def copy_all(access: RemoteAccess, pairs: Iterable[tuple[str, str]]) -> None:
    """Copy objects within a store, several at once: pairs of source and target. Raises the first ``RemoteError``."""

    async def copy(pair: tuple[str, str]) -> None:
        await access.copy(*pair)

    await for_each(pairs, copy)


def _copy(header: Header, directory: str, item: Item) -> str:
    """Return the name of the copy of ``item``, relative to the plan's root."""
    return f"{directory}/{header.id}/{item.name}"
