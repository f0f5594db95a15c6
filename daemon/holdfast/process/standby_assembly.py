"""The work of a standby, put together from what a daemon has while it serves a mount."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.config import Config, ZoneSection
from holdfast.fs.foundation import Foundation
from holdfast.holdings import Gathering, Publishing
from holdfast.standbys import CatchingUp, Restraint, StandbyCopies, Standbys, StoreStandbys


def standbys(base: Foundation, gathering: Gathering, publishing: Publishing, config: Callable[[], Config]) -> Standbys:
    """Return the work for all stores; nothing runs yet. ``config`` returns the configuration in force."""
    copies = StandbyCopies(base.copies, base.rooms, base.policy, base.view, base.fetcher)
    return Standbys(
        StoreStandbys(
            CatchingUp(name, copies, Restraint(remote.access, base.fetcher.count_waited_for)),
            gathering,
            publishing,
            partial(_settings, config, name),
            publishing.is_draining,
        )
        for name, remote in base.parts.remotes.items()
    )


def _settings(config: Callable[[], Config], name: str) -> ZoneSection:
    return config().stores[name]
