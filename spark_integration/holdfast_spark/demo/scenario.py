"""The acts of the demo, and the daemon's counters in each."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.control.client import ControlClient
from holdfast.control.messages import Status
from holdfast.mount import covered_directory, mountpoint
from holdfast_spark.demo.driver import Batch, Driver
from holdfast_spark.demo.report import Report
from holdfast_spark.pipeline.data import arrive, split_flights

NAME = "flights"


@dataclass(slots=True)
class Act:
    """One act, which ends with a kill or with the job. Counts are of this act alone."""

    title: str
    batches: str = ""
    hits: int = 0
    misses: int = 0
    bytes_fetched: int = 0
    corrupt_dropped: int = 0
    first_batch_seconds: float = 0.0


class Stage:
    """The directories of one demo, and its node. ``remote`` is a URL below which its stores are: empty, a directory here."""

    def __init__(self, directory: Path, remote: str, report: Report) -> None:
        self.directory = directory
        self.mountpoint = directory / "mount"
        self.store = directory / "node" / "store"
        self.remote = remote.rstrip("/") or f"file://{directory}/remote"
        self.input = directory / "arriving"
        self.output = directory / "output"
        self.socket = directory / "run" / "control.sock"
        self.log = directory / "driver.log"
        self._report = report
        self.mountpoint.mkdir(parents=True)

    def holdfast(self, *arguments: str) -> None:
        """Run the holdfast command."""
        command = [sys.executable, "-P", "-m", "holdfast", *arguments, "--socket", str(self.socket)]
        # allow_other takes root, or user_allow_other in /etc/fuse.conf; no other user is needed here
        environment = {**os.environ, "HOLDFAST_MOUNT__ALLOW_OTHER": "false"}
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if result.returncode != 0:
            raise RuntimeError(result.stderr.strip())

    def mount(self) -> None:
        """Start the daemon. Options of its stores come from the environment, as a daemon's do."""
        remote = [f"--{zone}={self.remote}/{zone}" for zone in ("checkpoints", "blobs")]
        self.holdfast("mount", str(self.mountpoint), "--store", str(self.store), *remote)

    def lose_node(self) -> None:
        """SIGKILL the daemon, and delete everything on the node's disk."""
        os.kill(self.status().pid, signal.SIGKILL)
        mountpoint.detach(str(self.mountpoint))
        shutil.rmtree(self.store)

    def status(self) -> Status:
        """Return the daemon's status."""
        with ControlClient(self.socket) as client:
            return client.status()

    def committed(self) -> int:
        """Return the number of batches committed in the remote store, by what the node sees of it."""
        commits = self.mountpoint / "checkpoints" / NAME / "commits"
        numbers = [int(path.name) for path in commits.iterdir() if path.name.isdecimal()] if commits.exists() else []
        return max(numbers, default=-1) + 1

    def start_driver(self, until: int) -> Driver:
        """Start the job, to run up to batch ``until``."""
        command = ["--input", str(self.input), "--output", str(self.output), "--name", NAME]
        return Driver([*command, "--until", str(until), "--socket", str(self.socket)], self.log)

    def flip_a_byte(self) -> Path:
        """Damage a cached file that the next start will read: the newest changelog of the state."""
        state = self.store / "tree" / "checkpoints" / NAME / "state" / "0"
        newest = max(state.glob("*/*.changelog"), key=lambda path: (int(path.stem.partition("_")[0]), path.parent.name))
        with newest.open("r+b") as file:
            file.seek(newest.stat().st_size // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 0x01]))
        return newest.relative_to(self.store / "tree")

    @contextmanager
    def act(self, act: Act) -> Iterator[None]:
        """Count the daemon's work in the block."""
        before = self.status().counters
        yield
        after = self.status().counters
        for name in ("hits", "misses", "bytes_fetched", "corrupt_dropped"):
            setattr(act, name, after[name] - before[name])

    def close(self) -> None:
        """End the daemon, in whatever state it is, and leave a directory that can be removed."""
        if mountpoint.mount_at(str(self.mountpoint)) is not None:
            mountpoint.detach(str(self.mountpoint))
        covered_directory.release(str(self.mountpoint))


def play(stage: Stage, files: int, report: Report) -> list[Act]:
    """Play all acts; return them with their counts."""
    third = files // 3
    staged = split_flights(stage.directory / "flights", files)
    report.say(f"{files} files of {staged[0].stat().st_size // 1024} KiB are ready to arrive")
    stage.mount()
    report.say(f"mounted on {stage.mountpoint}; the remote store is {stage.remote}")
    acts = [Act("fresh start"), Act("killed, one byte flipped"), Act("killed, node lost")]
    blows = [third, 2 * third, None]
    for number, (act, blow) in enumerate(zip(acts, blows, strict=True)):
        report.act(number + 1, len(acts), act.title)
        for path in staged[number * third : (number + 1) * third if number < 2 else files]:
            arrive(path, stage.input)
        with stage.act(act):
            _perform(stage, act, blow, files, report)
        if number == 0:
            report.say(f"flipped a byte of {stage.flip_a_byte()} in the node's cache")
        if number == 1:
            stage.lose_node()
            report.say("SIGKILLed the daemon and deleted the node's whole local store")
            stage.mount()
            report.say("mounted again, with nothing cached")
    return acts


def _perform(stage: Stage, act: Act, blow: int | None, files: int, report: Report) -> None:
    before = stage.committed()
    driver = stage.start_driver(files - 1)
    report.say("started the job: a Python driver and its JVM")

    def tell(batch: Batch) -> None:
        report.batch(batch, files)

    try:
        if blow is None:
            driver.run_to_end(tell)
        else:
            driver.run_until_entered(blow - 1, tell)
    finally:
        driver.kill()
    after = stage.committed()
    if blow is not None:
        report.say(f"SIGKILLed driver and JVM in the middle of batch {blow}; {after} batches are committed")
    act.batches = f"{before + 1}–{after}"
    act.first_batch_seconds = driver.first_batch_seconds
