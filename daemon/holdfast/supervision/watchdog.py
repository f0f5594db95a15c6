"""The watchdog's side of the daemon: while the mount answers, the service manager is told that all is well.

Each turn asks through the mount (``mount_probe``), so it takes the event loop and the way from the kernel and back.
It takes no store and no disk: slow ones are no reason to replace a daemon. A manager that hears nothing for its
``WatchdogSec=`` (systemd.service(5)) kills the daemon and starts the next one, which takes over and finds the note.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import trio

from holdfast.supervision.mount_probe import WAS_STOPPED, MountProbe
from holdfast.supervision.service_manager import ServiceManager

_log = logging.getLogger("holdfast")
_TURNS = 4
"""The number of signs of life within the manager's time: one that is late is no alarm."""
_PATIENCE = 0.8
"""The share of the manager's time after which the note is written: before the daemon is killed."""


class Watchdog:
    """Gives the manager signs of life if it wants them. A note about a hang is left in the file ``note``."""

    def __init__(self, manager: ServiceManager, mountpoint: str, note: Path) -> None:
        self._manager = manager
        self._mountpoint = mountpoint
        self._note = note

    async def run(self) -> None:
        """Run until cancelled. The end of the daemon, which may have to wait for a store, is not watched."""
        seconds = self._manager.watchdog_seconds
        if seconds is None:
            return
        try:
            while True:
                await self._watch(seconds)
                _log.warning("the process that asks the mount was killed; starting another one")
        finally:
            self._manager.end_watch()

    async def _watch(self, seconds: float) -> None:
        """Give signs of life until the process that asks is killed, or can't be started."""
        try:
            probe = MountProbe(self._mountpoint, self._note, seconds * _PATIENCE)
        except OSError as problem:  # out of memory or processes: that the event loop turns is something
            _log.warning("can't start the process that asks the mount: %s", problem)
            self._manager.tell_alive()
            await trio.sleep(seconds / _TURNS)
            return
        try:
            while True:
                probe.ask()
                await trio.lowlevel.wait_readable(probe.channel)
                if not probe.has_answered():
                    return
                self._manager.tell_alive()
                await trio.sleep(seconds / _TURNS)
        except OSError:
            return
        finally:
            probe.close()


class Hang(NamedTuple):
    """The reason why a daemon was replaced. One that ``was_stopped`` would have gone on with what it was doing."""

    why: str
    was_stopped: bool


def taken(note: Path) -> Hang | None:
    """Return what the note says of the daemon before this one, and remove it; None if there is none."""
    try:
        why, _, more = note.read_text().partition("\n")
        note.unlink()
    except FileNotFoundError:
        return None
    return Hang(why, more == WAS_STOPPED)
