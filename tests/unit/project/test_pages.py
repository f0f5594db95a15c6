"""The pages name commands, events, counters, sections and files that exist, and forget none."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from pathlib import Path

import pytest
import typer.main

from holdfast.cli.app import app
from holdfast.control import browsing
from holdfast.index import EntryState
from holdfast.remote import open_store
from holdfast.telemetry import Counters

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CODE = sorted([*(ROOT / "daemon").rglob("*.py"), *(ROOT / "spark_integration").rglob("*.py")])
OPERATIONS = (ROOT / "docs/operations.md").read_text()


def commands() -> dict[str, set[str]]:
    """Return the names of all commands, each with those of its subcommands."""
    tree = vars(typer.main.get_command(app))["commands"]
    return {name: set(vars(command).get("commands", ())) for name, command in tree.items()}


def rows(text: str, title: str) -> list[str]:
    """Return the first cells of the table whose first title is ``title``."""
    table = re.search(rf"^\| {title} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None
    return [line.split("|")[1].strip(" `") for line in table[1].splitlines()]


def headings(page: Path) -> list[str]:
    return [text.replace("`", "") for text in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_a_page_exist(page: Path) -> None:
    known = commands()
    used = re.findall(r"(?:^[$#] |`)(?:\S*/)?holdfast ([a-z]+)(?: ([a-z]+)\b)?", page.read_text(), re.MULTILINE)
    for name, sub in used:
        assert name in known, f"holdfast {name}"
        assert not known[name] or sub in known[name] | {""}, f"holdfast {name} {sub}"


def test_every_command_has_its_place_in_operations() -> None:
    elsewhere = {"mount", "umount", "restart", "config"}
    assert [name for name in commands() if name not in elsewhere and f"holdfast {name}" not in OPERATIONS] == []


def test_the_table_of_events_has_every_event() -> None:
    pattern = r"(?:\.(?:emit|_record)\(|\bJoinedEvents\(\w+,)\s*\"([a-z-]+)\""
    emitted = {kind for file in CODE for kind in re.findall(pattern, file.read_text())}
    assert len(emitted) > 15
    assert sorted(rows(OPERATIONS, "event")) == sorted(emitted)


def test_the_table_of_counters_has_every_counter() -> None:
    assert rows(OPERATIONS, "counter") == [field.name for field in dataclasses.fields(Counters)]


def test_the_table_of_states_has_every_state() -> None:
    assert sorted(rows(OPERATIONS, "state")) == sorted(browsing._WHERE)
    assert set(browsing._STATES) == set(EntryState)
    assert set(browsing._STATES.values()) <= set(browsing._WHERE), "holdfast why has a sentence for each state"


@pytest.mark.parametrize("file", [*PAGES, *CODE], ids=lambda file: str(file.relative_to(ROOT)))
def test_sections_that_are_referred_to_exist(file: Path) -> None:
    pattern = r"(?:`+(docs/[\w/]+\.md)`+|\]\(([\w/.]+\.md)\)), \"([^\"]+)\""
    for named, linked, section in re.findall(pattern, file.read_text()):
        page = ROOT / named if named else file.parent / linked
        assert any(heading.startswith(section) for heading in headings(page)), f"{page.name}, {section!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_are_there_and_have_a_text(page: Path) -> None:
    for text, link in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text()):
        assert text
        assert (page.parent / link).is_file(), link


def test_the_verbs_of_run_in_the_pages_exist() -> None:
    verbs = set(re.findall(r"^  ([a-z]+)\)", (ROOT / "run").read_text(), re.MULTILINE))
    named = {verb for page in PAGES for verb in re.findall(r"\./run ([a-z]+)", page.read_text())}
    assert {"demo", "test", "lint"} <= named <= verbs


def test_internals_has_every_folder_and_the_layers_that_lint_imports_holds() -> None:
    page = (ROOT / "docs/internals.md").read_text()
    folders = [path.parent.name for path in (ROOT / "daemon/holdfast").glob("*/__init__.py")]
    assert [name for name in folders if not re.search(rf"^  {name}/ ", page, re.MULTILINE)] == []
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert "\n".join(["```", *contracts[0]["layers"], "```"]) in page


def test_the_examples_of_stores_can_be_opened(tmp_path: Path) -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", page.partition("### Examples:")[2].partition("\n## ")[0], re.DOTALL)
    opened = []
    for example in examples:
        section = tomllib.loads(example)["stores"]["checkpoints"]
        if "service_account" in section["options"]:
            section["options"]["service_account"] = str(tmp_path / "google.json")
            account = {"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True}
            (tmp_path / "google.json").write_text(json.dumps(account))
        store = open_store(section["url"], section["options"], {}, request_timeout_seconds=1, connect_timeout_seconds=1)
        opened.append(store.url.partition("://")[0])
    assert opened == ["s3", "s3", "az", "gs", "sftp"]
