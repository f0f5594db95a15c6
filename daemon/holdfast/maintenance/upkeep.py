"""The sweeps of one daemon, put together: who sweeps which zone, where plans are kept, what is done regularly."""

from __future__ import annotations

import socket

import trio

from holdfast.checkpoints.reachability import Policy
from holdfast.checkpoints.sweeps.execution import StoreSweeps
from holdfast.checkpoints.sweeps.periodic import PeriodicSweeps, Sweeper
from holdfast.checkpoints.sweeps.plan_store import PlanStore
from holdfast.errors import ConfigurationError
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.swept import SweptObjects
from holdfast.workdirs import Workdirs, WorkdirSweeps

_SECOND_NS = 10**9


class Upkeep:
    """``sweeps`` are of the stores' zones, ``workdirs`` of the bases of working directories, ``sweepers`` has both by name.

    Raises ``ConfigurationError`` when ``[sweep]`` names what can't be swept.
    """

    def __init__(self, files: FileSystem, workdirs: Workdirs) -> None:
        core = files.core
        self.plan_store = PlanStore(core.store.path / "plans")
        self._stores = {name: remote.access for name, remote in core.remotes.items()}
        self._settings = core.config.sweep
        self._events = core.events
        local = SweptObjects(core, files.presence)
        self.sweeps = StoreSweeps(self._stores, self.plan_store, local, core.events, core.counters)
        self.workdirs = WorkdirSweeps(files, workdirs, self.plan_store)
        self.sweepers: dict[str, Sweeper] = {
            **dict.fromkeys(self.workdirs.zones, self.workdirs),
            **dict.fromkeys(self.sweeps.zones, self.sweeps),
        }
        self.policy()
        self._roots = self._checked_roots()

    async def run(self) -> None:
        """Sweep regularly, if that is switched on, until cancelled."""
        if not self._settings.every_seconds:
            await trio.sleep_forever()
        node = socket.gethostname()
        every_seconds = self._settings.every_seconds
        sweeps = PeriodicSweeps(self._stores, self.sweepers, self._roots, self.policy(), every_seconds, node, self._events)
        await sweeps.run()

    def policy(
        self,
        grace_seconds: float | None = None,
        abandoned_seconds: float | None = None,
        min_batches_to_retain: int | None = None,
    ) -> Policy:
        """Return the policy for a sweep; what is None is as configured. Raises ``ConfigurationError`` for what can't be.

        A grace age beyond the configured age of abandoned checkpoints raises that too.
        """
        settings = self._settings
        grace = settings.grace_seconds if grace_seconds is None else grace_seconds
        if abandoned_seconds is None:
            abandoned_seconds = (
                settings.abandoned_seconds if grace_seconds is None else max(grace, settings.abandoned_seconds)
            )
        batches = settings.min_batches_to_retain if min_batches_to_retain is None else min_batches_to_retain
        return Policy(int(grace * _SECOND_NS), int(abandoned_seconds * _SECOND_NS), batches)

    def _checked_roots(self) -> list[tuple[str, str]]:
        wanted = self._settings.roots or ["checkpoints", *sorted(self.workdirs.zones)]
        roots = [(zone, root) for zone, _, root in (each.strip("/").partition("/") for each in wanted)]
        for zone, _ in roots:
            if zone not in self.sweepers:
                allowed = ", ".join(sorted(self.sweepers))
                raise ConfigurationError(f"sweep.roots: there is no zone {zone!r}; allowed are {allowed}")
        return roots
