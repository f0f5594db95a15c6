"""The first read of a large object: through the mount, into the cache; and by a bare GET, into a file on the same disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import obstore
from obstore.store import LocalStore, ObjectStore, S3Store

from tests.benchmarks.report import Goal, Unit
from tests.benchmarks.rows import Row, Scale, Site, Target, Values, seconds_of
from tests.benchmarks.targets import Sides

_OBJECT = "object"
_READ_BYTES = 2**20
_GET_BYTES = 2**23


def rows(sides: Sides, scale: Scale) -> list[Row]:
    """Return the rows."""
    through = Target("blobs", sides.node.blobs, sides.node.blobs, f"holdfast: blobs over {_kind(sides)}", ours=True)
    bare = Target("GET", sides.directory, sides.directory, f"obstore.get of the same object over {_kind(sides)}, to a file")
    store = _store(sides)
    actions = {through.name: partial(_through_mount, sides), bare.name: partial(_bare_get, store)}
    return [
        Row(
            name="first-read",
            what=f"first read of an object of {scale.object_bytes // 2**20} MiB over {_kind(sides)}",
            unit=Unit.MIB_PER_SECOND,
            targets=(through, bare),  # the first to be set up makes the object
            setup=_put,
            action=lambda site: actions[site.target.name](site),
            fresh=False,
            goals={through.name: Goal(peer=bare.name, at_least=0.8)},
        )
    ]


def _put(site: Site) -> None:
    """Make the site's directory; in the blob zone, with the object, so that it has its digest in the store."""
    site.front.mkdir()
    if not site.target.ours:
        return
    with (site.front / _OBJECT).open("wb", buffering=0) as file:
        for _ in range(site.scale.object_bytes // _READ_BYTES):
            file.write(os.urandom(_READ_BYTES))


def _through_mount(sides: Sides, site: Site) -> Values:
    path = site.front / _OBJECT
    with sides.node.client() as client:
        for _ in client.evict(str(path)):
            pass
    return _speed(site, partial(_read_whole, path))


def _bare_get(store: ObjectStore, site: Site) -> Values:
    copy = site.front / _OBJECT
    copy.unlink(missing_ok=True)
    return _speed(site, partial(_get, store, f"{site.front.name}/{_OBJECT}", copy))


def _speed(site: Site, action: Callable[[], int]) -> Values:
    size_bytes = 0

    def counted() -> None:
        nonlocal size_bytes
        size_bytes = action()

    seconds = seconds_of(counted)
    assert size_bytes == site.scale.object_bytes, f"{size_bytes} bytes came"
    return {"": size_bytes / 2**20 / seconds}


def _read_whole(path: Path) -> int:
    buffer = bytearray(_READ_BYTES)
    total = 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            total += count
    return total


def _get(store: ObjectStore, key: str, copy: Path) -> int:
    with copy.open("wb", buffering=0) as file:
        for buffer in obstore.get(store, key).stream(min_chunk_size=_GET_BYTES):
            file.write(buffer)
    return copy.stat().st_size


def _kind(sides: Sides) -> str:
    return "S3 (versitygw)" if sides.server else "file:// (there is no versitygw, and no Go to build it with)"


def _store(sides: Sides) -> ObjectStore:
    if sides.server is None:
        return LocalStore(sides.node.directory / "remote" / "blobs")
    server = sides.server
    return S3Store(
        server.bucket,
        prefix=server.below("blobs").prefix,
        endpoint=server.endpoint,
        region=server.region,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        client_options={"allow_http": True},
    )
