"""Writes the table of what stores were seen to keep into ``docs/configuration.md``, from reports of the contract's tests.

``HOLDFAST_TEST_STORE=NAME ./run test tests/unit/remote --junitxml NAME.xml`` makes the report of one store;
``./run python -m tests.support.stores.store_table NAME.xml…`` writes their rows, and leaves those of other stores. A cell is
"yes" if the store promises it and all tests passed that try it, "no" if it does not promise it, and else the number of tests
that failed. Only tests count whose first parameter is the store's name.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

_PAGE = Path(__file__).parents[3] / "docs/configuration.md"
_TABLE = re.compile(r"(?<=<!-- stores: seen -->\n)(?:\|.*\n)*")


def main() -> None:
    """Write a row for each of the reports that the arguments name."""
    page = _PAGE.read_text()
    old = _TABLE.search(page)
    assert old is not None, "the page has a place for the table"
    rows = _rows(old[0]) | {Path(report).stem: _cells(Path(report)) for report in sys.argv[1:]}
    titles = list(dict.fromkeys(title for cells in rows.values() for title in cells))
    lines = [["store", *titles], ["---"] * (len(titles) + 1)]
    lines += [[f"`{name}`", *(cells.get(title, "not tried") for title in titles)] for name, cells in rows.items()]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    _PAGE.write_text(page[: old.start()] + table + page[old.end() :])


def _rows(table: str) -> dict[str, dict[str, str]]:
    """Return the cells of each store in a table that was written before."""
    lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines(keepends=True)]
    return {name.strip("`"): dict(zip(lines[0][1:], cells, strict=True)) for name, *cells in lines[2:]}


def _cells(report: Path) -> dict[str, str]:
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    failed = tried = 0
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None or f"[{report.stem}" not in case.attrib["name"]:
            continue
        has_failed = case.find("failure") is not None or case.find("error") is not None
        failed, tried = failed + has_failed, tried + 1
        for promise in case.iter("property"):
            outcomes[promise.attrib["name"]]["failed" if has_failed else promise.attrib["value"]] += 1
    return {name: _cell(found) for name, found in outcomes.items()} | {"tests passed": f"{tried - failed} of {tried}"}


def _cell(found: Counter[str]) -> str:
    if found["failed"]:
        return f"{found['failed']} of {found.total()} failed"
    if not found["False"]:
        return "yes"
    return f"{found['True']} of {found.total()}" if found["True"] else "no"


if __name__ == "__main__":
    main()
