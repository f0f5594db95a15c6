"""What the Debian package brings besides the program: configuration, units, manual pages, completion."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from holdfast.cli.app import app
from holdfast.config import load
from holdfast.process.main import command_line_parser
from systemd.debian import man_pages

SYSTEMD = Path(__file__).parents[2] / "systemd"
CONFIGURATION = SYSTEMD / "debian/holdfast.toml"
DOCS = Path(__file__).parents[2] / "docs"


def pages() -> list[man_pages.Page]:
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    configuration = (DOCS / "configuration.md").read_text()
    return [
        *man_pages.command_pages(command, "holdfast"),
        man_pages.daemon_page(command_line_parser()),
        man_pages.configuration_page(configuration),
    ]


def paths_of(command: TyperCommand | TyperGroup, *path: str) -> list[str]:
    found = ["-".join(path)]
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            assert isinstance(inner, TyperCommand | TyperGroup)
            found += paths_of(inner, *path, name)
    return found


def test_the_configuration_that_is_brought_configures_nothing() -> None:
    """The unit's condition is that there is a line which is no comment."""
    assert tomllib.loads(CONFIGURATION.read_text()) == {}
    condition = re.search(
        r"^ExecCondition=/bin/sh -c '(grep .+?) /etc", (SYSTEMD / "holdfastd.service").read_text(), re.MULTILINE
    )
    assert condition is not None
    assert subprocess.run(["sh", "-c", f"{condition[1]} {CONFIGURATION}"], check=False).returncode == 1


def test_what_is_commented_out_in_it_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(re.sub(r"^#(?! )", "", CONFIGURATION.read_text(), flags=re.MULTILINE))
    config = load(file).config
    assert config.mount.mountpoint == "/mnt/holdfast"
    assert config.stores["blobs"].url == "s3://bucket/blobs"
    assert config.control.group == "holdfast"


def test_every_command_has_a_page_with_its_options() -> None:
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    texts = {page.name: page.text for page in pages()}
    assert set(texts) == {*paths_of(command, "holdfast"), "holdfastd", "holdfast.toml"}
    assert ".B \\-\\-supervise" in texts["holdfast-mount"]
    assert ".B \\-\\-unit" in texts["holdfastd"]
    assert ".SH [stores.NAME]" in texts["holdfast.toml"]
    assert ".B cache.max_bytes" in texts["holdfast.toml"]


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man-db")
def test_no_page_has_a_fault_that_man_would_warn_of(tmp_path: Path) -> None:
    for page in pages():
        file = tmp_path / f"{page.name}.{page.section}"
        file.write_text(page.text)
        command = ["man", "--warnings=all", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(file)]
        read = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "MANROFFSEQ": ""})
        assert (read.returncode, read.stderr) == (0, ""), page.name


@pytest.mark.parametrize(("words", "word"), [("holdfast che", "checkpoint"), ("holdfast workdir acq", "acquire")])
def test_the_shell_is_told_what_may_come_next(words: str, word: str) -> None:
    asked = {"_HOLDFAST_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    command = [sys.executable, "-m", "holdfast"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **asked})
    assert told.stdout.split() == [word]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", sorted(path.name for path in SYSTEMD.glob("*.service")))
def test_systemd_understands_every_line_of_a_unit(unit: str, tmp_path: Path) -> None:
    """The programs are not where the unit has them: true stands in for each."""
    name = unit.replace("@", "@7078")
    for other in SYSTEMD.glob("*.service"):
        text = re.sub(r"/opt/holdfast/bin/\w+", "/bin/true", other.read_text())
        (tmp_path / other.name.replace("@", "@7078")).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / name)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
