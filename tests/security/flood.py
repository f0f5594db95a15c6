"""One user does everything wrong at once, another one works: how long that one's operations take, and what is left.

``./run python -m tests.security.flood --minutes 10 [--daemon-io]``. Prints a table; needs root.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path

from holdfast.mount import mountpoint
from tests.support.daemons.node import Node
from tests.support.disks.deep_trees import dig
from tests.support.users.privileges import ALICE, MALLORY, User

_NAMES = 2000
_LEVELS = 500


def _opens(home: Path, turn: int) -> None:
    opened = []
    with suppress(OSError):
        for number in range(_NAMES):
            opened.append(os.open(home / f"{turn % 5}-{number}", os.O_CREAT | os.O_RDWR))  # noqa: PERF401 the error ends it
    for fd in opened:
        os.close(fd)


def _directories(home: Path, turn: int) -> None:
    for number in range(_NAMES):
        with suppress(OSError):
            (home / f"directory-{turn % 3}-{number}").mkdir()


def _long_names(home: Path, turn: int) -> None:
    for number in range(_NAMES):
        name = f"{turn % 3}-{number}-".ljust(255, "x")
        with suppress(OSError):
            (home / name).touch()
            (home / name).rename(home / name.replace("x", "y"))


def _deep(home: Path, turn: int) -> None:
    with suppress(OSError):
        (home / f"deep{turn}").mkdir()
        os.close(dig(home / f"deep{turn}", _LEVELS))
        subprocess.run(["rm", "-rf", home / f"deep{turn}"], check=False)


def _working_directories(home: Path, turn: int) -> None:
    for number in range(50):
        with suppress(OSError):
            directory = home.parent / f"mallory_{turn % 10}-{number}"
            directory.mkdir()
            shutil.rmtree(directory, ignore_errors=True)


def _absent(home: Path, turn: int) -> None:
    for number in range(_NAMES):
        (home.parents[1] / "checkpoints" / f"absent-{turn}-{number}").exists()


def _connections(home: Path, turn: int) -> None:
    del turn
    channels = []
    for _ in range(100):
        with suppress(OSError):
            channel = socket.socket(socket.AF_UNIX)
            channels.append(channel)
            channel.connect(str(home.parents[2] / "run/status.sock"))
            channel.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
    for channel in channels:
        channel.close()


_FLOODS = (_opens, _directories, _long_names, _deep, _working_directories, _absent, _connections)


def _flood(what: Callable[[Path, int], None], home: Path, ends: Event, turns: int) -> None:
    MALLORY.become()
    turn = 0
    while not ends.is_set() and turn < turns:
        what(home, turn)
        turn += 1


@contextmanager
def _becoming(user: User) -> Iterator[None]:
    """Do as ``user`` does, in this process."""
    os.setegid(user.gid)
    os.seteuid(user.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def _works(node: Node, number: int) -> dict[str, float]:
    """Let ALICE do each of her operations once; return the seconds of each."""
    home, store = node.work / "alice_1", node.checkpoints / "alices"
    path = home / f"tmp/{number}"
    operations: dict[str, Callable[[], object]] = {
        "create": lambda: path.write_bytes(b"x" * 100),
        "stat": path.stat,
        "open, read": path.read_bytes,
        "rename": lambda: path.rename(home / "tmp/renamed"),
        "unlink": (home / "tmp/renamed").unlink,
        "commit to the store": lambda: (store / f"{number % 100}").write_bytes(b"x" * 100),
        "look for an absent name": (store / f"absent{number}").exists,
    }
    seconds = {}
    with _becoming(ALICE):
        for name, operation in operations.items():
            began = time.perf_counter()
            operation()
            seconds[name] = time.perf_counter() - began
    began = time.perf_counter()
    node.status()
    seconds["status (root)"] = time.perf_counter() - began
    return seconds


def _memory_mib(node: Node) -> float:
    lines = Path(f"/proc/{node.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def _descriptors(node: Node) -> int:
    return len(os.listdir(f"/proc/{node.pid}/fd"))


def run(node: Node, *, seconds: float, turns: int) -> tuple[dict[str, list[float]], str]:
    """Flood a started node for ``seconds``, in each way at most ``turns`` times; return ALICE's times and a report."""
    node.checkpoints.chmod(0o1777)
    home = node.work / "mallorys"
    MALLORY.do(home.mkdir)
    for directory in (node.work / "alice_1", node.checkpoints / "alices"):
        ALICE.do(directory.mkdir)
    before, least, known = _memory_mib(node), _descriptors(node), node.status().known_nodes
    ends = multiprocessing.Event()
    floods = [multiprocessing.Process(target=_flood, args=(what, home, ends, turns)) for what in _FLOODS]
    for flood in floods:
        flood.start()
    times: defaultdict[str, list[float]] = defaultdict(list)
    most, until, number = before, time.monotonic() + seconds, 0
    while time.monotonic() < until and any(flood.is_alive() for flood in floods):
        for name, took in _works(node, number).items():
            times[name].append(took)
        most, number = max(most, _memory_mib(node)), number + 1
    ends.set()
    for flood in floods:
        flood.join()
    _remove_what_mallory_made(node)
    report = (
        f"memory {before:.0f} MiB before, {most:.0f} at most, {_memory_mib(node):.0f} after; "
        f"descriptors {least} before, {_descriptors(node)} after; "
        f"nodes {known} before, {node.status().known_nodes} after; events {len(node.events())}"
    )
    return dict(times), report


def _remove_what_mallory_made(node: Node) -> None:
    """Remove it as root does when the user has gone. Raises ``OSError`` if anything can't be removed."""
    for directory in node.work.glob("mallory*"):
        subprocess.run(["rm", "-rf", directory], check=True)


def table(times: dict[str, list[float]]) -> str:
    """Return ALICE's operations with count, median, 99 % and maximum in milliseconds."""
    lines = [f"{'operation':26} {'count':>7} {'median':>9} {'99 %':>9} {'max':>9}  ms"]
    for name, taken in times.items():
        ordered = sorted(taken)
        worst = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        figures = (statistics.median(ordered), worst, ordered[-1])
        lines.append(f"{name:26} {len(ordered):7} " + " ".join(f"{figure * 1000:9.2f}" for figure in figures))
    return "\n".join(lines)


def main() -> None:
    """Run the flood on a node of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--daemon-io", action="store_true", help="the daemon serves the data")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="holdfast-flood-", dir="/var/tmp"))
    directory.chmod(0o755)
    settings = {"mount__passthrough": not options.daemon_io, "log__level": "info"}
    node = Node(directory / "a", f"file://{directory}/remote/c", f"file://{directory}/remote/b", **settings)
    try:
        node.start()
        times, report = run(node, seconds=options.minutes * 60, turns=1 << 30)
        print(table(times))
        print(report)
    finally:
        node.clean_up()
        mountpoint_left = mountpoint.mount_at(str(node.mountpoint))
        if mountpoint_left is None:
            subprocess.run(["rm", "-rf", directory], check=False)


if __name__ == "__main__":
    main()
