"""The pressure on processors is read as the kernel tells it, and is none where it does not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.system.processor_pressure import ProcessorPressure

LINES = "some avg10={average} avg60=1.00 avg300=1.00 total={total}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def test_the_share_is_of_the_time_since_the_last_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, now = tmp_path / "cpu", 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pressure = ProcessorPressure(file)
    file.write_text(LINES.format(average="25.00", total=5_000_000))
    assert pressure.share() == 0.25, "at first the kernel's average"
    now += 0.2
    file.write_text(LINES.format(average="26.00", total=5_150_000))
    assert pressure.share() == pytest.approx(0.75)
    now += 60
    file.write_text(LINES.format(average="2.00", total=35_000_000))
    assert pressure.share() == 0.02, "the last look is too old"


@pytest.mark.parametrize("text", ["", "some\n", "some avg10=x total=1\n", "of another kernel\n"])
def test_what_the_kernel_does_not_say_is_no_pressure(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cpu"
    assert ProcessorPressure(file).share() == 0
    file.write_text(text)
    assert ProcessorPressure(file).share() == 0


def test_this_kernel_says_it() -> None:
    assert 0 <= ProcessorPressure().share() <= 1
