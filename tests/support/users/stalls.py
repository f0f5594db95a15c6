"""How long others wait while one user attacks: a bystander works in a directory of its own, and each of its calls is timed.

    with bystander(node) as waits:
        MALLORY.do(attack)
    waits.check()

The bystander looks for absent names, which takes the daemon's event loop and no disk, and makes, stats, renames and removes
files. So the longest of its waits is at least the longest stall of the loop, and includes the takeover if the daemon dies
meanwhile (``node.supervised``). A call that fails, or has not returned a minute after the body, fails the test. ``waits``
as a text has all figures.

Machines that run tests are busy. While a call took its time, the bystander or the thread of the daemon's event loop may have
been ready to run without a processor (/proc/PID/schedstat; the kernel's sched-stats.rst). That is the machine's fault, and
left out of the net figures, by which ``check`` judges. From the death of a daemon to the end of the call that the next one
answers, only the bystander's own part of it is left out.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.daemons.node import Node, wait_until
from tests.support.users.privileges import ALICE, User

LIMIT_MS = 100.0
"""The longest that anybody may wait because of another user (docs/concurrency.md)."""
_PAUSE_SECONDS = 0.002
_END_SECONDS = 60.0
_RUNNING = struct.Struct("=BdQ")
"""The call that runs, by its place in ``_CALLS``, when it began (``time.monotonic``), and in which round."""
_BEGAN = "began\n"


def look(home: Path, number: int) -> None:
    """Look for a name that nobody has asked for yet."""
    assert not os.path.lexists(home / f"absent-{number}")


def make(home: Path, number: int) -> None:
    """Make a file."""
    os.close(os.open(home / f"f{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def stat(home: Path, number: int) -> None:
    """Ask for the attributes of the file."""
    os.stat(home / f"f{number}")


def rename(home: Path, number: int) -> None:
    """Give the file another name."""
    os.rename(home / f"f{number}", home / f"g{number}")


def remove(home: Path, number: int) -> None:
    """Remove the file."""
    os.unlink(home / f"g{number}")


_CALLS: list[Callable[[Path, int], None]] = [look, make, stat, rename, remove]


@dataclass
class Longest:
    """The longest of the bystander's calls of one kind, and how many there were.

    ``net_ms`` is the longest without the time for which a processor was missing; it may be that of another call.
    """

    calls: int = 0
    ms: float = 0.0
    net_ms: float = 0.0

    def add(self, ms: float, net_ms: float) -> None:
        """Count a call."""
        self.calls, self.ms, self.net_ms = self.calls + 1, max(self.ms, ms), max(self.net_ms, net_ms)


@dataclass
class Waits:
    """How long the bystander's calls took, by kind; empty until the body of ``bystander`` has ended."""

    round_now: Callable[[], int]
    by_call: dict[str, Longest] = field(default_factory=dict)

    def wait_rounds(self, count: int) -> None:
        """Wait until the bystander has done all of its calls so many times more. Call it in the body of ``bystander``."""
        end = self.round_now() + count + 1
        wait_until(lambda: self.round_now() >= end)

    @property
    def longest_ms(self) -> float:
        """The longest wait, as the bystander felt it."""
        return max(longest.ms for longest in self.by_call.values())

    @property
    def longest_net_ms(self) -> float:
        """The longest wait that is not the fault of a busy machine."""
        return max(longest.net_ms for longest in self.by_call.values())

    def check(self, limit_ms: float = LIMIT_MS) -> None:
        """Fail if the bystander has waited for longer."""
        assert self.longest_net_ms <= limit_ms, str(self)

    def __str__(self) -> str:
        return "; ".join(
            f"{name}: {longest.calls} calls, at most {longest.ms:.1f} ms, {longest.net_ms:.1f} ms net"
            for name, longest in self.by_call.items()
        )


@contextmanager
def bystander(node: Node, user: User = ALICE) -> Iterator[Waits]:
    """Let a process of ``user`` work in a started ``node`` while the body runs, and time its calls.

    It has done each of them once when the body begins.
    """
    home = node.work / f"bystander_{time.monotonic_ns()}"
    daemon = node.pid_now
    end_reader, end = os.pipe()
    with mmap.mmap(-1, mmap.PAGESIZE) as running:
        waits = Waits(lambda: _RUNNING.unpack_from(running)[2])

        def work(told: int) -> None:
            os.close(end)
            _work(home, daemon, running, told, end_reader)

        pid, reader = user.fork(work)
        os.close(end_reader)
        try:
            with open(reader) as channel:
                began = channel.readline()
                assert began == _BEGAN, began + channel.read()
                yield waits
                os.close(end)
                end = -1
                waits.by_call = _told(channel.fileno(), running)
        except BaseException:
            os.kill(pid, signal.SIGKILL)  # and don't wait: it may be waiting itself, for a daemon that hangs
            raise
        finally:
            if end >= 0:
                os.close(end)
        os.waitpid(pid, 0)


def _told(reader: int, running: mmap.mmap) -> dict[str, Longest]:
    """Return what the bystander tells at its end, which is when it closes the pipe."""
    said = b""
    while select.select([reader], [], [], _END_SECONDS)[0]:
        part = os.read(reader, mmap.PAGESIZE)
        if part:
            said += part
            continue
        assert said.startswith(b"{"), f"a call of the bystander failed:\n{said.decode()}"
        return {name: Longest(**figures) for name, figures in json.loads(said).items()}
    call, began, _ = _RUNNING.unpack_from(running)
    raise AssertionError(
        f"the bystander's call '{_CALLS[call].__name__}' has not returned for {time.monotonic() - began:.0f} s"
    )


def _work(home: Path, daemon: Callable[[], int], running: mmap.mmap, told: int, end: int) -> None:
    """Be the bystander, until the other side of ``end`` is closed."""
    longest = {call.__name__: Longest() for call in _CALLS}
    home.mkdir()
    for number in itertools.count():
        for index, call in enumerate(_CALLS):
            process = daemon()
            unserved = _unserved_ns(os.getpid()), _unserved_ns(process)
            began = time.monotonic()
            _RUNNING.pack_into(running, 0, index, began, number)
            call(home, number)
            ms = (time.monotonic() - began) * 1e3
            missing = _unserved_ns(os.getpid()) - unserved[0]
            if daemon() == process:
                missing += _unserved_ns(process) - unserved[1]
            longest[call.__name__].add(ms, max(0.0, ms - missing / 1e6))
        if number == 0:
            os.write(told, _BEGAN.encode())
        if select.select([end], [], [], _PAUSE_SECONDS)[0]:
            break
    os.write(told, json.dumps({name: vars(each) for name, each in longest.items()}).encode())


def _unserved_ns(pid: int) -> int:
    """Return for how long the first thread of a process has been ready to run without a processor; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
