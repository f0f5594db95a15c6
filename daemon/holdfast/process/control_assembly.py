"""The server of the control sockets, put together from what a daemon has while it serves a mount."""

from __future__ import annotations

import time

from holdfast.control.acquiring import WorkdirRoutes
from holdfast.control.actions import ActionRoutes
from holdfast.control.batches import Batches, BatchRoutes
from holdfast.control.browsing import BrowsingRoutes, Inspector
from holdfast.control.cache_usage import CacheSurvey
from holdfast.control.daemon_routes import DaemonRoutes, Reloading, Restartable
from holdfast.control.holdings import HoldingsRoutes
from holdfast.control.metrics import MetricsReport
from holdfast.control.observing import ObservingRoutes
from holdfast.control.paths import Paths
from holdfast.control.restoring import CopyRights, RestoreRoutes
from holdfast.control.server import ControlServer
from holdfast.control.status import StatusReport
from holdfast.control.surveys import History, SurveyRoutes
from holdfast.control.sweeping import SweepRoutes
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.foundation import Foundation
from holdfast.fs.fuse.session import ServedMount
from holdfast.holdings import Gathering, Health, node_name
from holdfast.maintenance import Upkeep
from holdfast.standbys import Standbys
from holdfast.telemetry import LoopLag
from holdfast.ui.page import page_routes
from holdfast.workdirs import Workdirs


def control_server(
    base: Foundation,
    files: FileSystem,
    workdirs: Workdirs,
    mount: ServedMount,
    upkeep: Upkeep,
    gathering: Gathering,
    standbys: Standbys,
    lag: LoopLag,
    health: Health,
    daemon: Restartable,
    reload: Reloading,
) -> ControlServer:
    """Return the server; nothing runs yet."""
    parts, session = base.parts, mount.session
    paths = Paths(base.nodes, files, session.mountpoint)
    report = StatusReport(base, files.unsent, paths, workdirs, mount, health, node_name(parts.config.holdings))
    inspector = Inspector(base, files.listings, paths, session.observer.slow)
    metrics = MetricsReport(base, files.unsent, workdirs, session, lag, standbys)
    cache = CacheSurvey(parts.index.entries, paths, time.monotonic)
    observing = ObservingRoutes(metrics, session.observer.feed, report, paths, parts.config.control.group)
    rights = CopyRights(base.rights, parts.store.tree, parts.zones)
    groups = [
        DaemonRoutes(report, daemon, reload),
        WorkdirRoutes(report, workdirs),
        observing,
        SurveyRoutes(cache, History(report.sample), base.fetcher, base.uploader, paths),
        BrowsingRoutes(inspector, parts.events),
        ActionRoutes(base, files, paths),
        SweepRoutes(upkeep, paths),
        RestoreRoutes(upkeep.verification, upkeep.clones, upkeep.undoing, rights, paths),
        HoldingsRoutes(gathering, list(parts.remotes), paths, report.may_search),
        BatchRoutes(Batches(parts.counters, parts.events, time.time)),
    ]
    return ControlServer(groups, page_routes(), observing.page, parts.events)
