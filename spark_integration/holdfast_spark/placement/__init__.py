"""Placement: Spark is told, before the first batch of each start, to run each partition where its state is.

Spark knows where state is only as long as a driver lives, and starts lopsided. The daemons know who holds what
(``holdfast holdings --all-nodes``). ``place_state`` brings the two together for the queries of a session.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from holdfast.control.client import ControlClient
from holdfast.control.messages import HoldingsReply
from holdfast_spark.connect import has_jvm
from holdfast_spark.listening import listen
from holdfast_spark.plugin import plugin_works

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from holdfast_spark.placement.cluster import Cluster
    from holdfast_spark.placement.query_events import QueryEvents

_log = logging.getLogger("holdfast.placement")


def place_state(spark: SparkSession, socket: Path | str) -> bool:
    """Let the streaming queries of this session run their partitions where their state is; return whether that is possible.

    It is not with Spark Connect, where the driver's JVM is elsewhere. On ``local[…]`` there is nothing to place: if the node
    has nothing of a query's state, all of it is fetched from the query's start on. Where the plugin of
    ``holdfast-spark.jar`` is in the JVM, it does this already.
    ``socket`` is the daemon's. Faults are logged (``holdfast.placement``), and change nothing for the queries.
    """
    if not has_jvm(spark):
        return False
    is_local = (spark.sparkContext.master or "").split("[")[0] == "local"
    if plugin_works(spark):
        return not is_local
    from holdfast_spark.placement.cluster import Cluster
    from holdfast_spark.placement.fetch_ahead import fetch_ahead
    from holdfast_spark.placement.listener import PlacementListener
    from holdfast_spark.placement.local_state import LocalState
    from holdfast_spark.placement.query_events import QueryEvents
    from holdfast_spark.placement.steering import Steering

    cluster = Cluster(spark)
    if is_local:
        events = QueryEvents(LocalState(cluster, partial(_ask, socket, all_nodes=False)))
        listener = PlacementListener(events, holds_up_seconds=0.0)
    else:
        events = QueryEvents(Steering(cluster, partial(_ask, socket, all_nodes=True), partial(fetch_ahead, spark)))
        threading.Thread(target=_follow_losses, args=(cluster, events), name="holdfast-placement", daemon=True).start()
        listener = PlacementListener(events)
    listen(spark, listener)
    return not is_local


def _ask(socket: Path | str, path: str, *, all_nodes: bool) -> HoldingsReply:
    with ControlClient(socket) as daemon:
        return daemon.holdings(path, all_nodes=all_nodes)


def _follow_losses(cluster: Cluster, events: QueryEvents) -> None:
    """Do beforehand what takes a second, so that no query has to wait for it; then pass on which executors are lost."""
    from holdfast_spark.placement.driver import reason

    try:
        cluster.prepare()
    except Exception as problem:  # noqa: BLE001 whatever Spark's JVM raises: then its queries run as without
        _log.warning("Spark places partitions by itself: %s", reason(problem))
        return
    known = 0
    while cluster.runs():
        try:
            lost = cluster.lost(known)
        except Exception as problem:  # noqa: BLE001 as above: the driver ends
            _log.debug("nobody hears of lost executors any more: %s", reason(problem))
            return
        if lost:
            known += 1
            events.executor_lost(lost)
