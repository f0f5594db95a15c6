"""The demo's job as tests run it: on any node, to the end of a batch or to a kill in the middle of one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast_spark.demo.driver import Batch, Driver
from holdfast_spark.pipeline.data import FLIGHTS, arrive, split_flights
from tests.support.daemons.node import Node

FILES = 60
"""Of which most tests take the first few: small batches show requests as well as large ones."""
ROWS_OF_A_FILE = -(-FLIGHTS // FILES)
"""The last of them has fewer."""


class Job:
    """The flights job of one test: its files, its result, and drivers on any node. ``settings`` are Spark's."""

    def __init__(self, directory: Path, files: int = FILES, settings: Mapping[str, str] | None = None) -> None:
        self.input, self.output, self.log = directory / "arriving", directory / "output", directory / "driver.log"
        self.settings = dict(settings or {})
        self._staged = split_flights(directory / "flights", files)

    def arrive(self, first: int, last: int) -> None:
        for path in self._staged[first : last + 1]:
            arrive(path, self.input)

    def run(
        self,
        node: Node,
        until: int,
        *,
        kill_in: int | None = None,
        before_kill: Callable[[], None] | None = None,
        tell: Callable[[Batch], None] | None = None,
    ) -> None:
        """Run to the end of batch ``until``, or SIGKILL everything in the middle of batch ``kill_in``."""
        command = ["--input", str(self.input), "--output", str(self.output)]
        command += ["--until", str(until), "--socket", str(node.socket)]
        command += [f"--conf={key}={value}" for key, value in self.settings.items()]
        driver = Driver(command, self.log)
        try:
            if kill_in is None:
                driver.run_to_end(tell or _nothing)
            else:
                driver.run_until_entered(kill_in, tell or _nothing)
                if before_kill is not None:
                    before_kill()
        finally:
            driver.kill()

    def differences(self) -> dict[str, int]:
        """Compare with a batch computation over the same files."""
        command = [sys.executable, "-m", "holdfast_spark.pipeline.check"]
        paths = ["--input", str(self.input), "--output", str(self.output)]
        with self.log.open("ab") as log:
            done = subprocess.run([*command, *paths], stdout=subprocess.PIPE, stderr=log, text=True, check=False)
        answer: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
        return answer


def _nothing(batch: Any) -> None:
    del batch
