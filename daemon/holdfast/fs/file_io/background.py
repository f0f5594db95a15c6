"""What goes on after the reply: tasks that are started by a request and don't hold up its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


class Background:
    """A nursery that any part may start a task in, as long as ``run`` runs."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; tasks that are under way are given up then."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def start_soon(self, action: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Do something in the background."""
        assert self._nursery is not None, "the file system is not running"
        self._nursery.start_soon(action, *arguments)
