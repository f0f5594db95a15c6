"""Background tasks that a request starts and that do not delay its reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


class Background:
    """A nursery in which any part may start a task while ``run`` runs."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, which cancels all tasks too."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def start_soon(self, action: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task in the background."""
        assert self._nursery is not None, "the file system is not running"
        self._nursery.start_soon(action, *arguments)
