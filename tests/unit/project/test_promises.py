"""Every statement of the semantics has a test with its marker, every marker a statement, and the pages tell of both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.promises import MarkedTest, marked_tests, names_in, nodes_of, promises_page, with_links

ROOT = Path(__file__).parents[3]
SEMANTICS = (ROOT / "docs/semantics.md").read_text()
TESTS = """
import pytest
from pytest import mark

@pytest.mark.promise("close", "fsync")
@pytest.mark.parametrize("size", [0, 1])
def test_close(size: int) -> None: ...

@mark.slow
def test_nothing() -> None: ...

class TestFsync:
    @pytest.mark.promise("fsync")
    async def test_it(self) -> None: ...
"""
MARKED = [
    MarkedTest("tests/unit/test_sends.py::test_close", ("close", "fsync")),
    MarkedTest("tests/unit/test_sends.py::TestFsync::test_it", ("fsync",)),
]


@pytest.fixture(scope="module")
def marked() -> list[MarkedTest]:
    return marked_tests(ROOT)


def test_every_statement_of_the_semantics_has_a_test(marked: list[MarkedTest]) -> None:
    names = names_in(SEMANTICS)
    assert len(names) > 80
    assert [name for name in names if not nodes_of(name, marked)] == []


def test_every_marker_names_a_statement_of_the_semantics(marked: list[MarkedTest]) -> None:
    names = set(names_in(SEMANTICS))
    assert [test for test in marked if not test.promises or set(test.promises) - names] == []


def test_a_name_stands_once_in_the_semantics() -> None:
    names = names_in(SEMANTICS)
    assert [name for name in set(names) if names.count(name) > 1] == []


def test_the_pages_are_what_the_command_writes(marked: list[MarkedTest]) -> None:
    assert (ROOT / "docs/promises.md").read_text() == promises_page(SEMANTICS, marked), "write it: ./run promises --write"
    assert with_links(SEMANTICS) == SEMANTICS, "write the links: ./run promises --write"


def test_no_heading_takes_the_link_of_a_name(marked: list[MarkedTest]) -> None:
    headings = re.findall(r"^#+ (.+)$", promises_page(SEMANTICS, marked), re.MULTILINE)
    anchors = [heading.lower().replace(" ", "-") for heading in headings]
    assert [anchor for anchor in set(anchors) if anchors.count(anchor) > 1] == []


def test_what_is_code_or_a_link_is_no_name() -> None:
    text = (
        "It is kept [kept], as `[stores.NAME]` and `a\n[b]` say ([c](c.md)). It is\nsent [sent]: now.\n\n[kept]: p.md#kept\n"
    )
    assert names_in(text) == ["kept", "sent"]


def test_markers_are_read_from_functions_and_classes(tmp_path: Path) -> None:
    folder = tmp_path / "tests/unit"
    folder.mkdir(parents=True)
    (folder / "test_sends.py").write_text(TESTS)
    (folder / "helper.py").write_text(TESTS)
    assert marked_tests(tmp_path) == MARKED


def test_the_page_has_each_test_under_each_of_its_names() -> None:
    page = promises_page(
        "# Title\n\n## Nothing\n\nText.\n\n### Writing\n\nIt is sent [close]. So does **fsync** [fsync].\n", MARKED
    )
    _, _, rest = page.partition("## Writing\n\n")
    close, fsync = (f"- `{test.node}`\n" for test in MARKED)
    assert rest == f"### close\n\n{close}\n### fsync\n\n{close}{fsync}"
    assert "Nothing" not in page


def test_links_are_written_once() -> None:
    text = "It is sent [close].\n"
    assert with_links(with_links(text)) == with_links(text)
    assert with_links(text).endswith("\n[close]: promises.md#close\n")
