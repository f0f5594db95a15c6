"""How long a request may have to wait behind others: while several processes write and sync, somebody asks for a name.

The name is a new one each time, so the kernel has to ask the file system; the answer needs no disk. So its latency is how
long the daemon's loop was busy with something else, or stood still.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from functools import partial

from tests.benchmarks.data import fio_command
from tests.benchmarks.report import Unit
from tests.benchmarks.rows import Row, Site, Target, Values

_WRITERS = 4
_PAUSE_SECONDS = 0.001  # a thousand questions a second: enough to meet every stall, too few to be a load
_FILE_BYTES = 2**24


def rows(targets: Sequence[Target]) -> list[Row]:
    """Return the rows."""

    def row(name: str, what: str, *options: str) -> Row:
        return Row(
            name=name,
            what=what,
            unit=Unit.MILLISECONDS,
            targets=tuple(targets),
            setup=_make,
            action=partial(_probe, options),
        )

    return [
        row("stall-idle", "stat of a new name while nothing else happens"),
        row(
            "stall-fsync",
            f"stat of a new name while {_WRITERS} processes write 64 KiB and fsync",
            "--rw=write",
            "--bs=64k",
            "--fsync=1",
            f"--numjobs={_WRITERS}",
        ),
    ]


def _make(site: Site) -> None:
    site.front.mkdir()


def _probe(load: Sequence[str], site: Site) -> Values:
    if not load:
        return _summary(_latencies(site, None))
    command = fio_command(site, _FILE_BYTES, site.scale.load_seconds, load)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as writers:
        try:
            latencies = _latencies(site, writers)
        finally:
            writers.terminate()
    return _summary(latencies)


def _latencies(site: Site, writers: subprocess.Popen[bytes] | None) -> list[float]:
    """Ask until the writers have ended, or for as long as they would take; return how long each answer took, in ms."""
    latencies: list[float] = []
    end = time.perf_counter() + site.scale.load_seconds
    while time.perf_counter() < end and (writers is None or writers.poll() is None):
        path = site.front / f"none-{len(latencies)}"
        began = time.perf_counter()
        there = os.path.lexists(path)
        latencies.append((time.perf_counter() - began) * 1e3)
        assert not there
        time.sleep(_PAUSE_SECONDS)
    return latencies


def _summary(latencies: Sequence[float]) -> Values:
    return {
        "median": statistics.median(latencies),
        "99 %": statistics.quantiles(latencies, n=100)[-1],
        "longest": max(latencies),
    }
