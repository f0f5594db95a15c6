"""How the demo learns that the job which it has killed is gone, and that one which says nothing is at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_spark.demo import driver as module
from holdfast_spark.demo.driver import Driver, DriverError, _group_lives

pytestmark = pytest.mark.slow

COMPUTES = """
import json, time
end = time.process_time() + 1.2
while time.process_time() < end:
    pass
print(json.dumps({"done": 0, "rows": 1, "milliseconds": 600}), flush=True)
"""
IDLES = "import signal; signal.pause()"


def test_a_killed_process_that_nobody_reaps_is_not_alive() -> None:
    """As in a container, whose first process knows nothing of other people's children."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        assert _group_lives(process.pid)
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
        os.killpg(process.pid, 0)
        assert not _group_lives(process.pid)


def test_a_group_goes_on_without_its_leader() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!"], start_new_session=True, stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        leader.wait()
        assert _group_lives(leader.pid)
        os.kill(child, signal.SIGKILL)


def driver(job: str, log: Path, patience_seconds: float) -> Driver:
    return Driver([], log, [sys.executable, "-c", job], patience_seconds)


def test_a_job_that_computes_for_longer_than_the_demo_is_patient_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_SILENCES", 1000)
    running = driver(COMPUTES, tmp_path / "log", patience_seconds=1.0)
    heard: list[int] = []
    running.run_to_end(lambda batch: heard.append(batch.number))
    assert heard == [0]
    assert running.first_batch_seconds > 1.2


def test_a_job_that_neither_speaks_nor_computes_is_given_up(tmp_path: Path) -> None:
    running = driver(IDLES, tmp_path / "log", patience_seconds=2)
    with pytest.raises(DriverError, match="said nothing for"):
        running.run_to_end(lambda batch: None)
    assert running.has_ended
