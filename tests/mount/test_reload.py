"""``holdfast config reload`` and SIGHUP: what can be taken without a restart is in force, the rest is named."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.processes.programs import holdfast

MUCH = b"x" * (2 << 20)


@pytest.fixture
def file(workspace: Path) -> Path:
    return workspace / "holdfast.toml"


@pytest.fixture
def node(make_node: NodeFactory, file: Path) -> Node:
    file.write_text("[workdirs]\nmax_bytes = 0\n")
    node = make_node()
    node.environment["HOLDFAST_CONFIG"] = str(file)
    return node.start()


def test_limits_are_in_force_at_once_and_the_rest_after_a_restart(node: Node, file: Path) -> None:
    (node.work / "worker_1").mkdir()
    (node.work / "worker_1/much").write_bytes(MUCH)
    (node.checkpoints / "copy").write_bytes(MUCH)
    file.write_text('[workdirs]\nmax_bytes = "1MiB"\n[cache]\nmax_bytes = "1MiB"\n[remote]\nparallel_transfers = 3\n')
    said = holdfast("config", "reload", "--socket", node.socket)
    assert "in force now: cache.max_bytes, workdirs.max_bytes" in said
    assert "after 'holdfast restart': remote.parallel_transfers" in said
    node.wait_event("quota-reached", path="work/worker_1", limit_bytes=1 << 20)
    wait_until(lambda: node.status().cached_bytes <= 1 << 20)
    assert node.wait_event("configuration-reloaded")["needs_restart"] == "remote.parallel_transfers"
    assert holdfast("config", "reload", "--socket", node.socket).startswith("in force after 'holdfast restart': ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[cache]\nmax_bytes = -1\n", "cache.max_bytes"), ("[cache", "TOML"), ("[caches]\nmax_bytes = 1\n", "caches")],
)
def test_a_mistake_changes_nothing_and_is_named(text: str, problem: str, node: Node, file: Path) -> None:
    file.write_text(text)
    assert problem in holdfast("config", "reload", "--socket", node.socket, status=1)
    os.kill(node.pid, signal.SIGHUP)
    assert problem in node.wait_event("configuration-refused")["problem"]
    assert node.status().max_bytes == 0


def test_the_log_of_requests_begins_and_ends(node: Node, file: Path) -> None:
    (node.work / "unseen").mkdir()
    for level, made in (("debug", "seen"), ("info", "unseen later")):
        file.write_text(f'[log]\nlevel = "{level}"\n')
        assert "log.level" in holdfast("config", "reload", "--socket", node.socket)
        (node.work / made).mkdir()
    wait_until(lambda: node.log.read_text().count("mkdir work/seen: done") == 1)
    assert "mkdir work/unseen" not in node.log.read_text()


def test_a_signal_reloads_too(node: Node, file: Path) -> None:
    file.write_text("[cache]\nmax_bytes = 1000000\n")
    os.kill(node.pid, signal.SIGHUP)
    wait_until(lambda: node.status().max_bytes == 1_000_000)


def test_root_takes_no_new_orders_from_a_file_that_others_may_write(node: Node, file: Path) -> None:
    file.write_text("[cache]\nmax_bytes = 1000000\n")
    file.chmod(0o666)
    assert "chmod go-w" in holdfast("config", "reload", "--socket", node.socket, status=1)
    assert node.status().max_bytes == 0
