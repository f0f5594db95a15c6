"""Fixtures for all layers. Every daemon, mount and server that a test starts ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from holdfast.mount import mountpoint
from tests.support.daemons.node import Node
from tests.support.reporting.skips import skips_by_reason
from tests.support.users.privileges import needs_root

pytest_plugins = [
    "tests.support.stores.s3",
    "tests.support.stores.hdfs",
    "tests.support.stores.ha_hdfs",
    "tests.support.stores.https_hdfs",
    "tests.support.stores.scripted_hdfs",
    "tests.support.stores.contract_servers",
]

NodeFactory = Callable[..., Node]

_WITH_MOUNTS = [Path(__file__).parent / name for name in ("crash", "model", "mount", "security", "spark")]


@pytest.hookimpl(tryfirst=True)  # before pytest reads where to make tmp_path
def pytest_configure(config: pytest.Config) -> None:
    """Let programs that tests start end with Ctrl-C, also where a shell has started pytest in the background, deaf to it.

    Keep every ``tmp_path`` in a directory that this run removes itself. Pytest would remove it three runs later, by
    recursion, and one deep tree that a test left would end that run with a RecursionError although its tests passed.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="holdfast-test-")
        config.add_cleanup(lambda: _remove(Path(config.option.basetemp)))
    settings.register_profile("holdfast", deadline=None)  # a test that is slow on a busy machine is not wrong
    settings.load_profile("holdfast")
    Node.forks = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with mounts of their own need root, one and all: users, devices, other file systems."""
    for item in items:
        if any(directory in item.path.parents for directory in _WITH_MOUNTS):
            item.add_marker(needs_root)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests were skipped."""
    if not (reasons := skips_by_reason(terminalreporter.stats.get("skipped", []))):
        return
    terminalreporter.section("skipped tests, by reason")
    for reason, number in reasons:
        terminalreporter.line(f"{number:5}  {reason}")
    if os.environ.get("CI") != "true":
        terminalreporter.line("With CI=true, ./run test installs more packages, for some of these.")


@pytest.fixture(scope="session")
def disk() -> Iterator[Path]:
    """A directory on a real disk: a store can't live on tmpfs, where /tmp often is."""
    base = os.environ.get("HOLDFAST_TEST_DIRECTORY", "/var/tmp")
    directory = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=base))
    directory.chmod(0o755)
    yield directory
    _sweep_mounts(directory)
    _remove(directory)


@pytest.fixture
def workspace(disk: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory for one test, on a real disk."""
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)[:40]
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=disk))
    directory.chmod(0o755)
    yield directory
    _sweep_mounts(directory)
    _remove(directory)


@pytest.fixture
def make_node(workspace: Path) -> Iterator[NodeFactory]:
    """A factory of nodes that share one remote store, a directory."""
    nodes: list[Node] = []

    def make(name: str = "a", **settings: Any) -> Node:
        remote = workspace / "remote"
        urls = {
            "checkpoints": str(settings.pop("checkpoints", f"file://{remote}/checkpoints")),
            "blobs": str(settings.pop("blobs", f"file://{remote}/blobs")),
        }
        nodes.append(Node(workspace / name, **urls, **settings))
        return nodes[-1]

    yield make
    problems = []
    for node in nodes:
        try:
            node.clean_up()
        except AssertionError as problem:
            problems.append(str(problem))
    assert not problems, "\n".join(problems)


@pytest.fixture
def node(make_node: NodeFactory) -> Node:
    """A started node over a directory as remote store."""
    return make_node().start()


@pytest.fixture
def remote_files(workspace: Path) -> Path:
    """Where the checkpoint objects of ``node`` stand as files."""
    return workspace / "remote" / "checkpoints"


def _remove(directory: Path) -> None:
    """Remove a tree of any depth, where shutil.rmtree needs stack, with the mountpoints in it, which take no writes."""
    remove = ["rm", "-rf", str(directory)]
    if subprocess.run(remove, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        subprocess.run(["chattr", "-R", "-f", "-i", directory], check=False)
        subprocess.run(remove, check=False)


def _sweep_mounts(directory: Path) -> None:
    for mount in reversed(mountpoint.mounts()):
        if mount.mountpoint.startswith(f"{directory}/") and (mount.is_holdfast or mount.is_cover):
            mountpoint.detach(mount.mountpoint)
