"""Rows about RocksDB: Debian's ``db_bench`` on a database in the site's directory, one thread beside RocksDB's own."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial

from tests.benchmarks.report import Goal, Unit
from tests.benchmarks.rows import Row, Scale, Site, Target, Values

_LIKE_EXT4 = Goal(peer="ext4", at_least=0.95)
_RESULT = re.compile(r"^(\w+)\s*:\s+([\d.]+) micros/op (\d+) ops/sec", re.MULTILINE)
_OPTIONS = ["--value_size=100", "--compression_type=none", "--write_buffer_size=16777216", "--statistics=0"]
_SEED = "--seed=20131231"  # all sides do the same
_FAR_APART = ["--disable_auto_compactions=1", "--level0_slowdown_writes_trigger=1000", "--level0_stop_writes_trigger=1000"]
"""So that all compaction is left for ``compact``."""


def rows(targets: Sequence[Target], scale: Scale) -> list[Row]:
    """Return the rows, for targets that are plain directories; none where there is no ``db_bench``."""
    if shutil.which("db_bench") is None:
        return []
    goals = {target.name: _LIKE_EXT4 for target in targets if target.ours}
    count = f"{scale.database_entries:,}"
    return [
        Row(
            name="db-fill",
            what=f"db_bench fillrandom: {count} entries into an empty RocksDB",
            unit=Unit.PER_SECOND,
            targets=tuple(targets),
            setup=_make,
            action=partial(_bench, "fillrandom", [], True),
            goals=goals,
        ),
        Row(
            name="db-read",
            what=f"db_bench readrandom in a RocksDB of {count} entries",
            unit=Unit.PER_SECOND,
            targets=tuple(targets),
            setup=partial(_fill, []),
            action=partial(_bench, "readrandom", [f"--reads={scale.database_entries // 10}"], False),
            fresh=False,
            goals=goals,
        ),
        Row(
            name="db-compact",
            what=f"db_bench compact: a RocksDB of {count} entries in many files",
            unit=Unit.MILLISECONDS,
            targets=tuple(targets),
            setup=partial(_fill, _FAR_APART),
            action=partial(_compact, _FAR_APART),
            goals=goals,
        ),
    ]


def _make(site: Site) -> None:
    site.front.mkdir()


def _fill(options: Sequence[str], site: Site) -> None:
    _make(site)
    _run(site, "fillrandom", options, True)


def _bench(benchmark: str, options: Sequence[str], new: bool, site: Site) -> Values:
    """Return operations a second."""
    return {"": _run(site, benchmark, options, new)[1]}


def _compact(options: Sequence[str], site: Site) -> Values:
    """Return milliseconds."""
    return {"": _run(site, "compact", options, False)[0] / 1e3}


def _run(site: Site, benchmark: str, options: Sequence[str], new: bool) -> tuple[float, float]:
    """Return µs an operation, and operations a second."""
    database = [f"--db={site.front}", f"--use_existing_db={int(not new)}", f"--num={site.scale.database_entries}"]
    command = ["db_bench", f"--benchmarks={benchmark}", *database, _SEED, *_OPTIONS, *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = {name: (float(micros), float(rate)) for name, micros, rate in _RESULT.findall(done.stdout)}
    assert benchmark in found, f"{command} says nothing of {benchmark}:\n{done.stdout}{done.stderr}"
    return found[benchmark]
