"""``./run calls COMMAND``: the functions of the daemon that the requests of a shell command go through.

The command runs in the mount of a daemon of its own, with ``checkpoints``, ``blobs`` and ``work`` before it. ``$STORE`` is
the directory that is the remote store: what is put there is not on the node yet.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from tests.support.daemons.faults.call_trace import CALLS
from tests.support.daemons.node import Node

_LAST = "after-the-command"


def main() -> int:
    """Print the calls; end with the status of the command."""
    parser = argparse.ArgumentParser(prog="./run calls", description=__doc__)
    parser.add_argument("--counts", action="store_true", help="print only how many calls and modules each request takes")
    parser.add_argument("command", nargs="+", help="a shell command: echo x >$STORE/checkpoints/a; cat checkpoints/a")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-calls-", dir="/var/tmp") as directory:
        status, trace = _traced(Path(directory), " ".join(options.command))
    for line in shown(trace, counts_only=options.counts):
        print(line)
    return status


def _traced(directory: Path, command: str) -> tuple[int, str]:
    """Run a command in a mount; return its status, and what the daemon has written of its requests."""
    store, output = directory / "remote", directory / "calls"
    for name in ("checkpoints", "blobs"):
        (store / name).mkdir(parents=True)
    node = Node(directory / "node", f"file://{store}/checkpoints", f"file://{store}/blobs")
    node.faults = ["trace_calls"]
    node.environment[CALLS] = str(output)
    try:
        node.start()
        before = output.stat().st_size
        done = subprocess.run(
            ["sh", "-c", command], cwd=node.mountpoint, env={**os.environ, "STORE": str(store)}, check=False
        )
        (node.mountpoint / _LAST).exists()  # a request's calls are written when the next one begins
        return done.returncode, output.read_text()[before:]
    finally:
        node.clean_up()


def shown(trace: str, *, counts_only: bool) -> Iterator[str]:
    """Yield lines about each request of a trace: how much it calls, then each call below the one that it comes from."""
    for line in trace.splitlines():
        request = json.loads(line)
        calls = [(depth, *name.split(" ", 1)) for depth, name in request["calls"]]
        modules = [module for _, module, _ in calls]
        counts = f"{len(calls)} calls, {len(set(modules))} modules, {moves(modules)} moves between modules"
        yield f"{request['operation']}: {counts}"
        if not counts_only:
            yield from (f"  {'  ' * depth}{function}  ({module})" for depth, module, function in calls)


def moves(modules: Sequence[str]) -> int:
    """Return how often one module follows upon another one."""
    return sum(one != other for one, other in pairwise(modules))


if __name__ == "__main__":
    sys.exit(main())
