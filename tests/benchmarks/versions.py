"""``./run python -m tests.benchmarks.versions OLD NEW…``: the metadata rows on several versions of Holdfast, by turns.

Each version is a commit, checked out beside the others, with a daemon of its own; all of them run for the whole time. The
first one is what the others are compared with. A commit that is named twice shows how much two equal ones differ.

Left to itself, the scheduler keeps a daemon on its caller's processor or on another one for minutes, and on the same
processor a request takes half the time or less. So daemons and caller share the first processor, or with ``--apart`` each
side has one of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from holdfast.mount import covered_directory
from tests.benchmarks import metadata
from tests.benchmarks.machine import processor_seconds
from tests.benchmarks.report import Goal
from tests.benchmarks.rows import Row, Scale, Site, Target, Values
from tests.benchmarks.runner import Runner
from tests.benchmarks.table import Screen

_PROJECT = Path(__file__).parents[2]
_ZONES = ("work", "checkpoints")
_ROWS = ("create", "commit", "stat", "open-read", "link", "rename", "replace", "unlink")
_OF_THE_PROCESSOR = "in a second of the daemon's processor time"
_WIDTH = 132


@dataclass(frozen=True)
class Version:
    """A mounted version: its daemon's process, and the directory with all that it has."""

    name: str
    pid: int
    directory: Path

    def target(self, zone: str, *, is_first: bool) -> Target:
        """Return where rows are measured in ``zone``."""
        front = self.directory / "mount" / zone
        if zone == "work":
            front /= "bench_1"
            front.mkdir(exist_ok=True)
        back = self.directory / "remote" / zone
        return Target(
            self.name, front, back, f"{self.name}: {zone}", ours=not is_first, commits=zone != "work", sees_changes=False
        )


def main() -> None:
    """Measure in each zone that is asked for."""
    options = _parser().parse_args()
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-versions-", dir=options.directory)))
        names = [f"{commit}{'′' * options.commits[:at].count(commit)}" for at, commit in enumerate(options.commits)]
        versions = [
            stack.enter_context(_mounted(base / str(at), name, commit))
            for at, (name, commit) in enumerate(zip(names, options.commits, strict=True))
        ]
        _keep_on(0, os.getpid())
        for version in versions:
            _keep_on(1 if options.apart else 0, version.pid)
        for zone in options.zones:
            print(f"\n{zone}: {options.rounds} rounds of {options.files} files, compared with {names[0]}", flush=True)
            _measure(zone, versions, options)


def _measure(zone: str, versions: Sequence[Version], options: argparse.Namespace) -> None:
    scale = replace(Scale(), files=options.files)
    targets = [version.target(zone, is_first=version is versions[0]) for version in versions]
    pids = {version.name: version.pid for version in versions}
    rows = [_compared(row, targets, pids) for row in metadata.rows(targets, scale) if row.name in options.only]
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    with Screen(console, len(rows), options.rounds) as screen:
        runner = Runner(scale, options.rounds, None, os.sync, screen.progress)
        for row in rows:
            screen.done(runner.run(row))


def _compared(row: Row, targets: Sequence[Target], pids: Mapping[str, int]) -> Row:
    """Return ``row`` with the first version as the others' peer, and the daemon's processor time as another value."""
    goals = {target.name: Goal(peer=targets[0].name, at_least=0.97) for target in targets[1:]}
    return replace(row, action=partial(_with_processor_time, row.action, pids), goals=goals, things=0)


def _with_processor_time(action: Callable[[Site], Values], pids: Mapping[str, int], site: Site) -> Values:
    pid = pids[site.target.name]
    used, began = processor_seconds(pid), time.perf_counter()
    values = action(site)
    seconds = time.perf_counter() - began
    return {**values, _OF_THE_PROCESSOR: values[""] * seconds / (processor_seconds(pid) - used)}


def _keep_on(processor: int, pid: int) -> None:
    for thread in map(int, os.listdir(f"/proc/{pid}/task")):
        os.sched_setaffinity(thread, {processor})


@contextmanager
def _mounted(directory: Path, name: str, commit: str) -> Iterator[Version]:
    """Check ``commit`` out, and mount it over two directories as stores, with the defaults of its day."""
    checkout, mount, remote = directory / "checkout", directory / "mount", directory / "remote"
    socket = ["--socket", str(directory / "control.sock")]
    for made in (mount, *(remote / zone for zone in ("checkpoints", "blobs"))):
        made.mkdir(parents=True)
    _run("git", "-C", str(_PROJECT), "worktree", "add", "--quiet", "--detach", str(checkout), commit)
    try:
        stores = [f"--{zone}=file://{remote / zone}" for zone in ("checkpoints", "blobs")]
        command = [str(checkout / "run"), "holdfast"]
        said = _run(*command, "mount", str(mount), "--store", str(directory / "store"), *stores, *socket, "--json")
        try:
            yield Version(name, json.loads(said)["pid"], directory)
        finally:
            _run(*command, "umount", str(mount), *socket)
            covered_directory.release(str(mount))  # the temporary directory could not be removed
    finally:
        _run("git", "-C", str(_PROJECT), "worktree", "remove", "--force", str(checkout))


def _run(*command: str) -> str:
    without_ours = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(command, env=without_ours, stdout=subprocess.PIPE, text=True, check=True).stdout


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run python -m tests.benchmarks.versions", description=__doc__)
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    parser.add_argument("--zones", nargs="+", choices=_ZONES, default=_ZONES)
    parser.add_argument("--only", nargs="+", choices=_ROWS, default=_ROWS)
    parser.add_argument("--apart", action="store_true", help="caller and daemons on different processors")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    return parser


if __name__ == "__main__":
    main()
