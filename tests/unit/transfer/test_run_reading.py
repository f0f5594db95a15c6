"""The parts of a run that a thread tells of, as the event loop knows them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from holdfast.digest import Fingerprint
from holdfast.errors import ObjectChangedError
from holdfast.remote import ObjectInfo
from holdfast.transfer.partial_fetch import PartRun
from holdfast.transfer.run_reading import Arrivals

_INFO = ObjectInfo("key", 100, "etag", 0, {})
_CORRUPT, _OF_ANOTHER_VERSION = 2, 3


class _Fetch:
    """Notes the parts that are checked."""

    def __init__(self) -> None:
        self.checked: list[int] = []
        self.known = SimpleNamespace(size_bytes=100)
        access = SimpleNamespace(waiting_beside=lambda _: 0)
        self.target = SimpleNamespace(remote=SimpleNamespace(access=access))

    def part_checked(self, part: int, found: Fingerprint, expected: Fingerprint | None) -> bool:
        del found, expected
        self.checked.append(part)
        if part == _OF_ANOTHER_VERSION:
            raise ObjectChangedError("another version")
        return part != _CORRUPT


def _arrivals() -> tuple[_Fetch, Arrivals]:
    fetch: Any = _Fetch()
    return fetch, Arrivals(fetch, PartRun(range(4)))


async def test_a_part_is_checked_while_the_thread_goes_on() -> None:
    fetch, arrivals = _arrivals()
    await trio.to_thread.run_sync(arrivals.tell, 0, Fingerprint(b""), _INFO)
    await trio.testing.wait_all_tasks_blocked()
    assert fetch.checked == [0]


async def test_what_is_told_last_is_known_though_the_end_of_the_thread_overtakes_it() -> None:
    fetch, arrivals = _arrivals()
    for part in (0, 1, _CORRUPT):
        arrivals.tell(part, Fingerprint(b""), _INFO)
    assert arrivals.corrupt() == [_CORRUPT]
    assert fetch.checked == [0, 1, _CORRUPT]
    await trio.testing.wait_all_tasks_blocked()
    assert fetch.checked == [0, 1, _CORRUPT], "each is checked once"


async def test_the_error_of_the_last_part_is_raised() -> None:
    _, arrivals = _arrivals()
    arrivals.tell(_OF_ANOTHER_VERSION, Fingerprint(b""), _INFO)
    with pytest.raises(ObjectChangedError):
        arrivals.corrupt()
