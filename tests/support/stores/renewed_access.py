"""Reading through the retries of a store whose credentials have expired, until somebody renews them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from holdfast.remote import RemoteStore
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import RemoteAccess


async def read_when_renewed(
    store: RemoteStore, read: Callable[[], bytes], renew: Callable[[], Awaitable[None]], deadline_seconds: float
) -> tuple[bytes, list[str]]:
    """Return what ``read`` returns, in the end, and the kinds of all events; ``renew`` is called after the first of them."""
    events = EventLog(lambda: 0.0)
    access = RemoteAccess(
        "checkpoints",
        store,
        deadline_seconds=deadline_seconds,
        parallel=2,
        events=events,
        counters=Counters(),
        clock=lambda: 0.0,
    )

    async def renew_in_time() -> None:
        await events.wait_beyond(0)
        await renew()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(renew_in_time)
        found = await access.read(read)
    return found, [event.kind for event in events.since(0)]
