"""Why tests were skipped, for the end of a run.

Pytest's own list has a line for each place that skips. Where a program is missing, those are hundreds, with few reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest


def skips_by_reason(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[tuple[str, int]]:
    """Return each reason in one line, with the number of tests, the most frequent first."""
    return Counter(_reason(report) for report in reports).most_common()


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    assert isinstance(report.longrepr, tuple)
    _, _, reason = report.longrepr
    return " ".join(reason.removeprefix("Skipped: ").split())
