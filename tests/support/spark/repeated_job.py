"""The demo's Spark job over and over: its driver is killed in the middle and started again, its answer compared."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast_spark.demo.driver import Batch, Driver, DriverError
from holdfast_spark.pipeline.data import arrive, split_flights
from tests.support.daemons.node import Node

_FILES = 24
_NAME = "flights"
_PATIENCE_SECONDS = 900.0
"""On a machine that has other work, and with a daemon that is killed every few seconds."""


class RepeatedJob:
    """Runs the job on ``node`` while ``running``; what it has done stands in ``starts``, ``batches`` and ``answers``.

    A query that has answered is deleted with its checkpoint, and the next begins.
    """

    def __init__(self, directory: Path, node: Node) -> None:
        self.starts = self.batches = self.answers = 0
        self._node = node
        self._directory = directory
        self._random = random.Random(_FILES)
        self._problem: BaseException | None = None
        self._driver: Driver | None = None
        self._lock = threading.Lock()
        self._stopping = False
        for path in split_flights(directory / "flights", _FILES):
            arrive(path, directory / "arriving")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run it in a thread until the block ends; then the driver is killed, wherever it is."""
        self._stopping = False
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._stopping = True
                if self._driver is not None:
                    self._driver.kill()
            thread.join()
        self.check()

    def check(self) -> None:
        """Fail if it has failed."""
        if self._problem is not None:
            raise AssertionError(f"Spark: {self._problem}") from self._problem

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._one_driver()
        except (DriverError, ValueError) as problem:  # its output may be closed by now
            if not self._stopping:
                self._problem = problem
        except BaseException as problem:  # noqa: BLE001 the other thread tells it
            self._problem = problem

    def _one_driver(self) -> None:
        """Run a driver until it has done all batches, or is killed in the middle of one."""
        with self._lock:
            if self._stopping:
                return
            self._driver = driver = Driver(
                self._arguments(), self._directory / "driver.log", patience_seconds=_PATIENCE_SECONDS
            )
        self.starts += 1
        commits = self._node.checkpoints / _NAME / "commits"
        begun = max((int(path.name) for path in commits.glob("[0-9]*")), default=-1) + 1 if commits.exists() else 0
        last = self._random.randrange(begun + 1, _FILES + _FILES // 3)
        try:
            if last < _FILES:
                driver.run_until_entered(last, self._note)
                driver.kill()
            else:
                driver.run_to_end(self._note)
                self._compare()
        finally:
            driver.kill()

    def _arguments(self) -> list[str]:
        return [*self._paths(), "--name", _NAME, "--until", str(_FILES - 1), "--socket", str(self._node.socket)]

    def _paths(self) -> list[str]:
        return ["--input", str(self._directory / "arriving"), "--output", str(self._directory / "output")]

    def _note(self, _: Batch) -> None:
        self.batches += 1

    def _compare(self) -> None:
        command = [sys.executable, "-m", "holdfast_spark.pipeline.check", *self._paths()]
        with (self._directory / "driver.log").open("ab") as log:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
        answer = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
        assert (answer.get("missing"), answer.get("wrong")) == (0, 0), f"the answer is wrong: {answer}"
        self.answers += 1
        shutil.rmtree(self._node.checkpoints / _NAME)
        shutil.rmtree(self._directory / "output")
