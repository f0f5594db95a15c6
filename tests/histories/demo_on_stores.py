"""``./run python -m tests.histories.demo_on_stores``: the demo on servers of the tests, one after the other.

The demo's job is killed, goes on with a flipped byte, loses its node with the disk, and is compared with a computation over
all files. On ``hdfs-ha`` namenodes come, go and become active meanwhile. Run it in namespaces of its own, as the tests.
Prints a table. Exits with 1 if any demo failed, or no namenode became active in the middle of it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.stores.contract_servers import ALL_SERVERS
from tests.support.stores.ha_hdfs import serving_ha_hdfs

_ROOT = Path(__file__).resolve().parents[2]
_ZONES = ("CHECKPOINTS", "BLOBS")
_CHANGES = ("active 1", "stop 0", "start 0", "active 0", "stop 1", "start 1")


@dataclass(frozen=True)
class _Place:
    """A store at a running server. ``changes`` counts how often another namenode became active."""

    url: str
    options: Mapping[str, Any]
    changes: list[str] = field(default_factory=list)


@contextmanager
def _at(name: str) -> Iterator[_Place]:
    with ALL_SERVERS[name]() as server:
        yield _Place(server.url, server.options)


def _ha(pause_seconds: float) -> Callable[[], AbstractContextManager[_Place]]:
    @contextmanager
    def serving() -> Iterator[_Place]:
        with serving_ha_hdfs() as server:
            over, changes = threading.Event(), list[str]()

            def fail_over() -> None:
                for command in itertools.cycle(_CHANGES):
                    if over.wait(pause_seconds):
                        return
                    server.tell(command)
                    changes.append(command)

            thread = threading.Thread(target=fail_over)
            thread.start()
            try:
                yield _Place(server.url, server.options, changes)
            finally:
                over.set()
                thread.join()

    return serving


def main() -> int:
    """Run the demo on the servers that are asked for."""
    options = _parser().parse_args()
    rows, is_good = [], True
    for name in options.only:
        began = time.monotonic()
        with _ha(options.pause)() if name == "hdfs-ha" else _at(name) as place:
            code = _demo(place, options.files)
            changes = sum(change.startswith("active") for change in place.changes)
        is_good &= code == 0 and (name != "hdfs-ha" or changes > 0)
        told = f", another namenode became active {changes} times" if place.changes else ""
        rows.append(f"{name:14}exit {code} after {time.monotonic() - began:.0f} s{told}")
        print("\n".join(rows), flush=True)
    return 0 if is_good else 1


def _demo(place: _Place, files: int) -> int:
    """Run the demo; return its exit status, which is 0 if the answer was right."""
    variables = {
        f"HOLDFAST_STORES__{zone}__OPTIONS__{name.upper()}": str(value)
        for zone in _ZONES
        for name, value in place.options.items()
    }
    command = ["./run", "demo", "--files", f"{files}", "--remote", f"{place.url}/demo"]
    return subprocess.run(command, cwd=_ROOT, env={**os.environ, **variables}, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.demo_on_stores", description=__doc__)
    names = ["azurite", "hdfs", "hdfs-ha", "s3-ceph", "s3-versitygw"]
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--files", type=int, default=24, help="in how many files the flights arrive, one a batch")
    parser.add_argument("--pause", type=float, default=4.0, help="seconds between two changes of namenodes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
