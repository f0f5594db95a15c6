"""What the daemon's memory grows to when very many files are listed, and each is opened and read once.

Each target has a daemon of its own for this, so that what other rows left behind is not counted.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

from tests.benchmarks import files
from tests.benchmarks.report import Goal, Unit
from tests.benchmarks.rows import Row, Scale, Site, Target, Values
from tests.benchmarks.targets import Sides, started_node

_MOST_MIB = 150.0
_FIELD = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB$", re.MULTILINE)


def rows(sides: Sides, scale: Scale) -> list[Row]:
    """Return the rows."""
    directory = sides.directory / "memory"

    def row(name: str, what: str, front: str, back: str) -> Row:
        target = Target(name.removeprefix("memory-"), directory, directory, "holdfast: a daemon of its own", ours=True)
        return Row(
            name=name,
            what=f"the daemon's memory after {scale.remembered:,} {what} were listed and each read once",
            unit=Unit.MIB,
            targets=(target,),
            setup=_make,
            action=partial(_measure, front, back),
            most_rounds=1,
            goals={target.name: Goal(at_most=_MOST_MIB)},
        )

    return [
        row("memory-work", "files in a working directory", "work/memory_1/files", "store/tree/work/memory_1/files"),
        row("memory-checkpoints", "objects", "checkpoints/files", "remote/checkpoints/files"),
    ]


def _make(site: Site) -> None:
    site.front.mkdir(parents=True)


def _measure(front: str, back: str, site: Site) -> Values:
    with started_node(site.front) as node:
        values = {"at the start": _memory(node.pid)["VmRSS"]}
        (node.mountpoint / front).parent.mkdir(exist_ok=True)
        names = files.names(site.scale.remembered)
        (node.directory / back).mkdir(parents=True)
        files.create(node.directory / back, names)
        directory = node.mountpoint / front
        assert len(os.listdir(directory)) == len(names)
        values["listed"] = _memory(node.pid)["VmRSS"]
        for name in names:
            assert (directory / name).read_bytes() == files.CONTENT
        memory = _memory(node.pid)
        return {**values, "read": memory["VmRSS"], "highest": memory["VmHWM"]}


def _memory(pid: int) -> dict[str, float]:
    """Return fields of proc_pid_status(5) in MiB."""
    return {name: int(kib) / 1024 for name, kib in _FIELD.findall(Path(f"/proc/{pid}/status").read_text())}
