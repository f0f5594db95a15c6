"""An object read whole; and compared with the digest that was stored with it. Blocks; Spark's executors run it too."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator

from holdfast.digest import Checksum, Fingerprint, Hasher
from holdfast.errors import NameNotStorableError, ObjectChangedError, ObjectMissingError, RemoteRefusedError
from holdfast.remote import ObjectInfo, RemoteStore


class Outcome(enum.Enum):
    """The result for one object."""

    INTACT = "intact"
    CORRUPT = "corrupt"
    WITHOUT_DIGEST = "without digest"
    """The object was written by another program, or the store keeps no metadata."""
    REPLACED = "replaced since"
    GONE = "gone since"
    REFUSED = "refused"
    """The store does not let us read it."""


def content(store: RemoteStore, key: str, most_bytes: int) -> bytes:
    """Return the first bytes of an object, all of a small one. Raises ``RemoteError``."""
    return b"".join(store.read(key, 0, most_bytes, "").buffers)


def checked(
    store: RemoteStore, key: str, size_bytes: int, etag: str, take: Callable[[int], object] = int
) -> tuple[Outcome, str]:
    """Read one version of an object and compare; nothing is read of one without a digest. Raises ``RemoteError``.

    ``take`` is called with the size of each piece: it may wait.
    """
    try:
        body = store.read(key, 0, size_bytes, etag)
        expected = Fingerprint.from_metadata(body.info.metadata, size_bytes)
        if expected is None:
            return Outcome.WITHOUT_DIGEST, ""
        hasher = Hasher(size_bytes)
        for buffer in body.buffers:
            take(len(buffer))
            hasher.update(buffer)
        found = hasher.finish()
        if found.digest != expected.digest and _is_stale(store, body.info, take):
            return Outcome.INTACT, ""
    except ObjectChangedError:
        return Outcome.REPLACED, ""
    except (ObjectMissingError, NameNotStorableError):
        return Outcome.GONE, ""
    except RemoteRefusedError as problem:
        return Outcome.REFUSED, str(problem)
    if found.digest != expected.digest:
        return Outcome.CORRUPT, f"expected {expected.digest.hex()}, found {found.digest.hex()}"
    return Outcome.INTACT, ""


def _is_stale(store: RemoteStore, info: ObjectInfo, take: Callable[[int], object]) -> bool:
    """Say whether the object has the MD5 that its ETag says, so that its digest is of earlier bytes. Reads it again."""
    md5 = Checksum.of_etag(info.etag)
    if md5 is None:
        return False

    def buffers() -> Iterator[bytes]:
        for buffer in store.read(info.key, 0, info.size_bytes, info.etag).buffers:
            take(len(buffer))
            yield buffer

    return md5.fits_all(buffers())
