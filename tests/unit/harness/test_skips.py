"""The summary of skipped tests at the end of a run."""

from __future__ import annotations

import pytest

from tests.support.reporting.skips import skips_by_reason


def skipped(line: int, reason: str) -> pytest.TestReport:
    """Return pytest's report of a test that was skipped at this line."""
    place = ("test_a.py", line)
    return pytest.TestReport("test_a.py::test", (*place, "test"), {}, "skipped", (*place, f"Skipped: {reason}"), "setup")


def test_skipped_tests_are_counted_by_reason_wherever_they_are() -> None:
    reports = [skipped(7, "needs npm"), skipped(1, "needs mvn"), skipped(9, "needs mvn")]
    assert skips_by_reason(reports) == [("needs mvn", 2), ("needs npm", 1)]


def test_a_reason_of_several_lines_takes_one() -> None:
    assert skips_by_reason([skipped(1, "go install failed:\n  no network\n")]) == [("go install failed: no network", 1)]
