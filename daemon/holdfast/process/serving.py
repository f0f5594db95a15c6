"""Serving a mount: the tasks of the daemon while it serves, and how it ends.

It can end for good, when the file system is unmounted or the daemon is stopped: then the mount goes too. Or it leaves the
mount to the next daemon: when it is asked to restart, and when it fails while somebody holds the mount's descriptor. The
requests under way are then abandoned; the kernel sends them to the next daemon.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import trio

from holdfast import __version__
from holdfast.checkpoints.formats import FORMATS
from holdfast.config import OnStop
from holdfast.control.server import ControlServer
from holdfast.errors import NotRestartableError
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.foundation import Foundation
from holdfast.fs.fuse.session import ServedMount
from holdfast.fs.takeover.reopening import Takeover
from holdfast.holdings import Gathering, Health, HeldStores, Publishing
from holdfast.index import Index
from holdfast.maintenance import Upkeep, drop_copies_of_moved_stores
from holdfast.maintenance.disk_watch import watch_disks
from holdfast.process.control_assembly import control_server
from holdfast.process.reload import Reload
from holdfast.process.standby_assembly import standbys
from holdfast.standbys import Standbys
from holdfast.supervision import restart_check
from holdfast.supervision.watchdog import Watchdog
from holdfast.telemetry import EventLog, LoopLag
from holdfast.telemetry.wakeups import sleep_within
from holdfast.ui.tcp import PageListener
from holdfast.workdirs import UsageWalks, Workdirs

_log = logging.getLogger("holdfast")
_SYNC_SECONDS = 15.0
_EXPIRY_SECONDS = 600.0
_LONGEST_STOP_SECONDS = 135.0
"""The time that requests under way have when the daemon is stopped: less than the unit's ``TimeoutStopSec``."""


