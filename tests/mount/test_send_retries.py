"""Level ``commit``: a file whose send failed is sent later, if it is what its writer closed and nobody else was faster."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mount.conftest import S3NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server

SETTINGS = {"remote__retry_deadline_seconds": 0.3, "remote__metadata_ttl_seconds": 0}


@pytest.fixture
def node(make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy) -> Node:
    return make_s3_node(place.through(proxy.endpoint), **SETTINGS).start()


@pytest.fixture
def other(make_s3_node: S3NodeFactory, place: S3Server) -> Node:
    """A node that reaches the store all the time."""
    return make_s3_node(place, "other", **SETTINGS).start()


def write_in_vain(proxy: FaultProxy, *files: tuple[Path, bytes]) -> None:
    """Write files to a store that goes away before they are closed."""
    opened = [(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), data) for path, data in files]
    proxy.down()
    for descriptor, data in opened:
        os.write(descriptor, data)
        with pytest.raises(OSError, match="Input/output"):
            os.close(descriptor)


def stored(server: S3Server, name: str) -> bytes | None:
    client = server.client()
    try:
        answer = client.get_object(Bucket=server.bucket, Key=f"{server.prefix}/checkpoints/{name}")
    except client.exceptions.NoSuchKey:
        return None
    return bytes(answer["Body"].read())


@pytest.mark.promise("sent-again")
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("name", ["report", "chk-1/_metadata"])
def test_what_the_store_did_not_take_is_sent_when_it_is_back(
    name: str, is_killed: bool, node: Node, place: S3Server, proxy: FaultProxy
) -> None:
    path = node.checkpoints / name
    path.parent.mkdir(exist_ok=True)
    write_in_vain(proxy, (path, b"bytes"))
    assert node.status().unsent == [str(path)]
    if is_killed:
        node.kill()
    proxy.up()
    if is_killed:
        node.start()
    wait_until(lambda: stored(place, name) == b"bytes")
    wait_until(lambda: node.status().unsent == [])
    assert path.read_bytes() == b"bytes"


@pytest.mark.promise("sent-again")
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_is_being_written_again_is_not_sent_half(
    is_killed: bool, node: Node, place: S3Server, proxy: FaultProxy
) -> None:
    path, proof = node.checkpoints / "report", node.checkpoints / "sent after it"
    path.write_bytes(b"old")
    again = os.open(path, os.O_RDWR)
    write_in_vain(proxy, (path, b"new bytes"), (proof, b"proof"))
    os.write(again, b"half")
    if is_killed:
        node.kill()
        proxy.up()
        node.start()
    else:
        proxy.up()
    wait_until(lambda: stored(place, proof.name) == b"proof")
    assert stored(place, path.name) == b"old"
    wait_until(lambda: node.status().unsent == [str(path)])  # the daemon hears of the other one after the store has it
    with suppress(OSError):  # the mount of before is gone
        os.close(again)
    if not is_killed:
        assert stored(place, path.name) == b"halfbytes"
        assert node.status().unsent == []


@pytest.mark.promise("sent-again")
@pytest.mark.parametrize(("name", "before"), [("report", b""), ("report", b"old"), ("chk-1/_metadata", b"")])
def test_what_another_node_has_stored_meanwhile_stays(
    name: str, before: bytes, node: Node, other: Node, place: S3Server, proxy: FaultProxy
) -> None:
    path = node.checkpoints / name
    path.parent.mkdir(exist_ok=True)
    if before:
        path.write_bytes(before)
    write_in_vain(proxy, (path, b"refused"))
    (other.checkpoints / name).parent.mkdir(exist_ok=True)
    (other.checkpoints / name).write_bytes(b"of the other node")
    proxy.up()
    wait_until(lambda: node.status().unsent == [])
    assert stored(place, name) == path.read_bytes() == b"of the other node"
    (kept,) = node.events("quarantined")
    assert "meanwhile" in kept["why"]
    assert any(file.read_bytes() == b"refused" for file in (node.store / "quarantine").rglob("*") if file.is_file())


def test_a_put_that_was_carried_out_and_not_answered_is_no_other_writer(
    node: Node, place: S3Server, proxy: FaultProxy
) -> None:
    path = node.checkpoints / "report"
    proxy.lose_answers(method="PUT", times=1_000)
    with pytest.raises(OSError, match="Input/output"):
        path.write_bytes(b"bytes")
    assert stored(place, path.name) == b"bytes"
    proxy.heal()
    wait_until(lambda: node.status().unsent == [])
    assert stored(place, path.name) == path.read_bytes() == b"bytes"
    assert os.listdir(node.store / "quarantine") == []


@pytest.mark.promise("sent-again")
def test_what_was_removed_meanwhile_is_not_sent(node: Node, place: S3Server, proxy: FaultProxy) -> None:
    removed, proof = node.checkpoints / "removed", node.checkpoints / "sent after it"
    write_in_vain(proxy, (removed, b"bytes"), (proof, b"proof"))
    removed.unlink()
    proxy.up()
    wait_until(lambda: stored(place, proof.name) == b"proof")
    assert stored(place, removed.name) is None
