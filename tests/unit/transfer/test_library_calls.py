"""Calls to a store that never come back: they are given up, and hold up nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import trio

from holdfast.errors import RemoteUnavailableError
from holdfast.remote.life_signs import sign_of_life
from holdfast.transfer import library_calls
from holdfast.transfer.library_calls import FairSlots, LibraryCalls

_REQUEST_SECONDS = 0.05


class Library:
    """A library whose calls hang until the test ends; ``done`` has what they did then."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.released = threading.Event()
        self.ended = threading.Semaphore(0)
        self.done: list[str] = []

    def hang(self) -> None:
        self._wait()

    def hang_and_rename(self) -> None:
        try:
            self._wait()
            sign_of_life()
            self.done.append("renamed")
        finally:
            self.ended.release()

    def send_much(self) -> str:
        sign_of_life(2**50)
        self._wait()
        return "sent"

    def _wait(self) -> None:
        self.begun.release()
        self.released.wait()


@pytest.fixture
def library() -> Iterator[Library]:
    """A library that hangs until the test ends."""
    library = Library()
    yield library
    library.released.set()


@pytest.fixture
def calls() -> LibraryCalls:
    """The calls to one store."""
    return LibraryCalls("checkpoints", _REQUEST_SECONDS, 2)


async def given_up(calls: LibraryCalls, function: Callable[[], object], slots: FairSlots) -> None:
    """Make a call and see that it is given up."""
    with pytest.raises(RemoteUnavailableError, match="GET to checkpoints: its library has not come back for"):
        await calls.run("GET", function, slots)


async def test_a_call_that_does_not_come_back_is_given_up_and_its_slot_is_free(
    calls: LibraryCalls, library: Library
) -> None:
    slots = FairSlots(1)
    await given_up(calls, library.hang, slots)
    assert await calls.run("GET", lambda: "answered", slots) == "answered"


async def test_a_cancelled_call_that_does_not_come_back_frees_its_slot_too(calls: LibraryCalls, library: Library) -> None:
    slots = FairSlots(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.run, "GET", library.hang, slots)
        await trio.to_thread.run_sync(library.begun.acquire)
        nursery.cancel_scope.cancel()
    assert await calls.run("GET", lambda: "answered", slots) == "answered"


async def test_a_call_that_was_given_up_changes_nothing_when_it_comes_back(calls: LibraryCalls, library: Library) -> None:
    await given_up(calls, library.hang_and_rename, FairSlots(1))
    library.released.set()
    await trio.to_thread.run_sync(library.ended.acquire)
    assert library.done == []


async def test_a_call_that_sends_much_has_the_time_for_it(calls: LibraryCalls, library: Library) -> None:
    slots, sent = FairSlots(2), list[str]()

    async def send() -> None:
        sent.append(await calls.run("PUT", library.send_much, slots))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.to_thread.run_sync(library.begun.acquire)
        await given_up(calls, library.hang, slots)
        library.released.set()
    assert sent == ["sent"]


async def test_no_more_threads_are_lost_than_a_number(
    calls: LibraryCalls, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_calls, "_MOST_LOST", 2)
    slots = FairSlots(1)
    for _ in range(2):
        await given_up(calls, library.hang_and_rename, slots)
    with pytest.raises(RemoteUnavailableError, match="2 earlier calls to its library have not come back"):
        await calls.run("GET", lambda: "answered", slots)
    library.released.set()
    for _ in range(2):
        await trio.to_thread.run_sync(library.ended.acquire)
    with trio.fail_after(60):
        while True:
            try:
                assert await calls.run("GET", lambda: "answered", slots) == "answered"
                break
            except RemoteUnavailableError:  # the event loop has not heard of the threads yet
                await trio.lowlevel.checkpoint()
