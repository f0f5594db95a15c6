"""A wheel that is built without a compiler, in an environment with what it needs at least: an executor's, or a laptop's."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from holdfast.cli.exit_status import ExitStatus
from holdfast.supervision.service_manager import NOT_CONFIGURED_STATUS
from systemd.debian.runtime_files import copy_distribution, runtime_distributions
from tests.support.packaging.light_modules import BLOCKED, light_modules
from tests.support.packaging.wheel_builds import CHECKOUT, COMPILERS, attempt, built, copied, with_programs

C_MODULE = "_holdfast_kernel"
NOT_BUILT = f"{C_MODULE}, the C module, is not built."
NEEDS_DAEMON = "needs holdfast[daemon]: pip install 'holdfast[daemon]' (not installed: "
ENVIRONMENT = {"PATH": os.environ["PATH"]}
"""Without ``PYTHONPATH``, by which ``./run`` names the checkout."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built where there is neither a C compiler nor a Java one."""
    wheel, said = built("bdist_wheel", source, with_programs(tmp_path_factory.mktemp("empty") / "bin", ()))
    assert NOT_BUILT in said
    return wheel


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with that wheel and the packages that it needs without any extra."""
    home = tmp_path_factory.mktemp("client")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (site,) = home.glob("lib/python3*/site-packages")
    for distribution in runtime_distributions(CHECKOUT / "pyproject.toml").values():
        copy_distribution(distribution, site)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-index", "--no-deps", wheel], check=True, env=ENVIRONMENT)
    checked = subprocess.run([*pip, "check"], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert checked.returncode == 0, checked.stdout
    return home / "bin"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)


def test_a_wheel_without_the_c_module_is_for_every_platform_and_python(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (about,) = (packed.read(name).decode() for name in names if name.endswith("/WHEEL"))
    assert "Root-Is-Purelib: true\n" in about
    assert not [name for name in names if name.endswith(".so") or ".data/" in name]


def test_a_build_for_nodes_fails_without_a_compiler(source: Path, wheel: Path, tmp_path: Path) -> None:
    required = {**with_programs(tmp_path / "bin", ()), "HOLDFAST_C_MODULE": "required"}
    assert attempt("build_ext", source, required).returncode != 0
    assert attempt("build_ext", source, {**required, "HOLDFAST_C_MODULE": "require"}).returncode != 0


def test_a_module_that_was_built_before_gets_into_no_wheel_without_it(source: Path, wheel: Path, tmp_path: Path) -> None:
    compiling = with_programs(tmp_path / "bin", COMPILERS)
    assert attempt("build_ext", source, {**compiling, "HOLDFAST_C_MODULE": "required"}).returncode == 0
    assert [*source.glob(f"build/lib*/{C_MODULE}.*.so")]
    wheel.unlink()
    again, said = built("bdist_wheel", source, {**compiling, "HOLDFAST_C_MODULE": "none"})
    assert again == wheel
    assert NOT_BUILT in said
    with zipfile.ZipFile(again) as packed:
        assert not [name for name in packed.namelist() if name.startswith(C_MODULE)]


def test_no_package_of_the_daemon_is_there_and_clients_are_imported(programs: Path) -> None:
    absent = f"assert not [name for name in {BLOCKED} if importlib.util.find_spec(name)]"
    imports = f"[importlib.import_module(name) for name in {light_modules(with_spark=False)}]"
    offered = "holdfast.Job, holdfast.Checkpoint, holdfast.ControlClient"
    program = f"import importlib.util, holdfast; {absent}; {imports}; {offered}"
    imported = run(programs / "python", "-I", "-W", "error", "-c", program)
    assert (imported.returncode, imported.stderr) == (0, "")


def test_commands_of_clients_work(programs: Path, tmp_path: Path) -> None:
    shown = run(programs / "holdfast", "--help")
    assert shown.returncode == 0
    assert "checkpoint" in shown.stdout
    nobody = run(programs / "holdfast", "status", "--socket", tmp_path / "none.sock")
    assert nobody.returncode == ExitStatus.NO_DAEMON
    assert nobody.stderr.startswith(f"holdfast: no daemon answers on {tmp_path}/none.sock (")
    looked = run(programs / "python", "-I", "-c", "from holdfast.cli import top")
    assert (looked.returncode, looked.stderr) == (0, "")


def test_a_daemon_says_what_to_install(programs: Path, tmp_path: Path) -> None:
    mount = run(programs / "holdfast", "mount", tmp_path)
    assert mount.returncode == ExitStatus.NO_DAEMON
    assert mount.stderr.startswith(f"holdfast: mount {NEEDS_DAEMON}")
    daemon = run(programs / "holdfastd", "--version")
    assert daemon.returncode == NOT_CONFIGURED_STATUS
    assert daemon.stderr.startswith(f"holdfastd {NEEDS_DAEMON}")
    assert len(mount.stderr.splitlines()) == len(daemon.stderr.splitlines()) == 1
