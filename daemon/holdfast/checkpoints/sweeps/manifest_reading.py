"""Reading manifests from a store: several at once, up to the first that fails."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoints.manifests import Manifest
from holdfast.checkpoints.reachability import Wanted
from holdfast.checkpoints.sweeps.object_stream import read_object
from holdfast.remote import key_below
from holdfast.transfer import RemoteAccess
from holdfast.transfer.several_at_once import for_each


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
