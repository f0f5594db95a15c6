"""Assembly of one daemon's sweeps: the sweeper of each zone, the stored plans, and periodic sweeps."""

from __future__ import annotations

import logging
import socket

import trio

from holdfast.checkpoints.configured import sweep_policy, sweep_roots
from holdfast.checkpoints.reachability import Policy
from holdfast.checkpoints.restoring.cloning import Clones, Originals
from holdfast.checkpoints.restoring.rewinding import Rewinds, Undoing
from holdfast.checkpoints.restoring.verifying import StoreVerification
from holdfast.checkpoints.sweeps.execution import StoreSweeps
from holdfast.checkpoints.sweeps.periodic import PeriodicSweeps, Sweeper
from holdfast.checkpoints.sweeps.plan_store import PlanStore
from holdfast.fs.foundation import Foundation
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.remote_view.deleted_objects import DeletedObjects
from holdfast.maintenance.changed_zones import remains
from holdfast.workdirs import Workdirs, WorkdirSweeps

_log = logging.getLogger("holdfast.maintenance")


class Upkeep:
    """The sweeps of a daemon: ``sweeps`` of stores, ``workdirs`` of working directories, ``sweepers`` of both by zone.

    Raises ``ConfigurationError`` if ``[sweep]`` names a zone that can't be swept.
    """

    def __init__(self, base: Foundation, workdirs: Workdirs, hints: CreateHints) -> None:
        parts = base.parts
        self.plan_store = PlanStore(parts.store.path / "plans")
        self._stores = {name: remote.access for name, remote in parts.remotes.items()}
        self._parts = parts
        self._settings = parts.config.sweep
        self._events = parts.events
        local = DeletedObjects(base, hints)
        self.sweeps = StoreSweeps(self._stores, self.plan_store, local, parts.events, parts.counters)
        self.verification = StoreVerification(self._stores)
        self.clones = Clones(self._stores, Originals(self._stores, self.verification), local)
        self.rewinds = Rewinds(self.verification, self.sweeps)
        self.undoing = Undoing(self._stores, local)
        self.workdirs = WorkdirSweeps(base, workdirs, self.plan_store)
        self.sweepers: dict[str, Sweeper] = {
            **dict.fromkeys(self.workdirs.zones, self.workdirs),
            **dict.fromkeys(self.sweeps.zones, self.sweeps),
        }
        self._roots = sweep_roots(parts.config)

    async def run(self) -> None:
        """Report the remains of unconfigured zones; then sweep periodically if that is switched on."""
        await self._tell_of_remains()
        if not self._settings.every_seconds:
            await trio.sleep_forever()
        node = socket.gethostname()
        every_seconds = self._settings.every_seconds
        sweeps = PeriodicSweeps(
            self._stores,
            self.sweepers,
            self.sweeps.plan_leftovers,
            self._roots,
            self.policy(),
            every_seconds,
            node,
            self._events,
        )
        await sweeps.run()

    def policy(
        self,
        grace_seconds: float | None = None,
        abandoned_seconds: float | None = None,
        min_batches_to_retain: int | None = None,
    ) -> Policy:
        """Return the policy for a sweep, with configured values for None. Raises ``ConfigurationError`` for invalid values.

        A grace age beyond the configured age of abandoned checkpoints counts for the latter too.
        """
        settings = self._settings
        if abandoned_seconds is None and grace_seconds is not None:
            abandoned_seconds = max(grace_seconds, settings.abandoned_seconds)
        return sweep_policy(settings, grace_seconds, abandoned_seconds, min_batches_to_retain)

    async def _tell_of_remains(self) -> None:
        parts = self._parts
        found = await trio.to_thread.run_sync(remains, parts.store.tree, parts.index, parts.zones)
        for name, each in found.items():
            self._events.emit(
                "zone-not-configured", zone=name, files=each.files, unsent=each.unsent, deletions=each.deletions
            )
            if each.unsent or each.deletions:
                _log.warning(
                    "%s is not configured any more, and %d files and %d deletions were not sent; set stores.%s.url again, "
                    "or workdirs.base if working directories were in it",
                    *(name, each.unsent, each.deletions, name),
                )
