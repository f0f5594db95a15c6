"""What the job's process says is heard at once, also what it says in one breath."""

from __future__ import annotations

from pathlib import Path

from holdfast_spark.demo.driver import Batch, Driver

_SAYS_TWO_THINGS_AT_ONCE = """printf '{"entered": 0}\\n{"done": 0, "rows": 1, "milliseconds": 2}\\n'; exec sleep 600"""


def test_two_lines_that_come_together_are_two_facts(tmp_path: Path) -> None:
    driver = Driver([], tmp_path / "log", ("sh", "-c", _SAYS_TWO_THINGS_AT_ONCE), patience_seconds=5)
    done: list[Batch] = []
    try:
        driver.run_until_entered(0, done.append)
        driver.run_until_done(0, done.append)
        assert not driver.has_ended
    finally:
        driver.kill()
    assert driver.has_ended
    assert done == [Batch(0, 1, 2)]
