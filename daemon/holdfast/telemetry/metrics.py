"""The metrics in Prometheus's text format: what there is, and how a page of them is written.

Names, units and types follow Prometheus's conventions. No label has a name of a file in it: labels have few values, which
come from the configuration and the code. ``docs/metrics.md`` has the same table; a test compares the two. The format is
written here, because the client library would cost the daemon 14 MB, and 20 ms of the event loop for each page.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.telemetry.latencies import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Type(enum.Enum):
    """The types of Prometheus that are used here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``for_all``: everybody may see it on ``status.sock``, for it tells nothing of what users do."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...] = ()
    for_all: bool = False


def _counter(name: str, words: str, *labels: str) -> Metric:
    return Metric(name, Type.COUNTER, words, labels)


def _gauge(name: str, words: str, *labels: str, for_all: bool = False) -> Metric:
    return Metric(name, Type.GAUGE, words, labels, for_all)


def _histogram(name: str, words: str, *labels: str) -> Metric:
    return Metric(name, Type.HISTOGRAM, words, labels)


# The daemon
BUILD_INFO = _gauge("holdfast_build_info", "Always 1. The version that runs.", "version", for_all=True)
PROCESS_START = _gauge("process_start_time_seconds", "When the daemon started, in seconds since the epoch.", for_all=True)
PROCESS_CPU = _counter("process_cpu_seconds_total", "Processor time that the daemon has taken.")
PROCESS_MEMORY = _gauge("process_resident_memory_bytes", "Memory of the daemon that is resident.")
PROCESS_FDS = _gauge("process_open_fds", "Descriptors that the daemon has open.")
PROCESS_MAX_FDS = _gauge("process_max_fds", "Descriptors that it may have open.")
STARTS = _counter("holdfast_starts_total", "Daemons that have served this store directory, since its index was made.")
LOOP_LAG = _histogram("holdfast_event_loop_lag_seconds", "How late a task was that the event loop should have woken.")
PASSTHROUGH = _gauge(
    "holdfast_passthrough",
    "1: the kernel reads and writes whole files past the daemon. What it does by itself is in no metric.",
)
PASSTHROUGH_POSSIBLE = _gauge(
    "holdfast_passthrough_possible",
    "1: kernel and settings allow passthrough. 0: the kernel is too old, or it is switched off.",
)
DRAINING = _gauge("holdfast_draining", "1 while nothing new is taken for the stores.")
EVENTS = _counter("holdfast_events_total", "Events by kind, also those that are only summed up in the journal.", "kind")
INTERNAL_ERRORS = _counter("holdfast_internal_errors_total", "Requests that failed because of a fault of Holdfast's.")

# Requests of the kernel
OPERATIONS = _histogram(
    "holdfast_operation_duration_seconds",
    "Requests of the kernel, from being read to the reply. The zone is a directory in the root of the mount.",
    "operation",
    "zone",
)
RUNNING = _gauge("holdfast_requests_running", "Requests of users under way that may have to wait.", "turns")
WAITING = _gauge("holdfast_requests_waiting", "Requests that wait for earlier ones of the same user.", "turns")
KNOWN_NODES = _gauge("holdfast_known_nodes", "Files and directories that the kernel knows.")

