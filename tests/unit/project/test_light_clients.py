"""A plain ``pip install holdfast`` is enough for clients, and commands that need more say what to install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast import extras
from holdfast.cli.exit_status import ExitStatus
from holdfast.supervision.service_manager import NOT_CONFIGURED_STATUS
from tests.support.packaging.light_modules import BLOCKED, light_modules

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
BLOCKING = f"import importlib, sys; sys.modules.update(dict.fromkeys({BLOCKED}))"
LACKING = ", ".join(name for name in BLOCKED if not name.startswith("_"))
NEEDS_DAEMON = f"needs holdfast[daemon]: pip install 'holdfast[daemon]' (not installed: {LACKING})\n"


def ended(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program as in an environment without the daemon's packages."""
    command = [sys.executable, "-c", f"{BLOCKING}; {program}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    return ended("from holdfast.cli import main; main()", *arguments)


def test_clients_and_formats_and_what_spark_needs_import_no_package_of_the_daemon() -> None:
    modules = light_modules(with_spark=True)
    assert {"holdfast.cli.app", "holdfast.control.client", "holdfast_spark.session"} <= {*modules}
    offered = "import holdfast; holdfast.Job, holdfast.Checkpoint"
    result = ended(f"[importlib.import_module(name) for name in {modules}]; {offered}")
    assert (result.returncode, result.stderr) == (0, "")


def test_mount_says_what_to_install(tmp_path: Path) -> None:
    told = holdfast("mount", str(tmp_path), "--store", str(tmp_path / "store"))
    assert (told.returncode, told.stderr) == (ExitStatus.NO_DAEMON, f"holdfast: mount {NEEDS_DAEMON}")
    failure = json.loads(holdfast("mount", str(tmp_path), "--json").stderr)["error"]
    assert (failure["code"], failure["status"]) == ("not-installed", ExitStatus.NO_DAEMON)


def test_the_daemon_says_what_to_install_and_is_not_started_again() -> None:
    told = ended("from holdfast.daemon import run; run()", "--config", "/nowhere.toml")
    assert (told.returncode, told.stdout, told.stderr) == (NOT_CONFIGURED_STATUS, "", f"holdfastd {NEEDS_DAEMON}")


def test_the_page_says_what_to_install() -> None:
    told = holdfast("ui", "--no-open")
    assert told.returncode == ExitStatus.NO_DAEMON
    assert told.stderr == "holdfast: ui needs holdfast[ui]: pip install 'holdfast[ui]' (not installed: starlette, trio)\n"


def test_doctor_says_that_no_daemon_can_start_here(tmp_path: Path) -> None:
    told = holdfast("doctor", "--socket", str(tmp_path / "none.sock"), "--json")
    (finding,) = (each for each in json.loads(told.stdout) if each["check"] == "packages")
    assert (told.returncode, finding["level"]) == (ExitStatus.FAILED, "fail")
    assert finding["found"] == f"a daemon on this machine {NEEDS_DAEMON.strip()}"


def test_stores_of_spark_jobs_say_what_to_install() -> None:
    told = ended("import holdfast_spark.stores").stderr.splitlines()[-1]
    assert "holdfast_spark.stores needs holdfast[stores]: pip install 'holdfast[stores]' (not installed: awscrt, " in told


@pytest.mark.parametrize("extra", extras.PACKAGES)
def test_an_extra_has_the_packages_that_are_looked_for(extra: str) -> None:
    wanted = [re.split(r"[<>=]", package)[0] for package in PROJECT["optional-dependencies"][extra]]
    assert wanted == list(extras.PACKAGES[extra])


@pytest.mark.parametrize(
    ("extra", "part"), [("daemon", "stores"), ("daemon", "ui"), ("spark", "stores"), ("demo", "daemon")]
)
def test_an_extra_has_all_that_it_starts(extra: str, part: str) -> None:
    assert {*PROJECT["optional-dependencies"][part]} <= {*PROJECT["optional-dependencies"][extra]}
