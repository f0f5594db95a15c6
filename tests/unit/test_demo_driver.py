"""How the demo learns that the job which it has killed is gone."""

from __future__ import annotations

import os
import signal
import subprocess

from holdfast_spark.demo.driver import _group_lives


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
