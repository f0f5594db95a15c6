"""The Debian package as ``./run deb`` builds it: what lintian says, what is in it, and that it installs and purges."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from holdfast import extras
from pinned_packages import wanted_by
from tests.support.debian.bare_debian import OWN_RELEASE, bare_debian, run_in

CHECKOUT = Path(__file__).parents[2]
INSTALL = "apt-get install -y -q --no-install-recommends"
PYTHON = "/usr/lib/holdfast/bin/python3"
STATE_OF_DEBIAN = re.compile(
    r"/(var/(cache|log|lib/(dpkg|apt))|dev|proc|sys|run|tmp)(/|$)|/etc/(passwd|group|shadow|gshadow)-|/etc/\.(pwd\.lock|updated)"
)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def unpacked(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["dpkg-deb", "--raw-extract", package, directory], check=True)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def root(release: str, package: Path) -> Iterator[Path]:
    with bare_debian(release) as root:
        shutil.copy(package, root / "root")
        yield root


def listing(root: Path) -> set[str]:
    """The paths in ``root``, without what dpkg and apt keep for themselves."""
    found = {f"/{path.relative_to(root)}" for path in root.rglob("*")}
    return {path for path in found if not STATE_OF_DEBIAN.match(path)}


@pytest.mark.skipif(shutil.which("lintian") is None, reason="needs lintian")
def test_lintian_finds_no_error_and_warns_of_nothing(release: str, package: Path) -> None:
    if release != OWN_RELEASE:
        pytest.skip("lintian knows the policy of its own release")
    command = ["lintian", "--allow-root", "--fail-on=error,warning", str(package)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_nothing_names_a_place_of_the_machine_that_built_it(unpacked: Path) -> None:
    for place in (str(CHECKOUT), os.environ["VIRTUAL_ENV"]):
        command: list[str | Path] = [
            "grep",
            "-rlP",
            rf"\Q{place}\E(?![\w.-])",
            unpacked,
        ]  # where it is no part of a longer name
        environment = {**os.environ, "LC_ALL": "C"}  # with which any bytes are text
        named = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert named.stdout == "", place


def test_a_node_needs_python_fuse_systemd_and_no_compiler(unpacked: Path) -> None:
    field = re.search(r"^Depends: (.+)$", (unpacked / "DEBIAN/control").read_text(), re.MULTILINE)
    assert field is not None
    needed = {re.split(r"[ :]", alternative)[0] for alternative in field[1].split(", ")}
    assert {"fuse3", "systemd"} < needed
    assert any(re.fullmatch(r"python3\.\d+", name) for name in needed)
    assert not [name for name in needed if name.endswith(("-dev", "-pip", "-venv")) or name.startswith(("gcc", "cpp"))]


def test_the_jar_for_spark_is_where_properties_files_name_it(unpacked: Path) -> None:
    (found,) = unpacked.rglob("site-packages/holdfast_spark_jvm/holdfast-spark.jar")
    assert found.resolve() == unpacked / "usr/share/holdfast/holdfast-spark.jar"
    with zipfile.ZipFile(found) as jar:
        assert "io/holdfast/spark/LinkingFileSystem.class" in jar.namelist()


def test_everything_that_is_imported_is_in_the_package(root: Path) -> None:
    """Each module of the daemon, and each dependency that pyproject.toml names."""
    run_in(root, f"{INSTALL} /root/holdfast_*.deb")
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    names = [Requirement(line).name for line in wanted_by(project, [extras.DAEMON])]
    program = (
        "import importlib, importlib.metadata, pkgutil, holdfast\n"
        f"for name in {names!r}: importlib.metadata.distribution(name)\n"
        "for module in pkgutil.walk_packages(holdfast.__path__, 'holdfast.'):\n"
        "    needs_more = module.name.startswith(('holdfast.csi.', 'holdfast.remote.hdfs_kerberos'))\n"
        "    if not module.name.endswith('__main__') and not needs_more: importlib.import_module(module.name)\n"
        "import holdfast_spark\n"
    )
    (root / "root/imports.py").write_text(program)
    run_in(root, f"{PYTHON} -I -W error /root/imports.py")
    assert run_in(root, "holdfast --version").startswith("holdfast ")
    assert run_in(root, "holdfastd --version").startswith("holdfastd ")


def test_a_purge_leaves_the_system_as_it_was(root: Path) -> None:
    before = listing(root)
    said = run_in(root, f"{INSTALL} /root/holdfast_*.deb")
    assert "not configured yet. Edit /etc/holdfast/holdfast.toml" in said
    assert "/usr/share/man/man8/holdfastd.8.gz" in listing(root)
    run_in(root, "apt-get purge -y -q holdfast && ! getent passwd holdfast && ! getent group holdfast")
    assert listing(root) == before


def test_a_removal_names_each_mountpoint_that_takes_no_writes_and_a_purge_releases_it(root: Path) -> None:
    """Gain: the configuration is gone when the purge begins, and the directory can't be removed for ever after."""
    run_in(root, f"{INSTALL} /root/holdfast_*.deb")
    run_in(root, "mkdir '/srv/another place'")
    (root / "etc/holdfast/holdfast.toml").write_text("[mount]\nmountpoint = '/srv/another place' # as literal\n")
    subprocess.run(["chattr", "+i", root / "srv/another place"], check=True)
    said = run_in(root, "apt-get remove -y -q holdfast")
    assert "takes no writes until a purge; to have it back before: chattr -i '/srv/another place'\n" in said
    run_in(root, "! touch '/srv/another place/file'")
    run_in(root, "apt-get purge -y -q holdfast && rmdir '/srv/another place' && ! test -e /var/lib/holdfast")
