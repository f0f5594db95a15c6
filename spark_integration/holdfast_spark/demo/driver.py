"""The job's driver as a process: started, watched batch by batch, killed without warning."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_SILENCE_SECONDS = 180.0
_WORKING_SHARE = 0.05
"""A job that uses this share of one processor is at work, however slow the machine; an idle JVM uses a hundredth."""
_MOST_SILENCES = 10
_TICKS = os.sysconf("SC_CLK_TCK")
_LINES_SHOWN = 25
_USER_TICKS = 11
"""The position of utime in a process's fields; stime, cutime and cstime follow."""
_ENDED = ("Z", "X")
"""States of a process that has ended, and waits for its parent at most (proc(5))."""


class DriverError(Exception):
    """The job ended, or was silent for too long; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished batch."""

    number: int
    rows: int
    milliseconds: int


class Driver:
    """The pipeline in its own process group, Python and JVM together. ``python`` is the command that runs Python.

    It fails if it is silent, and does not compute, for ``patience_seconds``; if it computes, for ten times that.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        python: Sequence[str] = (sys.executable,),
        patience_seconds: float = _SILENCE_SECONDS,
    ) -> None:
        self.first_batch_seconds = 0.0
        self._reached = {"entered": -1, "done": -1}
        self._log = log
        self._patience_seconds = patience_seconds
        self._started = time.monotonic()
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [*python, "-P", "-m", "holdfast_spark.pipeline", *command],
                stdout=subprocess.PIPE,
                stderr=stream,
                bufsize=0,  # select does not see what is in a buffer
                start_new_session=True,
            )

    def run_until_entered(self, batch: int, tell: Callable[[Batch], None]) -> None:
        """Return in the middle of the first batch with this number or a higher one, or at once if it has been heard of."""
        self._run_until("entered", batch, tell)

    def run_until_done(self, batch: int, tell: Callable[[Batch], None]) -> None:
        """Return when a batch with this number or a higher one is committed."""
        self._run_until("done", batch, tell)

    def _run_until(self, milestone: str, batch: int, tell: Callable[[Batch], None]) -> None:
        """Return when the job has reached this point of a batch.

        ``entered`` of a batch may be read while ``done`` of the one before it is waited for, so what was read is remembered.
        """
        facts = self._facts(tell)
        while self._reached[milestone] < batch:
            if next(facts, None) is None:
                raise self._failure(f"the job ended before batch {batch} was {milestone}")

    def run_to_end(self, tell: Callable[[Batch], None]) -> None:
        """Return when the job has ended by itself."""
        for _ in self._facts(tell):
            pass
        self._wait_end()
        if self._process.returncode != 0:
            raise self._failure("the job failed")

    @property
    def has_ended(self) -> bool:
        """True if the job has ended, however it did."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL Python and JVM, unless they have ended; return when both are gone."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._wait_end()

    def _wait_end(self) -> None:
        self._process.wait()
        while _group_lives(self._process.pid):
            time.sleep(0.01)  # the JVM is not our child, so its end gives no signal
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _facts(self, tell: Callable[[Batch], None]) -> Iterator[dict[str, int]]:
        channel = self._process.stdout
        assert channel is not None
        while True:
            self._listen(channel)
            line = channel.readline()
            if not line:
                return
            fact: dict[str, int] = json.loads(line)
            for milestone in fact.keys() & self._reached:
                self._reached[milestone] = max(self._reached[milestone], fact[milestone])
            if "done" in fact:
                self._note(Batch(fact["done"], fact["rows"], fact["milliseconds"]), tell)
            yield fact

    def _listen(self, channel: IO[bytes]) -> None:
        """Return when there is something to read. Kills a job that neither speaks nor works, and raises ``DriverError``."""
        silences, before = 0, _processor_seconds(self._process.pid)
        while not select.select([channel], [], [], self._patience_seconds)[0]:
            silences += 1
            now = _processor_seconds(self._process.pid)
            if silences == _MOST_SILENCES or now - before < _WORKING_SHARE * self._patience_seconds:
                self.kill()
                raise self._failure(f"the job said nothing for {silences * self._patience_seconds:.0f} s")
            before = now

    def _note(self, batch: Batch, tell: Callable[[Batch], None]) -> None:
        if not self.first_batch_seconds:
            self.first_batch_seconds = time.monotonic() - self._started
        tell(batch)

    def _failure(self, what: str) -> DriverError:
        end = self._log.read_text(errors="replace").splitlines()[-_LINES_SHOWN:]
        return DriverError("\n  ".join([f"{what}; the end of its log:", *end]))


def _group_lives(group: int) -> bool:
    """Say whether a process of the group is left.

    Zombies are not: a container whose first process reaps none keeps a JVM that we have killed as one for ever.
    """
    return any(state not in _ENDED for state, *_ in _processes(group))


def _processor_seconds(group: int) -> float:
    """Return how long the processes of the group have computed, those that they have waited for included."""
    return sum(sum(map(int, fields[_USER_TICKS : _USER_TICKS + 4])) for fields in _processes(group)) / _TICKS


def _processes(group: int) -> Iterator[list[str]]:
    """Yield the fields of each process of the group from the third on, its state (proc_pid_stat(5))."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, text = status.read_text(errors="replace").rpartition(")")  # the name before it may contain anything
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        fields = text.split()
        if int(fields[2]) == group:
            yield fields
