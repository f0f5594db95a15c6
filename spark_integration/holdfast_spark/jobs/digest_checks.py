"""What executors check of a scrub: that each object's bytes are those that its digest was made of."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from holdfast.digest import Fingerprint, Hasher
from holdfast.errors import NameNotStorableError, ObjectChangedError, ObjectMissingError, RemoteRefusedError
from holdfast_spark.arrow_forms import OBJECTS, Form
from holdfast_spark.jobs.rate_limit import Pace
from holdfast_spark.stores import RemoteStore, StoreAddress, in_parallel, patiently

CHECKED = Form(key="string", size_bytes="bigint", etag="string", outcome="string", detail="string")
_PARALLEL = 4


class Outcome(enum.Enum):
    """What came out for one object."""

    INTACT = "intact"
    CORRUPT = "corrupt"
    WITHOUT_DIGEST = "without digest"
    """Put there by another program, or in a store that keeps no metadata."""
    REPLACED = "replaced since"
    GONE = "gone since"
    REFUSED = "refused"
    """The store does not let us read it."""


class Checker:
    """Checks objects of a store, with its share of the rates. Travels to executors."""

    def __init__(self, address: StoreAddress, bytes_per_second: float | None, objects_per_second: float | None) -> None:
        self._address = address
        self._bytes_per_second = bytes_per_second
        self._objects_per_second = objects_per_second

    def check(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Check one task's objects (``OBJECTS`` in, ``CHECKED`` out). Raises ``RemoteUnavailableError``."""
        store = self._address.open()
        objects, data = Pace(self._objects_per_second), Pace(self._bytes_per_second)
        rows = ((row[0], row[1], row[3]) for batch in batches for row in OBJECTS.rows(batch))

        def check(row: tuple[str, int, str]) -> tuple[Any, ...]:
            objects.take(1)
            outcome, detail = patiently(lambda: checked(store, *row, data))
            return *row, outcome.value, detail

        yield from CHECKED.batches(in_parallel(check, rows, _PARALLEL))


def checked(store: RemoteStore, key: str, size_bytes: int, etag: str, pace: Pace) -> tuple[Outcome, str]:
    """Read one version of an object and compare; nothing is read of one without a digest. Raises ``RemoteError``."""
    try:
        body = store.read(key, 0, size_bytes, etag)
        expected = Fingerprint.from_metadata(body.info.metadata, size_bytes)
        if expected is None:
            return Outcome.WITHOUT_DIGEST, ""
        hasher = Hasher(size_bytes)
        for buffer in body.buffers:
            pace.take(len(buffer))
            hasher.update(buffer)
    except ObjectChangedError:
        return Outcome.REPLACED, ""
    except (ObjectMissingError, NameNotStorableError):
        return Outcome.GONE, ""
    except RemoteRefusedError as problem:
        return Outcome.REFUSED, str(problem)
    found = hasher.finish()
    if found.digest != expected.digest:
        return Outcome.CORRUPT, f"expected {expected.digest.hex()}, found {found.digest.hex()}"
    return Outcome.INTACT, ""
