"""What happens to a node in a long run of everything at once: kills, faults and outages of its store, commands."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.support.daemons.node import Node, wait_until
from tests.support.stores.fault_proxy import FaultProxy

_LONGEST_OUTAGE_SECONDS = 4.0
_FLUSH_SECONDS = 1.0
_FIELDS = re.compile(r"^(VmRSS|RssAnon|Threads):\s+(\d+)", re.MULTILINE)


class Disturbances:
    """Does one thing after the other to ``node`` and to its store behind ``proxy``; ``done`` counts them."""

    def __init__(self, node: Node, proxy: FaultProxy, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._node = node
        self._proxy = proxy
        self._random = random.Random(seed)
        self._deadly: dict[str, Callable[[], None]] = {"kill": node.kill_daemon, "planned takeover": self._replace}
        self._harmless: dict[str, Callable[[], None]] = {
            "store away": self._outage,
            "store refuses": lambda: proxy.answer(503, times=self._random.randint(1, 20)),
            "answers lost": lambda: proxy.lose_answers(times=self._random.randint(1, 5)),
            "answers cut off": lambda: proxy.truncate_answers(times=self._random.randint(1, 5)),
            "store slow": self._slow,
            "evict": lambda: self._follow("evict"),
            "prefetch": lambda: self._follow("prefetch"),
            "verify": lambda: self._follow("verify"),
            "flush": lambda: self._follow("flush"),
            "reload": self._reload,
        }

    def next(self, *, deadly: bool) -> None:
        """Do something; only if ``deadly``, the daemon may be killed or replaced, which is then done half of the time."""
        kinds = self._deadly if deadly and self._random.random() < 0.5 else self._harmless
        kind = self._random.choice(sorted(kinds))
        kinds[kind]()
        self.done[kind] += 1

    def end(self) -> None:
        """Let the store be well again."""
        self._proxy.heal()
        self._proxy.up()

    def _replace(self) -> None:
        wait_until(self._node.answers)
        with self._node.client() as client:
            client.restart()

    def _reload(self) -> None:
        wait_until(self._node.answers)
        with self._node.client() as client:
            client.reload()

    def _outage(self) -> None:
        self._proxy.down()
        threading.Event().wait(self._random.uniform(0.2, _LONGEST_OUTAGE_SECONDS))
        self._proxy.up()

    def _slow(self) -> None:
        self._proxy.delay_seconds = self._random.choice([0.0, 0.005, 0.03])

    def _follow(self, command: str) -> None:
        """Give a command for all that is in the stores, and read what it says to its end."""
        wait_until(self._node.answers)
        path = str(self._node.checkpoints)
        with self._node.client() as client:
            steps = {
                "evict": lambda: client.evict(path),
                "prefetch": lambda: client.prefetch(path),
                "verify": lambda: client.verify(path),
                "flush": lambda: client.flush(None, _FLUSH_SECONDS),
            }
            for _ in steps[command]():
                pass


def sample(pid: int) -> dict[str, int]:
    """Return what a process uses: memory in bytes (all, and its own without pages of files), threads, descriptors."""
    found = dict(_FIELDS.findall(Path(f"/proc/{pid}/status").read_text()))
    return {
        "resident_bytes": int(found["VmRSS"]) * 1024,
        "own_bytes": int(found["RssAnon"]) * 1024,
        "threads": int(found["Threads"]),
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
    }