# The cache
HITS = _counter("holdfast_cache_hits_total", "Opens of objects whose bytes were here.")
MISSES = _counter("holdfast_cache_misses_total", "Opens of objects that had to be fetched.")
HIT_BYTES = _counter("holdfast_cache_hit_bytes_total", "The sizes of the objects whose opens were hits.")
CACHE_BYTES = _gauge("holdfast_cache_bytes", "Bytes of all files that are, or are to become, copies of objects.")
CACHE_FILES = _gauge("holdfast_cache_files", "Files that the index knows.")
CACHE_MAX = _gauge("holdfast_cache_max_bytes", "The limit cache.max_bytes; 0: none.", for_all=True)
DISK_FREE = _gauge("holdfast_disk_free_bytes", "Bytes that are free on the disk of the store directory.", for_all=True)
DISK_MIN_FREE = _gauge("holdfast_disk_min_free_bytes", "The reserve of bytes ([cache]).", for_all=True)
DISK_SIZE = _gauge("holdfast_disk_size_bytes", "The size of that disk.", for_all=True)
DISK_TAKES_WRITES = _gauge(
    "holdfast_disk_takes_writes", "0 while that disk takes no writes: it fails, or its file system has become read-only."
)
DISK_INODES = _gauge("holdfast_disk_inodes", "Inodes of that disk; 0: it makes them as they are needed.", for_all=True)
DISK_FREE_INODES = _gauge("holdfast_disk_free_inodes", "Those that are free, if it has a fixed number.", for_all=True)
DISK_MIN_FREE_INODES = _gauge("holdfast_disk_min_free_inodes", "The reserve of them ([cache]).", for_all=True)
OTHER_DISK_UP = _gauge(
    "holdfast_other_disk_up", "1 if a disk in store.other_disks is in use; 0 if it has failed, or is lost.", "disk"
)
OTHER_DISK_FREE = _gauge("holdfast_other_disk_free_bytes", "Bytes that are free on it.", "disk")
OTHER_DISK_MIN_FREE = _gauge("holdfast_other_disk_min_free_bytes", "The reserve of bytes there ([cache]).", "disk")
OTHER_DISK_SIZE = _gauge("holdfast_other_disk_size_bytes", "Its size.", "disk")
OTHER_DISK_INODES = _gauge("holdfast_other_disk_inodes", "Its inodes; 0: it makes them as they are needed.", "disk")
OTHER_DISK_FREE_INODES = _gauge("holdfast_other_disk_free_inodes", "Those free, if it has a fixed number.", "disk")
OTHER_DISK_MIN_FREE_INODES = _gauge("holdfast_other_disk_min_free_inodes", "The reserve of them ([cache]).", "disk")
OTHER_DISK_CACHE_BYTES = _gauge("holdfast_other_disk_cache_bytes", "Its part of holdfast_cache_bytes.", "disk")
OTHER_DISK_WORKDIRS = _gauge("holdfast_other_disk_workdirs", "Working directories on it.", "disk")
EVICTED_FILES = _counter("holdfast_evicted_files_total", "Copies that were evicted.")
EVICTED_BYTES = _counter("holdfast_evicted_bytes_total", "Their bytes.")
FETCHING = _gauge("holdfast_fetches_running", "Objects that are being fetched.")
FETCHED = _counter("holdfast_fetched_objects_total", "Objects fetched whole and found intact.")
FETCHED_BYTES = _counter("holdfast_fetched_bytes_total", "Their bytes.")
CORRUPT = _counter(
    "holdfast_corrupt_total", "Parts and files whose bytes differed from their digests, dropped or fetched anew."
)
QUARANTINE_FILES = _gauge("holdfast_quarantine_files", "Files in quarantine.")
QUARANTINE_BYTES = _gauge("holdfast_quarantine_bytes", "Their bytes.")

# What stores have yet to get
UPLOADED = _counter("holdfast_uploaded_objects_total", "Objects sent.")
UPLOADED_BYTES = _counter("holdfast_uploaded_bytes_total", "Their bytes.")
UNSENT_FILES = _gauge("holdfast_unsent_files", "Files whose bytes no store has yet.")
UNSENT_BYTES = _gauge("holdfast_unsent_bytes", "Their bytes.")
UNSENT_AGE = _gauge(
    "holdfast_unsent_oldest_age_seconds", "For how long the oldest of them has not been changed; 0: there is none."
)
PENDING_DELETIONS = _gauge("holdfast_pending_deletions", "Deletions of objects that are still to be sent.", "store")

# The stores
STORE_UP = _gauge(
    "holdfast_store_up",
    "1 if the store answers; what it refuses for one object alone does not count.",
    "store",
    for_all=True,
)
STORE_REQUESTS = _histogram(
    "holdfast_store_request_duration_seconds",
    "Requests to a store, each try, without waiting for a turn.",
    "store",
    "kind",
    "result",
)
STORE_WAITING = _gauge("holdfast_store_requests_waiting", "Requests to a store that wait for a turn.", "store")

