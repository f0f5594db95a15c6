"""How far a job is: told to terminals at once, to logs now and then."""

from __future__ import annotations

import io
import re
import threading

import pytest

from holdfast_spark.jobs import progress
from holdfast_spark.jobs.progress import Progress


class Stream(io.StringIO):
    """Tells when something is written."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_long_step_says_that_it_is_under_way(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    monkeypatch.setattr(progress, "_SECONDS", 0.001)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.001)
    stream = Stream(is_terminal=is_terminal)
    with Progress("holdfast x", stream).step("listing"):
        assert stream.written.wait(60)
    told = stream.getvalue()
    assert told.startswith("\r\033[Kholdfast x: listing …" if is_terminal else "holdfast x: listing\n")
    assert told.endswith(" s\n")


def test_a_short_step_is_one_line_in_a_log() -> None:
    stream = Stream(is_terminal=False)
    with Progress("holdfast x", stream).step("listing"):
        pass
    assert re.fullmatch(r"holdfast x: listing: [\d.]+ s\n", stream.getvalue())
