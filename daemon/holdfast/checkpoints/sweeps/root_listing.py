"""One listing of a root: everything below it, with the store's own time, and the versions of all objects."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.checkpoints.reachability import Listed
from holdfast.remote import DirectoryInfo, ObjectInfo
from holdfast.transfer import RemoteAccess


@dataclass(frozen=True, slots=True)
class RootListing:
    """``began_ns`` is by the store's clock; names are relative to the root."""

    began_ns: int
    listing: list[Listed]
    etags: dict[bytes, str]


async def list_root(access: RemoteAccess, root: str) -> RootListing:
    """List the whole root (``""``: the store, with its staged objects). Raises ``RemoteError``; a part is never returned.

    Costs one LIST for each thousand objects, and two requests for the clock.
    """
    began_ns = await access.now_ns()
    found = await access.list_all(root)
    skip = len(root) + 1 if root else 0
    listing = [_listed(info, info.key[skip:].encode(), began_ns) for info in found]
    etags = {info.key[skip:].encode(): info.etag for info in found if isinstance(info, ObjectInfo)}
    return RootListing(began_ns, listing, etags)


def _listed(info: ObjectInfo | DirectoryInfo, name: bytes, began_ns: int) -> Listed:
    """Return what was listed as judges know it. An object without a time counts as new: it never grows old, and so stays."""
    time_ns = info.modified_ns or began_ns
    if isinstance(info, DirectoryInfo):
        return Listed(name, 0, time_ns, is_directory=True)
    return Listed(name, info.size_bytes, time_ns)
