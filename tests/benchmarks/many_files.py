"""``python -m tests.benchmarks.many_files``: time for each name, start and memory, against the number of objects.

The store is a directory with checkpoints of a thousand files each. Every size has a daemon of its own. Written are numbers
(JSON), and a plot (SVG) of the daemon's processor time, which does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.cost_plot import plot
from tests.benchmarks.machine import processor_seconds
from tests.benchmarks.targets import started_node
from tests.support.daemons.node import Node

_PER_DIRECTORY = 1000
_FIELD = re.compile(r"^(VmRSS|RssAnon|VmHWM):\s+(\d+) kB$", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each size."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.benchmarks.many_files", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 20_000, 200_000, 1_000_000])
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on the disk to be measured")
    parser.add_argument("--output", type=Path, default=Path("many_files"), help="without the ending: .json and .svg")
    options = parser.parse_args(arguments)
    if min(options.sizes) < 2 * _PER_DIRECTORY:
        parser.error(f"sizes begin at {2 * _PER_DIRECTORY}: a part of the directories is fetched, the others are not")
    found: list[dict[str, Any]] = []
    for size in options.sizes:
        directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.directory))
        try:
            found.append(_measure(directory, size))
        finally:
            shutil.rmtree(directory)
        print(json.dumps(found[-1]), flush=True)
        options.output.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
        options.output.with_suffix(".svg").write_text(plot([_costs(each) for each in found]))
    return 0


def _costs(found: dict[str, Any]) -> dict[str, Any]:
    """Return the processor time of each step as if it had been done to every object."""
    worked = {step: found["processor_seconds"][step] * found["objects"] / found["names"][step] for step in found["names"]}
    return {"objects": found["objects"], "processor_seconds": {step: worked[step] for step in worked if worked[step]}}


class _Measured:
    """What was found at one size: by step, the seconds, the daemon's processor seconds, and its memory after it in MiB."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.seconds: dict[str, float] = {}
        self.processor_seconds: dict[str, float] = {}
        self.memory: dict[str, dict[str, float]] = {}
        self.names: dict[str, int] = {}

    def step(self, name: str, names: int, action: Callable[[], object]) -> None:
        """Measure one step, which has to do with so many names."""
        self.names[name] = names
        print(f"  {name} …", file=sys.stderr, flush=True)
        began, worked = time.monotonic(), processor_seconds(self._node.pid)
        action()
        self.seconds[name] = round(time.monotonic() - began, 3)
        self.processor_seconds[name] = round(processor_seconds(self._node.pid) - worked, 3)
        self.memory[name] = memory(self._node.pid)


def _measure(directory: Path, size: int) -> dict[str, Any]:
    print(f"{size:,} objects", file=sys.stderr)
    groups = _fill(directory / "remote/checkpoints", size)
    with started_node(directory) as node:
        measured = _Measured(node)
        half = len(groups) // 2 * _PER_DIRECTORY
        fetched, missed = groups[::2], groups[1::2]
        measured.step("list", size, lambda: _list(node.checkpoints, groups))
        measured.step("stat", size, lambda: _stat(node.checkpoints, groups))
        measured.step("prefetch", half, lambda: _prefetch(node, fetched))
        measured.step("first open, fetched", half, lambda: _read(node.checkpoints, fetched))
        measured.step("first open, not fetched", half, lambda: _read(node.checkpoints, missed))
        measured.step("open", size, lambda: _read(node.checkpoints, groups))
        highest = memory(node.pid)["VmHWM"]
        node.stop()
        began = time.monotonic()
        node.start()
        start_seconds = round(time.monotonic() - began, 3)
        measured.step("list after a restart", size, lambda: _list(node.checkpoints, groups))
        measured.step("open after a restart", size, lambda: _read(node.checkpoints, groups))
        began = time.monotonic()
        node.status()
        status_seconds = round(time.monotonic() - began, 3)
        measured.step("evict", size, lambda: _evict(node))
        highest = max(highest, memory(node.pid)["VmHWM"])
        return {
            "objects": size,
            "names": measured.names,
            "seconds": measured.seconds,
            "processor_seconds": measured.processor_seconds,
            "memory": measured.memory,
            "highest_memory": highest,
            "start_seconds": start_seconds,
            "status_seconds": status_seconds,
        }


def _fill(store: Path, size: int) -> list[str]:
    """Store the objects; return their directories."""
    groups = [f"group-{number:04}" for number in range((size + _PER_DIRECTORY - 1) // _PER_DIRECTORY)]
    for number, group in enumerate(groups):
        (store / group).mkdir(parents=True)
        for index in range(min(_PER_DIRECTORY, size - number * _PER_DIRECTORY)):
            fd = os.open(store / group / f"{index}.changelog", os.O_WRONLY | os.O_CREAT, 0o644)
            os.write(fd, b"%d %d" % (number, index))
            os.close(fd)
    return groups


def _list(directory: Path, groups: Sequence[str]) -> None:
    for group in groups:
        assert os.listdir(directory / group)


def _stat(directory: Path, groups: Sequence[str]) -> None:
    for group in groups:
        for entry in os.scandir(directory / group):
            assert entry.stat().st_size


def _read(directory: Path, groups: Sequence[str]) -> None:
    for group in groups:
        for name in os.listdir(directory / group):
            with open(directory / group / name, "rb", buffering=0) as file:
                assert file.read()


def _prefetch(node: Node, groups: Sequence[str]) -> None:
    with node.client() as client:
        for group in groups:
            _ended(client.prefetch(str(node.checkpoints / group)))


def _evict(node: Node) -> None:
    with node.client() as client:
        _ended(client.evict(str(node.checkpoints)))


def _ended(steps: Iterable[object]) -> None:
    """Wait until all steps are done."""
    deque(steps, maxlen=0)


def memory(pid: int) -> dict[str, float]:
    """Return fields of proc_pid_status(5) in MiB."""
    return {name: round(int(kib) / 1024, 1) for name, kib in _FIELD.findall(Path(f"/proc/{pid}/status").read_text())}


if __name__ == "__main__":
    sys.exit(main())
