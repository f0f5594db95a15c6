"""The client of the control socket: typed calls, with the daemon's refusals as exceptions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.control import messages
from holdfast.control.client_messages import ANSWER_SECONDS, Exchange, RefusedError

__all__ = ["ANSWER_SECONDS", "ControlClient", "RefusedError"]

_PAGE = 1000  # entries: as many as the daemon gives at once


class ControlClient:
    """Connects to the daemon behind ``socket``. Every call raises ``RefusedError`` and ``DaemonUnreachableError``.

    With ``$HOLDFAST_MOUNT``, all paths are as in a pod that has the mount there.
    ``timeout_seconds`` is how long the daemon may take to answer. Plans and streams have no limit as long as it gives signs
    of life; one that hangs is given up after half a minute.
    """

    def __init__(self, socket: Path | str, timeout_seconds: float = ANSWER_SECONDS) -> None:
        seen_at = os.environ.get("HOLDFAST_MOUNT")
        self._daemon = Exchange(socket, timeout_seconds, {"Holdfast-Mount": seen_at} if seen_at else {})

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._daemon.close()

    def status(self) -> messages.Status:
        """Return the state of the daemon."""
        return self._daemon.get("/v1/status", messages.Status)

    def restart(self) -> messages.Status:
        """Replace the daemon under its mount; return the state of the one that ends."""
        return self._daemon.post("/v1/restart", messages.Message(), messages.Status)

    def reload(self) -> messages.ReloadInfo:
        """Let the daemon read its configuration again."""
        return self._daemon.post("/v1/config/reload", messages.Message(), messages.ReloadInfo)

    def check_configuration(self) -> messages.ReloadInfo:
        """Return what a reload would change. Raises ``RefusedError`` if a daemon could not start with the configuration."""
        return self._daemon.get("/v1/config/check", messages.ReloadInfo)

    def workdirs(self) -> list[messages.WorkdirInfo]:
        """Return all working directories, or those of this user if the socket is ``status.sock``. Asks page by page."""
        found = page = self._daemon.get("/v1/workdirs", list[messages.WorkdirInfo], limit=_PAGE)
        while len(page) >= _PAGE:
            page = self._daemon.get("/v1/workdirs", list[messages.WorkdirInfo], after=page[-1].path, limit=_PAGE)
            found = found + page
        return found

    def acquire(
        self, role: str, resource_id: str, pid: int, uid: int = -1, gid: int = -1, *, adopt: bool = False
    ) -> messages.WorkdirInfo:
        """Acquire a working directory for the process ``pid``, numbered as this process sees it."""
        wanted = messages.AcquireRequest(
            role=role, id=resource_id, pid=pid, uid=uid, gid=gid, pid_namespace=_pid_namespace(), adopt=adopt
        )
        return self._daemon.post("/v1/workdirs/acquire", wanted, messages.WorkdirInfo)

    def acquire_for_volume(
        self, role: str, resource_id: str, volume: str, pod: str, owner: tuple[int, int]
    ) -> messages.WorkdirInfo:
        """Acquire, as root, a working directory for a volume of the pod ``pod``, until it is released."""
        uid, gid = owner
        wanted = messages.AcquireRequest(role=role, id=resource_id, pid=0, uid=uid, gid=gid, volume=volume, pod=pod)
        return self._daemon.post("/v1/workdirs/acquire", wanted, messages.WorkdirInfo)

    def release(self, role: str, resource_id: str, volume: str = "") -> messages.WorkdirInfo:
        """Release a working directory; with ``volume``, only if the volume with this id holds it."""
        wanted = messages.ReleaseRequest(role=role, id=resource_id, volume=volume)
        return self._daemon.post("/v1/workdirs/release", wanted, messages.WorkdirInfo)

    def entries(self, path: str) -> Iterator[messages.EntryInfo]:
        """Yield the entries of the directory ``path``, page by page."""
        after: str | None = ""
        while after is not None:
            page = self._daemon.get("/v1/entries", messages.EntryPage, path=path, after=after)
            yield from page.entries
            after = page.next

    def entry(self, path: str) -> messages.EntryInfo:
        """Return what is known about ``path``."""
        return self._daemon.get("/v1/entry", messages.EntryInfo, path=path)

    def usage(self, path: str) -> messages.CacheUsage:
        """Return what is cached at or below ``path``, by directory."""
        return self._daemon.get("/v1/usage", messages.CacheUsage, path=path)

    def history(self, since: int = 0) -> list[messages.Sample]:
        """Return the samples of the last day after ``since`` (seconds since the epoch), oldest first, and one of now."""
        return self._daemon.get("/v1/history", list[messages.Sample], since=since)

    def transfers(self) -> list[messages.TransferInfo]:
        """Return the transfers under way, oldest first, up to 200 each way."""
        return self._daemon.get("/v1/transfers", list[messages.TransferInfo])

    def why(self, path: str) -> messages.Explanation:
        """Return why ``path`` is as it is."""
        return self._daemon.get("/v1/why", messages.Explanation, path=path)

    def events(self, since: int = 0) -> list[messages.EventInfo]:
        """Return the events after number ``since``. Asks page by page."""
        found = page = self._daemon.get("/v1/events", list[messages.EventInfo], since=since, limit=_PAGE)
        while len(page) >= _PAGE:
            page = self._daemon.get("/v1/events", list[messages.EventInfo], since=page[-1].number, limit=_PAGE)
            found = found + page
        return found

    def follow_events(self, since: int = 0) -> Iterator[messages.EventInfo]:
        """Yield the events after number ``since`` as they come, without end."""
        query = {"since": since}
        return self._daemon.lines("/v1/events", messages.EventInfo, query, accept="text/event-stream", prefix=b"data: ")

    def metrics(self) -> str:
        """Return the metrics, in Prometheus's text format (``docs/metrics.md``)."""
        return self._daemon.text("/metrics")

    def watch_operations(self, path: str | None = None, min_microseconds: int = 0) -> Iterator[messages.OperationsInfo]:
        """Yield the kernel's requests as they are answered, without end: a list at once, then at least one each second.

        Yields only those about ``path`` or what is below it, if given, and only those that took so long. To watch costs the
        daemon processor time for each request; it stops when the iterator is closed.
        """
        query = {"min_microseconds": min_microseconds, "path": path}
        return self._daemon.lines("/v1/operations", messages.OperationsInfo, query, accept="application/x-ndjson")

    def report_batch(self, report: messages.BatchReport) -> None:
        """Tell the daemon of a batch of a streaming query."""
        self._daemon.post("/v1/spark/batches/report", report, dict)

    def batches(self, query: str | None = None, since: int = 0) -> list[messages.BatchInfo]:
        """Return the batches that were reported after number ``since``, oldest first; of ``query`` only, if given."""
        return self._daemon.get("/v1/spark/batches", list[messages.BatchInfo], since=since, query=query)

    def verify(self, path: str | None) -> Iterator[messages.Progress]:
        """Verify at or below ``path``; yield progress."""
        return self._daemon.steps("/v1/verify", messages.PathRequest(path=path), messages.Progress)

    def prefetch(self, path: str) -> Iterator[messages.Progress]:
        """Fetch at or below ``path``; yield progress."""
        return self._daemon.steps("/v1/prefetch", messages.PathRequest(path=path), messages.Progress)

    def evict(self, path: str) -> Iterator[messages.Progress]:
        """Evict at or below ``path``; yield progress."""
        return self._daemon.steps("/v1/evict", messages.PathRequest(path=path), messages.Progress)

    def flush(self, path: str | None, timeout_seconds: float) -> Iterator[messages.Progress]:
        """Send what is unsent at or below ``path`` (None: everywhere); yield progress."""
        return self._daemon.steps(
            "/v1/flush", messages.FlushRequest(path=path, timeout_seconds=timeout_seconds), messages.Progress
        )

    def drain(self, timeout_seconds: float) -> Iterator[messages.Progress]:
        """Drain the node; yield progress."""
        return self._daemon.steps("/v1/drain", messages.DrainRequest(timeout_seconds=timeout_seconds), messages.Progress)

    def end_drain(self) -> None:
        """Let the node take new files for its stores again."""
        list(self._daemon.steps("/v1/drain", messages.DrainRequest(undo=True), messages.Progress))

    def pin(self, path: str, *, future: bool = False) -> None:
        """Keep ``path`` from being evicted. With ``future`` there need be nothing yet."""
        self._daemon.post("/v1/pin", messages.PinRequest(path=path, future=future), dict)

    def pins(self) -> list[messages.PinInfo]:
        """Return what is pinned, oldest first."""
        return self._daemon.get("/v1/pins", list[messages.PinInfo])

    def unpin(self, path: str) -> None:
        """Remove the pin of ``path``."""
        self._daemon.post("/v1/unpin", messages.PathRequest(path=path), dict)

    def checkpoints(self, path: str) -> list[messages.CheckpointInfo]:
        """Return the checkpoints below ``path``."""
        return self._daemon.get("/v1/checkpoints", list[messages.CheckpointInfo], patient=True, path=path)

    def verify_checkpoints(self, request: messages.VerifyRequest) -> Iterator[messages.VerifyProgress]:
        """Verify that batches, checkpoints and savepoints can be restored; yield progress, with the result at the end."""
        return self._daemon.steps("/v1/checkpoints/verify", request, messages.VerifyProgress)

    def plan_sweep(self, request: messages.SweepRequest) -> messages.PlanInfo:
        """Make the plan of a sweep. Nothing is removed yet."""
        return self._daemon.post("/v1/checkpoints/sweep", request, messages.PlanInfo, patient=True)

    def plan_drop(self, request: messages.DropRequest) -> messages.PlanInfo:
        """Make the plan to drop a checkpoint. Nothing is removed yet."""
        return self._daemon.post("/v1/checkpoints/drop", request, messages.PlanInfo, patient=True)

    def holdings(self, path: str | None = None, *, all_nodes: bool = False) -> messages.HoldingsReply:
        """Return which state this node holds, or with ``all_nodes`` each node, of the queries at or below ``path``."""
        return self._daemon.get("/v1/holdings", messages.HoldingsReply, all_nodes=int(all_nodes), path=path)

    def clone(self, request: messages.CloneRequest) -> Iterator[messages.CloneProgress]:
        """Copy a query's checkpoint; yield progress."""
        return self._daemon.steps("/v1/checkpoints/clone", request, messages.CloneProgress)

    def plan_rewind(self, request: messages.RewindRequest) -> messages.PlanInfo:
        """Make the plan to take a query back to an earlier batch. Nothing is touched yet."""
        return self._daemon.post("/v1/checkpoints/rewind", request, messages.PlanInfo, patient=True)

    def undo_rewind(self, request: messages.UndoRequest) -> Iterator[messages.UndoProgress]:
        """Put back what the latest rewind of a query has set aside; yield progress."""
        return self._daemon.steps("/v1/checkpoints/undo-rewind", request, messages.UndoProgress)

    def plans(self) -> list[messages.PlanInfo]:
        """Return the stored plans, oldest first, without their entries."""
        return self._daemon.get("/v1/checkpoints/plans", list[messages.PlanInfo])

    def plan(self, plan_id: str, items: int | None = None) -> messages.PlanInfo:
        """Return a plan, with all of its entries or the first ``items``."""
        return self._daemon.get("/v1/checkpoints/plan", messages.PlanInfo, patient=True, id=plan_id, items=items)

    def submit(self, plan: bytes) -> messages.PlanInfo:
        """Submit a plan that was made elsewhere (``docs/checkpoints.md``, "The format of a plan"). It gets a new id."""
        return self._daemon.post("/v1/checkpoints/submit", plan, messages.PlanInfo, patient=True)

    def execute(self, plan_id: str, *, at_once: bool = False) -> Iterator[messages.SweepProgress]:
        """Execute a plan, or the rest of an interrupted one; yield progress."""
        return self._daemon.steps(
            "/v1/checkpoints/execute", messages.ExecuteRequest(plan=plan_id, at_once=at_once), messages.SweepProgress
        )


def _pid_namespace() -> int:
    """Return the inode number of this process's process namespace (pid_namespaces(7)); 0 if it is unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
