"""The process of a Spark job: started, given files, stopped while others have their turn, killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast_spark.pipeline.data import arrive
from tests.benchmarks.machine import processor_seconds
from tests.benchmarks.rows import Site

_SILENCE_SECONDS = 300.0


@dataclass
class Place:
    """Where one side keeps its state. ``checkpoint`` is a URL.

    ``backing``: the checkpoint's directory on the plain disk, None if it is not on this node. ``settings`` are Spark's.
    ``socket``: that of the daemon that serves it, None if there is none.
    """

    local: Path
    checkpoint: str
    backing: Path | None
    settings: Mapping[str, str] = field(default_factory=dict)
    socket: Path | None = None

    @property
    def keeps_classes(self) -> bool:
        """True if drivers there keep an archive of their classes: if it is asked for, and they are served by a daemon."""
        return self.socket is not None and os.environ.get("HOLDFAST_BENCH_CLASS_ARCHIVE") == "yes"


def written_bytes(processes: Iterable[int | None]) -> int:
    """Return what these processes have made the kernel write to disks."""
    found = 0
    for pid in processes:
        if pid is not None:
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
            found += next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))
    return found


def processor_milliseconds(processes: Iterable[int | None]) -> float:
    """Return the processor time that these processes have taken, in user and in kernel mode."""
    seconds = 0.0
    for pid in processes:
        with suppress(OSError):  # it has ended
            seconds += processor_seconds(pid) if pid is not None else 0.0
    return seconds * 1000


def _group_of(pid: int) -> int:
    """Return the process group; 0 if the process has just ended."""
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return 0


@dataclass
class Job:
    """A job at one site: ``spark_job`` as a process group, and the files that arrive for it."""

    query: str
    site: Site
    place: Place
    arrived: int = 0
    start_milliseconds: float = 0.0
    """The duration of the last ``start``."""
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Return when there is a session; ``go`` starts the query."""
        began = time.monotonic()
        directory = self.site.front
        self.place.local.mkdir(parents=True, exist_ok=True)
        (directory / "input").mkdir(exist_ok=True)
        paths = {"input": directory / "input", "output": directory / "output"}
        paths |= {"local": self.place.local}
        if self.place.socket is not None:
            paths |= {"socket": self.place.socket}
        options = [f"--{name}={path}" for name, path in paths.items()] + [f"--checkpoint={self.place.checkpoint}"]
        options += ["--class-archive"] * self.place.keeps_classes
        options += [f"--conf={key}={value}" for key, value in self.place.settings.items()]
        with (directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.benchmarks.spark_job", "--query", self.query, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._next_fact()
        self.start_milliseconds = 1000 * (time.monotonic() - began)

    def go(self) -> None:
        """Start the query."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def batch(self, content: Path) -> dict[str, Any]:
        """Let one file arrive; return what Spark says of the batch that takes it."""
        renamed = content.with_name(f"{self.arrived:04}-{content.name}")
        os.link(content, renamed)
        try:
            arrive(renamed, self.site.front / "input")
        finally:
            renamed.unlink()
        self.arrived += 1
        return self._next_fact()

    def stop(self) -> None:
        """Stop Python and JVM until ``resume``."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let both go on."""
        self._signal(signal.SIGCONT)

    def written_bytes(self) -> int:
        """Return what Python and JVM have written to disks so far."""
        return written_bytes(self._processes())

    def processor_milliseconds(self) -> float:
        """Return the processor time that Python and JVM have taken so far."""
        return processor_milliseconds(self._processes())

    def kill(self) -> None:
        """SIGKILL Python and JVM; return when both are gone."""
        self._signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
            descriptors = [channel for channel in (self.process.stdin, self.process.stdout) if channel is not None]
            if self.process.stdout is not None:
                self.process.stdout.read()  # the JVM has it too: it ends with the last of them
            for channel in descriptors:
                with suppress(BrokenPipeError):
                    channel.close()
            self.process = None

    def _processes(self) -> list[int]:
        assert self.process is not None
        group = self.process.pid
        processes = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return [pid for pid in processes if _group_of(pid) == group]

    def _signal(self, number: int) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def _next_fact(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        ready = select.select([self.process.stdout], [], [], _SILENCE_SECONDS)[0]
        line = self.process.stdout.readline() if ready else ""
        if not line:
            log = (self.site.front / "log").read_text(errors="replace").splitlines()
            raise AssertionError("\n".join(["the Spark job ended, or says nothing; the end of its log:", *log[-25:]]))
        fact: dict[str, Any] = json.loads(line)
        return fact