class Serving:
    """Serves ``mount``, which is taken over if ``is_inherited``. Calls ``ready`` once it answers."""

    def __init__(
        self,
        base: Foundation,
        files: FileSystem,
        workdirs: Workdirs,
        mount: ServedMount,
        ready: Callable[[], None],
        reload: Reload,
        watchdog: Watchdog,
        *,
        is_inherited: bool,
    ) -> None:
        self.base = base
        self.files = files
        self.workdirs = workdirs
        self.mount = mount
        self.session, self.handover = mount.session, mount.handover
        self.ready = ready
        self.reload = reload
        self.watchdog = watchdog
        self.is_inherited = self._can_be_left = is_inherited
        self.wants_restart = self._is_leaving = False
        self._foreground: trio.Nursery | None = None
        self._lag = LoopLag()
        self._health = Health(base, mount, __version__)

    async def check_restart(self) -> None:
        """Check that another daemon could take the mount over.

        Raises ``NotRestartableError`` if the mount would end with this daemon, ``ConfigurationError`` if the next one would
        not start.
        """
        if not self.mount.outlives:
            raise NotRestartableError(f"the mount can't outlive the daemon ({self.mount.takeover})")
        await trio.to_thread.run_sync(restart_check.check, sys.orig_argv)

    def restart(self) -> None:
        """End soon and leave the mount: the service manager that holds it starts the daemon again."""
        self.wants_restart = True
        self._leave()

    async def run(self) -> None:
        """Serve until the daemon ends, either way. Cancellation and errors end it too."""
        try:
            await self._serve()
        except BaseException:
            self._is_leaving = self._can_be_left and self.handover.is_held
            raise
        finally:
            self._end()

    async def _serve(self) -> None:
        parts, workdirs = self.base.parts, self.workdirs
        upkeep = Upkeep(self.base, workdirs, self.files.hints)
        publishing = self._publishing()
        gathering = Gathering(publishing, publishing.stores, parts.config.holdings)
        standby_copies = standbys(self.base, gathering, publishing, lambda: self.reload.config)
        async with trio.open_nursery() as background:
            background.start_soon(parts.events.run)
            background.start_soon(self._lag.run)
            if self.handover.keeper is not None:
                background.start_soon(self.handover.keeper.run)
            await background.start(self.base.fetcher.run)
            takeover = Takeover(self.base, self.files)
            if self.is_inherited:
                await self._take_over(takeover)
            await drop_copies_of_moved_stores(self.base, os.environ)
            await background.start(self.files.run)
            takeover.finish()
            await background.start(workdirs.run)
            background.start_soon(UsageWalks(self.base, workdirs).run)
            background.start_soon(self.base.rooms.run)
            background.start_soon(_sync_regularly, parts.index, parts.events)
            background.start_soon(self._expire_quarantine)
            background.start_soon(watch_disks, self.base, workdirs)
            background.start_soon(upkeep.run)
            background.start_soon(publishing.run)
            background.start_soon(standby_copies.run)
            for remote in parts.remotes.values():
                background.start_soon(remote.deletions.run)
            page = PageListener(parts.config.ui, Path(parts.config.control.socket), parts.events)
            background.start_soon(page.run)
            async with trio.open_nursery() as self._foreground:
                self._foreground.start_soon(self._obey_signals)
                await self._foreground.start(
                    self._control(upkeep, gathering, standby_copies).run,
                    Path(parts.config.control.socket),
                    parts.config.control.group,
                    parts.config.metrics.listen,
                    parts.config.control.pods_socket,
                )
                self._foreground.start_soon(self._announce, takeover)
                await self.session.serve()
                self._foreground.cancel_scope.cancel()
            if not self._is_leaving:
                await publishing.finish()
            background.cancel_scope.cancel()

    async def _take_over(self, takeover: Takeover) -> None:
        began = time.monotonic()
        files = await takeover.run()
        seconds = round(time.monotonic() - began, 3)
        _log.info("took the mount over with %d open files, in %g s", files, seconds)
        self.base.parts.events.emit("taken-over", mountpoint=self.session.mountpoint, open_files=files, seconds=seconds)

    def _publishing(self) -> Publishing:
        parts = self.base.parts
        stores = {name: remote.access for name, remote in parts.remotes.items()}
        held = HeldStores(parts.index.entries, parts.store.tree, FORMATS, stores)
        return Publishing(
            held,
            stores,
            parts.config.holdings,
            parts.store.store_id,
            self._health.sends_state_away,
            self._health.for_others,
        )

    def _control(self, upkeep: Upkeep, gathering: Gathering, standby_copies: Standbys) -> ControlServer:
        return control_server(
            self.base,
            self.files,
            self.workdirs,
            self.mount,
            upkeep,
            gathering,
            standby_copies,
            self._lag,
            self._health,
            daemon=self,
            reload=self.reload,
        )

    async def _announce(self, takeover: Takeover) -> None:
        await self.session.wait_begun()
        self.base.parts.events.emit("mounted", mountpoint=self.session.mountpoint, pid=os.getpid())
        self._can_be_left = True
        self.ready()
        await takeover.prune()
        await self.watchdog.run()

    async def _obey_signals(self) -> None:
        assert self._foreground is not None
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                name = signal.Signals(number).name
                if number == signal.SIGHUP:
                    self._foreground.start_soon(self.reload.on_signal)
                elif self.mount.outlives and await trio.to_thread.run_sync(self._is_left_on_stop):
                    _log.info("leaving the mount to the next daemon on %s", name)
                    self._leave()
                else:
                    _log.info("stopping on %s; requests under way have %g s", name, _LONGEST_STOP_SECONDS)
                    self.session.stop()
                    end = self._foreground.cancel_scope
                    end.deadline = min(end.deadline, trio.current_time() + _LONGEST_STOP_SECONDS)

    async def _expire_quarantine(self) -> None:
        parts = self.base.parts
        while True:
            before = time.time() - self.reload.config.integrity.quarantine_seconds
            try:
                expired = await trio.to_thread.run_sync(parts.store.quarantine.expire, before)
            except OSError as problem:
                _log.warning("can't remove what has expired in quarantine: %s", problem)
            else:
                if expired:
                    parts.events.emit("quarantine-expired", files=expired)
            await sleep_within(_EXPIRY_SECONDS)

    def _is_left_on_stop(self) -> bool:
        """Say whether the mount is left to the next daemon now that this one is told to stop. Blocks."""
        if self.reload.config.mount.on_stop is OnStop.LEAVE and self.handover.is_kept and self.session.is_mounted:
            return True
        return self.handover.is_restarting()

    def _leave(self) -> None:
        assert self._foreground is not None
        self._is_leaving = True
        self._foreground.cancel_scope.cancel()

    def _end(self) -> None:
        if self._is_leaving:
            self.session.leave()
            self.base.parts.events.emit("left-to-next")
        else:
            self.session.close()
            self.handover.end()
            unsent = self.files.unsent.below(b"")
            if unsent:
                _log.warning("files that no store has yet, kept in %s: %d", self.base.parts.store.path, len(unsent))
            self.base.parts.events.emit("stopped", unsent=len(unsent))
        self.files.end(for_good=not self._is_leaving)


async def _sync_regularly(index: Index, events: EventLog) -> None:
    """Sync the index now and then. That is also how the daemon learns that its disk takes no writes any more."""
    while True:
        await sleep_within(_SYNC_SECONDS)
        could_write = index.takes_writes
        await trio.to_thread.run_sync(index.sync)
        can_write = index.takes_writes
        if could_write and not can_write:
            events.emit("disk-takes-no-writes")
        elif can_write and not could_write:
            events.emit("disk-takes-writes-again")
