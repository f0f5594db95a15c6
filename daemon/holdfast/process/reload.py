"""Reloading the configuration of a running daemon: what can be taken is taken, the rest is named."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from holdfast.capacity import Limits
from holdfast.config import Config, Reloaded, reloaded
from holdfast.errors import HoldfastError
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.foundation import Foundation
from holdfast.telemetry import OperationFeed, follow_log_level
from holdfast.workdirs import Workdirs

_log = logging.getLogger("holdfast")


class Reload:
    """Reloads the configuration; ``config`` is the one in force.

    ``read`` reads it anew from all its sources, checks it as a start does, and raises ``HoldfastError``; it blocks.
    """

    def __init__(
        self, read: Callable[[], Config], base: Foundation, files: FileSystem, workdirs: Workdirs, feed: OperationFeed
    ) -> None:
        self.config = base.parts.config
        self._read = read
        self._base = base
        self._files = files
        self._workdirs = workdirs
        self._feed = feed
        self._events = base.parts.events
        self._one_at_a_time = trio.Lock()

    async def now(self) -> Reloaded:
        """Read the configuration again and put in force what can be. Raises ``HoldfastError``; nothing has changed then."""
        async with self._one_at_a_time:
            found = await self._compared()
            self._put_in_force(found.config)
        taken, left = ", ".join(found.taken), ", ".join(found.left)
        _log.info("configuration reloaded; taken: %s; needs a restart: %s", taken or "nothing new", left or "nothing")
        self._events.emit("configuration-reloaded", taken=taken, needs_restart=left)
        return found

    async def compared(self) -> Reloaded:
        """Read the configuration again and change nothing: return what ``now`` would do. Raises ``HoldfastError``."""
        async with self._one_at_a_time:
            return await self._compared()

    async def _compared(self) -> Reloaded:
        wanted = await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)
        return reloaded(self.config, wanted)

    async def on_signal(self) -> None:
        """Do as ``now`` does; only log and events tell of an error."""
        try:
            await self.now()
        except HoldfastError as problem:
            _log.warning("the configuration stays as it is: %s", problem)
            self._events.emit("configuration-refused", problem=str(problem))

    def _put_in_force(self, config: Config) -> None:
        self.config = config
        self._base.rooms.set_limits(Limits.configured(config.cache))
        self._base.ttl.configure(config.remote)
        self._files.scrubber.set_rate(int(config.integrity.scrub_bytes_per_second))
        self._files.open_limits.set_per_user(config.limits.open_files_per_user)
        self._workdirs.configure(config)
        for name, remote in self._base.parts.remotes.items():
            limits = config.stores[name]
            remote.access.limit(limits.upload_bytes_per_second, limits.download_bytes_per_second, limits.requests_per_second)
        logging.getLogger().setLevel(config.log.level.upper())
        follow_log_level(self._feed)
