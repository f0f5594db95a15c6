"""The documentation says what is so: settings, tests, commands, routes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OF_LINUX = {"fs/fuse/iomode.c", "passthrough.c", "backing.c", "sysexits.h"}
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.fixture(scope="module")
def all_tests() -> set[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for file in files for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_named_in_a_page_exist(page: Path, all_tests: set[str]) -> None:
    named = re.findall(r"`(test_\w+)`", page.read_text())
    assert [name for name in named if name not in all_tests] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_a_page_exist(page: Path) -> None:
    named = re.findall(r"`((?:docs|daemon|tests|systemd|spark_integration)/[\w./-]+)`", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_sources_named_in_a_page_exist(page: Path) -> None:
    named = set(re.findall(r"`([a-z0-9_/-]+\.(?:py|c|h|java))`", page.read_text())) - OF_LINUX
    there = [
        file.as_posix() for folder in ("daemon", "docs", "tests", "spark_integration") for file in (ROOT / folder).rglob("*")
    ]
    there += [f"/{file.name}" for file in ROOT.glob("*.py")]
    assert [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in there)] == []


def test_the_steps_of_a_request_exist() -> None:
    paths = (ROOT / "docs/internals.md").read_text().partition("## Five paths")[2].partition("## Life of a read")[0]
    block = paths.split("```")[1]
    steps = [re.split(r" → |, ", line.rpartition("  ")[2]) for line in block.splitlines() if line.startswith("  ")]
    code = {file: file.read_text() for file in (ROOT / "daemon/holdfast").rglob("*.py")}
    words = {word for text in code.values() for word in re.findall(r"\w+", text)} | {file.stem for file in code}
    named = [word for step in steps for name in step for word in name.strip().split(".")]
    assert len(named) > 40
    assert [name for name in named if name not in words] == []
    modules = {name.strip().split(".")[0] for step in steps for name in step if re.match(r"[a-z]+\w*\.\w", name.strip())}
    assert modules <= {file.stem for file in code} | {file.parent.name for file in code}
