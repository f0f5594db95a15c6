"""How long a request may have to wait behind others: while something else goes on, somebody asks for a name.

The name is a new one each time, so the kernel has to ask the file system; the answer needs no disk. So its latency is how
long the daemon's loop was busy with something else, or stood still.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from tests.benchmarks import files
from tests.benchmarks.data import fio_command
from tests.benchmarks.report import Unit
from tests.benchmarks.rows import Row, Scale, Site, Target, Values

_WRITERS = 4
_PAUSE_SECONDS = 0.001  # a thousand questions a second: enough to meet every stall, too few to be a load
_FILE_BYTES = 2**24

_Load = Callable[[Site], list[list[str]]]
"""Returns the commands of the processes that make the load, for the scale's seconds."""


def rows(targets: Sequence[Target], scale: Scale) -> list[Row]:
    """Return the rows."""

    def row(name: str, what: str, load: _Load, setup: Callable[[Site], None] = _make, *, fresh: bool = True) -> Row:
        return Row(
            name=name,
            what=f"stat of a new name while {what}",
            unit=Unit.MILLISECONDS,
            targets=tuple(targets),
            setup=setup,
            action=partial(_probe, load),
            fresh=fresh,
        )

    return [
        row("stall-idle", "nothing else happens", _nothing),
        row("stall-fsync", f"{_WRITERS} processes write 64 KiB and fsync", _fsync),
        row("stall-commit", f"{_WRITERS} processes create, fsync, rename and fsync the directory", _commit),
        row("stall-list", f"a directory of {scale.listed_many:,} is listed", _list, _fill_behind, fresh=False),
    ]


def _make(site: Site) -> None:
    site.front.mkdir()


def _fill_behind(site: Site) -> None:
    site.back.mkdir()
    files.create(site.back, files.names(site.scale.listed_many), content=b"")


def _nothing(site: Site) -> list[list[str]]:
    del site
    return []


def _fsync(site: Site) -> list[list[str]]:
    options = ["--ioengine=psync", "--rw=write", "--bs=64k", "--fsync=1", f"--numjobs={_WRITERS}"]
    return [fio_command(site, _FILE_BYTES, site.scale.load_seconds, options)]


def _commit(site: Site) -> list[list[str]]:
    return [_command(site, "commit")] * _WRITERS


def _list(site: Site) -> list[list[str]]:
    return [_command(site, "list")]


def _command(site: Site, kind: str) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.loads", kind, str(site.front), str(site.scale.load_seconds)]


def _probe(load: _Load, site: Site) -> Values:
    with ExitStack() as stack:
        for command in load(site):
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            stack.callback(process.terminate)
        latencies = _latencies(site)
    return {
        "median": statistics.median(latencies),
        "99 %": statistics.quantiles(latencies, n=100)[-1],
        "longest": max(latencies),
    }


def _latencies(site: Site) -> list[float]:
    """Ask as long as the load takes; return how long each answer took, in ms."""
    latencies: list[float] = []
    end = time.perf_counter() + site.scale.load_seconds
    while time.perf_counter() < end:
        path = site.front / f"none-{len(latencies)}-{end}"
        began = time.perf_counter()
        there = os.path.lexists(path)
        latencies.append((time.perf_counter() - began) * 1e3)
        assert not there
        time.sleep(_PAUSE_SECONDS)
    return latencies
