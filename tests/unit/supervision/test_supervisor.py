"""When the supervisor starts its daemon again, after which pause, with what, and when it gives up."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.mount.mountpoint import mounted_on
from tests.support.daemons import scripted_daemon
from tests.support.disks.mounts import unserved
from tests.support.users.privileges import needs_root

pytestmark = pytest.mark.slow

_SECONDS = 30.0


class Kept:
    """What a supervisor did with a daemon that carried out ``runs``, one at each start."""

    def __init__(
        self,
        directory: Path,
        *runs: str,
        mountpoint: Path | None = None,
        watchdog: float = 30,
        kept: bool = False,
    ) -> None:
        self._log = directory / "starts"
        self._directory = directory / "run"
        daemon = [sys.executable, scripted_daemon.__file__, str(self._log), *runs]
        options = [
            "--directory",
            str(self._directory),
            "--mountpoint",
            str(mountpoint or directory),
            f"--watchdog={watchdog}",
            *(["--kept"] if kept else []),
        ]
        command = [sys.executable, "-m", "holdfast.supervision.supervisor", *options, "--", *daemon]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def end(self) -> int:
        """Wait for the supervisor's end; return its exit status."""
        _, self.said = self.process.communicate(timeout=_SECONDS)
        assert list(self._directory.iterdir()) == []
        return self.process.returncode

    @property
    def starts(self) -> list[str]:
        """The names of the descriptors that came with each start."""
        return self._log.read_text().splitlines()

    @property
    def pauses(self) -> list[float]:
        return [float(seconds) for seconds in re.findall(r"started again in ([\d.]+) s", self.said)]


def test_sockets_of_dead_supervisors_are_taken_away_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    """In a container, whose processes get the same numbers each time, one is in the way of the next."""
    directory = tmp_path / "run"
    directory.mkdir()
    names = [f"holder-{number}.sock" for number in range(os.getpid(), os.getpid() + 50)]
    for name in names:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
            dead.bind(str(directory / name))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as living:
        living.bind(str(directory / "holder-living.sock"))
        kept = Kept(tmp_path, "ready,exit=0")
        _, said = kept.process.communicate(timeout=_SECONDS)
        assert (kept.process.returncode, said) == (0, "")
        assert os.listdir(directory) == ["holder-living.sock"]


def test_a_daemon_that_ends_in_order_is_not_started_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "ready,exit=0")
    assert (kept.end(), kept.starts, kept.said) == (0, ["-"], "")


@pytest.mark.parametrize(("run", "status"), [("exit=3", 3), ("kill", 128 + signal.SIGKILL)])
def test_a_daemon_that_was_never_ready_is_not_started_again(run: str, status: int, tmp_path: Path) -> None:
    kept = Kept(tmp_path, run)
    assert (kept.end(), kept.starts) == (status, ["-"])


def test_pauses_grow_until_a_daemon_is_ready(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "ready,kill", "exit=1", "kill", "ready,exit=1", "exit=1", "exit=0")
    assert kept.end() == 0
    assert kept.pauses == [0.02, 0.04, 0.08, 0.02, 0.04]


def test_no_pause_is_longer_than_a_second(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "ready,exit=1", *["exit=1"] * 7, "exit=0")
    assert kept.end() == 0
    assert kept.pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1]


def test_a_daemon_that_asks_for_it_is_started_at_once(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "ready,exit=75", "exit=75", "exit=0")
    assert (kept.end(), len(kept.starts), kept.pauses) == (0, 3, [])


@needs_root
def test_what_is_held_comes_with_each_start_until_it_is_let_go(tmp_path: Path) -> None:
    with unserved(tmp_path / "mount") as path:
        kept = Kept(tmp_path, "ready,hold,kill", "kill", "let-go=third,hold-dead,exit=75", "exit=0", mountpoint=path)
        assert kept.end() == 0
        assert kept.starts == ["-", "first:second:third", "first:second:third", "first:second:dead"]
        assert not path.is_mount()


@needs_root
def test_what_a_keeper_holds_too_is_left_by_one_that_gives_up(tmp_path: Path) -> None:
    """As with a mistake in the configuration: kubelet is told, and those who work in the mount wait with the keeper."""
    with unserved(tmp_path / "mount") as path:
        kept = Kept(tmp_path, "ready,hold,kill", "exit=1", "ready,kill", *["exit=3"] * 6, mountpoint=path, kept=True)
        assert (kept.end(), len(kept.starts)) == (3, 8)
        assert mounted_on(str(path)) is not None


def test_it_gives_up_when_what_is_held_is_no_longer_mounted(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "ready,hold,exit=1", "exit=0")
    assert (kept.end(), kept.starts) == (1, ["-"])


@needs_root
def test_it_gives_up_when_all_that_is_held_is_dead(tmp_path: Path) -> None:
    with unserved(tmp_path / "mount") as path:
        kept = Kept(tmp_path, "ready,hold-dead,exit=1", "exit=0", mountpoint=path)
        assert (kept.end(), kept.starts) == (1, ["-"])


@pytest.mark.parametrize("hang", ["silent=60", "deaf,silent=60"])
def test_a_daemon_that_falls_silent_is_replaced(hang: str, tmp_path: Path) -> None:
    kept = Kept(tmp_path, f"ready,alive,{hang}", "exit=0", watchdog=0.5)
    assert (kept.end(), len(kept.starts)) == (0, 2)
    assert "no sign of life for 0.5 s" in kept.said


@pytest.mark.parametrize("before", ["ready", "ready,alive,unwatch"])
def test_a_daemon_that_is_not_watched_may_be_silent(before: str, tmp_path: Path) -> None:
    """One of an earlier version gives no signs of life; one that ends may have to wait for a store."""
    kept = Kept(tmp_path, f"{before},silent=1,exit=0", watchdog=0.2)
    assert (kept.end(), kept.said) == (0, "")


def test_signs_of_life_are_all_that_the_watchdog_wants(tmp_path: Path) -> None:
    kept = Kept(tmp_path, ",".join(["ready", *["alive,silent=0.4"] * 8, "exit=0"]), watchdog=3)
    assert (kept.end(), kept.said) == (0, "")


def test_one_that_is_told_to_end_tells_the_daemon(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "wait,exit=7")
    assert kept.process.stderr is not None
    assert kept.process.stderr.readline() == "waiting\n"
    kept.process.terminate()
    assert (kept.end(), kept.starts) == (7, ["-"])