# Standby copies
STANDBY_PARTITIONS = _gauge(
    "holdfast_standby_partitions", "Partitions of which this node is to keep a standby copy.", "store"
)
STANDBY_COMPLETE = _gauge(
    "holdfast_standby_complete_partitions", "Those whose copy has all that the newest checkpoint seen needs.", "store"
)
STANDBY_MISSING = _gauge("holdfast_standby_missing_bytes", "Bytes that the copies lack.", "store")
UNCOVERED = _gauge(
    "holdfast_partitions_without_standby",
    "Partitions that run on this node and of which no other node has a complete standby copy.",
    "store",
)
STANDBY_FETCHED = _counter("holdfast_standby_fetched_bytes_total", "Bytes fetched for standby copies.")

# Working directories and sweeps
WORKDIRS = _gauge("holdfast_workdirs", "Working directories, held by a process or released.", "state")
SWEPT = _counter("holdfast_swept_objects_total", "Objects that sweeps and drops have deleted.")
SWEPT_BYTES = _counter("holdfast_swept_bytes_total", "Their bytes.")

OF_COUNTERS = {
    "hits": HITS,
    "misses": MISSES,
    "bytes_hit": HIT_BYTES,
    "bytes_fetched": FETCHED_BYTES,
    "bytes_uploaded": UPLOADED_BYTES,
    "objects_fetched": FETCHED,
    "objects_uploaded": UPLOADED,
    "corrupt_dropped": CORRUPT,
    "files_evicted": EVICTED_FILES,
    "bytes_evicted": EVICTED_BYTES,
    "standby_bytes_fetched": STANDBY_FETCHED,
    "objects_swept": SWEPT,
    "bytes_swept": SWEPT_BYTES,
    "internal_errors": INTERNAL_ERRORS,
}
"""The metrics that are fields of ``Counters``, by field."""
OF_STANDBYS = {
    STANDBY_PARTITIONS: "partitions",
    STANDBY_COMPLETE: "complete",
    STANDBY_MISSING: "missing_bytes",
    UNCOVERED: "uncovered",
}
"""The metrics of standby copies, each with its field of ``Figures``."""


def all_metrics() -> list[Metric]:
    """Return all metrics in the order of the page."""
    return [each for each in globals().values() if isinstance(each, Metric)]


class MetricsPage:
    """A page that grows: ``add`` the samples of each metric one after the other, then ``text``."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._last: Metric | None = None

    def add(self, metric: Metric, value: float | Histogram, *labels: str) -> None:
        """Add a sample with values for the metric's labels."""
        if metric is not self._last:
            self._lines.append(f"# HELP {metric.name} {_escaped(metric.help)}\n# TYPE {metric.name} {metric.type.value}\n")
            self._last = metric
        pairs = ",".join(f'{name}="{_quoted(label)}"' for name, label in zip(metric.labels, labels, strict=True))
        if isinstance(value, Histogram):
            self._lines.extend(_histogram_lines(metric.name, pairs, value))
        else:
            self._lines.append(
                f"{metric.name}{{{pairs}}} {_number(value)}\n" if pairs else f"{metric.name} {_number(value)}\n"
            )

    def text(self) -> str:
        """Return the page."""
        return "".join(self._lines)


def _histogram_lines(name: str, pairs: str, value: Histogram) -> Iterator[str]:
    before = f"{pairs}," if pairs else ""
    for bound, count in value.buckets:
        yield f'{name}_bucket{{{before}le="{bound:g}"}} {count}\n'
    yield f'{name}_bucket{{{before}le="+Inf"}} {value.total}\n'
    labels = f"{{{pairs}}}" if pairs else ""
    yield f"{name}_sum{labels} {_number(value.sum_seconds)}\n{name}_count{labels} {value.total}\n"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}" if math.isfinite(value) and value < 1e8 else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
