"""Reports between versions of Holdfast that run side by side: what a reader does not know it ignores, the rest it reads."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.holdings.report import REVISION, NodeHealth, NodeReport, QueryState, StoreState, decoded, encoded

PREVIOUS = "98450d3"
"""The commit of the release before this one."""
RECORDED = Path(__file__).parents[2] / f"data/reports/{PREVIOUS}.json.gz"
"""A report that ``encoded`` of that release has written."""
QUERIES = [
    QueryState(
        "team/flights",
        [StoreState(0, 3, "default", 4711, 25_000_000), StoreState(0, 43, "left-keyToNumValues", 4711, 4099)],
    )
]
OLD = NodeReport(node="node7", hosts=["node7", "node7.example.org", "192.0.2.7"], cores=8, is_draining=True, queries=QUERIES)
NEW = NodeReport(
    revision=REVISION,
    node="node7",
    hosts=["node7", "node7.example.org", "192.0.2.7"],
    cores=8,
    is_draining=True,
    rack="a",
    standbys=1,
    health=NodeHealth(version="0.1.0", data_mode="passthrough", cached_bytes=1, free_bytes=2, problems=["a problem"]),
    queries=[
        QueryState(
            "team/flights",
            [
                StoreState(0, 3, "default", 4711, 25_000_000),
                StoreState(0, 43, "left-keyToNumValues", 4711, 4099, is_copy=True, missing_bytes=17),
            ],
        )
    ],
)
_READER = """
import sys
from holdfast.holdings import report
sys.stdout.buffer.write(report.encoded(report.decoded(sys.stdin.buffer.read())))
"""


@pytest.fixture(scope="module")
def previous_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The previous release's modules, from the repository's history."""
    directory = tmp_path_factory.mktemp("previous")
    root = Path(__file__).parents[3]
    archive = subprocess.run(["git", "-C", root, "archive", PREVIOUS, "daemon/holdfast"], capture_output=True, check=False)
    if archive.returncode:
        pytest.skip("this checkout has no history")
    subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, check=True)
    return directory / "daemon"


def test_a_report_of_the_previous_release_is_read() -> None:
    assert decoded(RECORDED.read_bytes()) == OLD
    assert (OLD.revision, OLD.health) == (0, None)


def test_the_previous_release_reads_a_report_of_this_one(previous_release: Path) -> None:
    reader = subprocess.run(
        [sys.executable, "-c", _READER],
        env={"PYTHONPATH": str(previous_release)},
        input=encoded(NEW),
        capture_output=True,
        check=True,
    )
    assert json.loads(gzip.decompress(reader.stdout)).keys().isdisjoint({"revision", "health", "rack"}), (
        "another release has read it"
    )
    assert decoded(reader.stdout) == OLD, "without what it does not know"


def test_what_a_later_release_adds_is_ignored_and_the_rest_is_read() -> None:
    later = json.loads(gzip.decompress(encoded(NEW)))
    later["revision"] = REVISION + 7
    later["added"] = {"a": [1, 2, {"b": None}]}
    later["health"]["added"] = 0.5
    for query in later["queries"]:
        query["added"] = [[0, "x"]]
        query["stores"] = [[*store, "added", {}] for store in query["stores"]]
    found = decoded(gzip.compress(json.dumps(later).encode()))
    assert found.revision == REVISION + 7
    assert (found.node, found.health, found.queries) == (NEW.node, NEW.health, NEW.queries)
