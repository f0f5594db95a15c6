"""What the job's process says is heard at once, also what it says in one breath."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast_spark.demo.driver import Batch, Driver, DriverError

_SAYS_TWO_THINGS_AT_ONCE = """printf '{"entered": 0}\\n{"done": 0, "rows": 1, "milliseconds": 2}\\n'; exec sleep 600"""
_ENTERS_BEFORE_THE_LAST_IS_DONE = (
    """printf '{"entered": 1}\\n{"done": 0, "rows": 1, "milliseconds": 2}\\n'; exec sleep 600"""
)


@contextmanager
def saying(script: str, directory: Path) -> Iterator[Driver]:
    """A driver whose job is a shell script; it is killed at the end."""
    driver = Driver([], directory / "log", ("sh", "-c", script), patience_seconds=5)
    try:
        yield driver
    finally:
        driver.kill()


def test_two_lines_that_come_together_are_two_facts(tmp_path: Path) -> None:
    done: list[Batch] = []
    with saying(_SAYS_TWO_THINGS_AT_ONCE, tmp_path) as driver:
        driver.run_until_entered(0, done.append)
        driver.run_until_done(0, done.append)
        assert not driver.has_ended
    assert driver.has_ended
    assert done == [Batch(0, 1, 2)]


def test_what_was_heard_of_is_not_waited_for_again(tmp_path: Path) -> None:
    done: list[Batch] = []
    with saying(_ENTERS_BEFORE_THE_LAST_IS_DONE, tmp_path) as driver:
        driver.run_until_done(0, done.append)
        driver.run_until_entered(1, done.append)
        driver.run_until_done(0, done.append)
    assert done == [Batch(0, 1, 2)]


def test_a_job_that_ends_too_early_is_an_error_that_names_the_batch(tmp_path: Path) -> None:
    with saying("""echo '{"entered": 3}'""", tmp_path) as driver:
        driver.run_until_entered(3, lambda batch: None)
        with pytest.raises(DriverError, match="the job ended before batch 3 was done"):
            driver.run_until_done(3, lambda batch: None)
