"""What the report on usage says: the right sums, for the right owners, in one file that needs nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from holdfast_spark.jobs.formatting import counted, table
from holdfast_spark.jobs.owners import Owners
from holdfast_spark.jobs.plots import lines
from holdfast_spark.jobs.usage_report import Amount, Usage, report

DAY_NS = 86400 * 10**9
MIB = 2**20
UUID = "0a1b2c3d-4e5f-6789-abcd-ef0123456789"
HOSTILE = "<script>alert('&\"')</script>"


def usage(*amounts: Amount, times: tuple[int, ...] = (0,)) -> Usage:
    return Usage("s3://bucket/checkpoints", times, amounts)


def test_sums_and_growth() -> None:
    found = usage(
        Amount(0, "a", "state", 1, MIB),
        Amount(2 * DAY_NS, "a", "state", 2, 3 * MIB),
        Amount(2 * DAY_NS, "a", "other", 1, MIB),
        Amount(2 * DAY_NS, "b", "shared", 5, 10 * MIB),
        times=(0, 2 * DAY_NS),
    )
    assert found.owners == ["b", "a"]
    assert (found.total(), found.total("a"), found.objects("a")) == (14 * MIB, 4 * MIB, 3)
    assert (found.growth(), found.growth("a")) == (13 * MIB, 3 * MIB)
    page = report(found)
    assert "13.0 MiB more than on 1970-01-01 00:00:00 UTC, 6.5 MiB a day." in page
    assert page.count("<svg") == 2


def test_one_inventory_has_no_growth() -> None:
    page = report(usage(Amount(0, "a", "state", 1, MIB)))
    assert page.count("<svg") == 1
    assert "growth" not in page.lower()


def test_an_empty_store_has_a_report_too() -> None:
    assert "0 B as of" in report(usage())


def test_the_page_needs_nothing_else_and_names_are_only_names() -> None:
    page = report(
        usage(
            Amount(0, HOSTILE, "state", 1, MIB),
            Amount(1, HOSTILE, "state", 1, MIB),
            Amount(1, "ünï/" + "long" * 40, "shared", 1, 5),
            times=(0, 1),
        )
    )
    assert "<script" not in page
    assert not re.search(r"\b(src|href|@import|url\()", page)
    assert set(re.findall(r"https?://[^\"]*", page)) == {"http://www.w3.org/2000/svg"}
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(drawing)


@pytest.mark.parametrize("values", [(0, 0), (1, 1), (5, 3), (2**40 + 1, 2**39)])
def test_no_point_lies_outside_the_plot(values: tuple[int, int]) -> None:
    drawing = lines([0, DAY_NS], [("a", values)])
    heights = [float(y) for y in re.findall(r'<line [^>]*y1="([\d.]+)"', drawing)]
    points = [float(y) for y in re.findall(r'cy="([\d.]+)"', drawing)]
    assert min(heights) - 0.1 <= min(points)
    assert max(points) <= max(heights) + 0.1


@pytest.mark.parametrize(
    ("location", "name", "expected"),
    [
        ("q", "q/state/0/1/5.zip", ("q", "state")),
        ("", "state/0/1/5.delta", (".", "state")),
        ("q", "q/commits/3", ("q", "logs and schemas")),
        ("q", f"q/state/0/1/.5.delta.{UUID}.TID1.tmp", ("q", "temporary and checksums")),
        ("q", "q/whatever", ("q", "other")),
        (None, f"jobs/{'a' * 32}/shared/{UUID}", (f"jobs/{'a' * 32}", "shared")),
        (None, f"{'a' * 32}/chk-3/_metadata", ("a" * 32, "metadata")),
        (None, "savepoint-0a1b2c-0a1b2c3d4e5f/_metadata", ("savepoint-0a1b2c-0a1b2c3d4e5f", "savepoints")),
        (None, ".holdfast/clock", (".holdfast", "temporary and checksums")),
        (None, "table/part-0.parquet", ("table", "other")),
        (None, "table/_metadata", ("table", "other")),
        (None, "file", (".", "other")),
    ],
)
def test_owners(location: str | None, name: str, expected: tuple[str, str]) -> None:
    assert Owners().owner_of(location, None if location is None else 0, name) == expected


def test_words() -> None:
    assert (counted(1, "object"), counted(2000, "object"), counted(2, "entry", "entries")) == (
        "1 object",
        "2,000 objects",
        "2 entries",
    )
    assert table(("a", "bc"), [("x", 1000)]) == "a  bc\nx  1,000"
