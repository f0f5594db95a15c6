"""How the benchmark's lines to a store are written."""

from __future__ import annotations

import pytest

from tests.benchmarks.store_lines import StoreLine


@pytest.mark.parametrize(
    ("text", "name", "said", "away_seconds", "bytes_per_second"),
    [
        ("30", "30ms", "30 ms away", 0.015, 0),
        ("0", "0ms", "0 ms away", 0.0, 0),
        ("5:1000", "5ms-1000mbit", "5 ms away, 1000 Mbit/s", 0.0025, 125_000_000),
    ],
)
def test_a_line_is_told_by_its_distance_and_its_width(
    text: str, name: str, said: str, away_seconds: float, bytes_per_second: int
) -> None:
    line = StoreLine.parse(text)
    assert (line.name, str(line)) == (name, said)
    assert (line.away_seconds, line.bytes_per_second) == (away_seconds, bytes_per_second)


def test_what_is_no_line_is_refused() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        StoreLine.parse("far")
