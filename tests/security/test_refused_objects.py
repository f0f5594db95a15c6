"""One name or one object that a store refuses: its user is told, and nobody else notices."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.security.test_hostile_names import error_of, over, still_serves
from tests.support.daemons.node import Node, wait_until
from tests.support.stores.lying_s3 import GOOD, Answer, Asked, LyingS3, Planted, refusal, xml

ODD = "x\ufffey"
"""XML 1.0 has no such character, and S3 deletes in bulk by XML. Another tool has put it there."""


@pytest.fixture
def node(make_node: NodeFactory, lying: LyingS3) -> Node:
    """A started node over a server that tells the truth until a test gives it a lie."""
    return over(make_node, lying)


def plant(lying: LyingS3, *names: str) -> None:
    lying.objects.update({f"checkpoints/{name}": Planted(GOOD) for name in names})


def kept(lying: LyingS3) -> set[str]:
    return {key.removeprefix("checkpoints/") for key in list(lying.objects)} - {"good/file"}  # the server changes them


def is_up(node: Node) -> bool:
    return node.status().remotes["checkpoints"].up and not node.events("remote-down")


# --- deletions --------------------------------------------------------------------------------------------------------


@pytest.mark.promise("refused-again")
def test_names_that_xml_can_not_hold_keep_no_deletion_from_the_store(node: Node, lying: LyingS3) -> None:
    plant(lying, *(f"alice/{number}" for number in range(40)), *(f"bob/{ODD}{number}" for number in range(5)))
    for directory in ("alice", "bob"):
        for path in list((node.checkpoints / directory).iterdir()):
            path.unlink()
    wait_until(lambda: not kept(lying))
    wait_until(lambda: node.status().remotes["checkpoints"].pending_deletions == 0)
    assert is_up(node)
    still_serves(node)


def locked(asked: Asked, lying: LyingS3, key: str) -> Answer | None:
    """Answer a deletion as S3 does for an object that is kept by its lock: the others are deleted."""
    if asked.method == "DELETE" and asked.key == key:
        return refusal("AccessDenied")
    if "delete" not in asked.query or key not in asked.to_delete:
        return None
    for each in asked.to_delete:
        if each != key:
            lying.objects.pop(each, None)
    return xml(f"<DeleteResult><Error><Key>{key}</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>")


def refused(asked: Asked, lying: LyingS3, key: str) -> Answer | None:
    """Refuse a whole request for the sake of one key."""
    is_concerned = key in asked.to_delete if "delete" in asked.query else asked.method == "DELETE" and asked.key == key
    return refusal("InvalidRequest", 400) if is_concerned else None


def panicking(asked: Asked, lying: LyingS3, key: str) -> Answer | None:
    """Answer for a key that was never asked for, which makes the library panic."""
    if "delete" not in asked.query or key not in asked.to_delete:
        return refusal("AccessDenied") if asked.method == "DELETE" and asked.key == key else None
    return xml("<DeleteResult><Error><Key>other</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>")


@pytest.mark.promise("refused-again")
@pytest.mark.parametrize("answer", [locked, refused, panicking])
def test_an_object_that_can_not_be_deleted_stays_alone(
    node: Node, lying: LyingS3, answer: Callable[[Asked, LyingS3, str], Answer | None]
) -> None:
    names = [f"alice/{number}" for number in range(30)]
    plant(lying, *names, "alice/held")
    lying.lie = lambda asked: answer(asked, lying, "checkpoints/alice/held")
    for path in list((node.checkpoints / "alice").iterdir()):
        path.unlink()
    wait_until(lambda: kept(lying) == {"alice/held"})
    wait_until(lambda: node.status().remotes["checkpoints"].pending_deletions == 1)
    assert is_up(node)
    assert node.wait_event("delete-delayed")["objects"] == 1
    assert node.status().remotes["checkpoints"].refused_deletions == 1
    still_serves(node)


# --- health -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("object-refused")
@pytest.mark.parametrize(
    ("code", "status"), [("InvalidObjectState", 403), ("AccessDenied", 403), ("InvalidRequest", 400), ("InternalError", 500)]
)
def test_an_object_that_can_not_be_read_says_nothing_of_its_store(
    node: Node, lying: LyingS3, code: str, status: int
) -> None:
    plant(lying, "team/cold", "team/warm")
    lying.lie = lambda asked: refusal(code, status) if asked.key.endswith("team/cold") else None
    assert error_of((node.checkpoints / "team/cold").read_bytes) == errno.EIO
    told = node.wait_event("fetch-failed")["problem"]
    assert code in told
    assert "credentials" not in told
    assert is_up(node)
    assert (node.checkpoints / "team/warm").read_bytes() == GOOD


@pytest.mark.promise("object-refused")
def test_an_object_that_can_not_be_stored_says_nothing_of_its_store(node: Node, lying: LyingS3) -> None:
    lying.lie = lambda asked: refusal("AccessDenied") if asked.method == "PUT" and "closed/" in asked.key else None
    (node.checkpoints / "closed").mkdir()
    assert error_of(partial((node.checkpoints / "closed/file").write_bytes, b"x")) == errno.EIO
    (node.checkpoints / "open").write_bytes(b"x")
    assert is_up(node)
    lying.lie = lambda asked: None
    with node.client() as client:
        list(client.flush(str(node.checkpoints / "closed/file"), 30.0))
    assert "closed/file" in kept(lying)


@pytest.mark.promise("object-refused")
def test_a_file_that_can_not_be_stored_later_keeps_no_other_waiting(make_node: NodeFactory, lying: LyingS3) -> None:
    node = make_node(**lying.stores, checkpoints__durability="async")
    node.environment.update(lying.place.environment)
    node.start()
    lying.lie = lambda asked: refusal("AccessDenied") if asked.method == "PUT" and "closed" in asked.key else None
    for number in range(5):
        (node.checkpoints / f"closed{number}").write_bytes(b"x")
        (node.checkpoints / f"open{number}").write_bytes(b"x")
    wait_until(lambda: kept(lying) == {f"open{number}" for number in range(5)})
    wait_until(lambda: len(node.status().unsent) == 5)
    assert "AccessDenied" in node.wait_event("send-delayed")["problem"]
    assert is_up(node)
    lying.lie = lambda asked: None
    with node.client() as client:
        list(client.flush(None, 30.0))
    assert node.status().unsent == []
    assert len(kept(lying)) == 10


@pytest.mark.promise("object-refused")
def test_a_store_that_refuses_everything_is_down(node: Node, lying: LyingS3) -> None:
    plant(lying, "team/file")
    assert os.listdir(node.checkpoints / "team") == ["file"]
    lying.lie = lambda asked: refusal("AccessDenied")
    assert error_of((node.checkpoints / "team/file").read_bytes) == errno.EIO
    assert node.wait_event("remote-down", store="checkpoints")
    lying.lie = lambda asked: None
    still_serves(node)
    assert (node.checkpoints / "team/file").read_bytes() == GOOD
    assert node.status().remotes["checkpoints"].up


# --- names ------------------------------------------------------------------------------------------------------------


def link_to(path: Path) -> None:
    os.link(path.parent / "there", path)


def rename_to(path: Path) -> None:
    (path.parent / "there").rename(path)


ATTEMPTS: dict[str, Callable[[Path], object]] = {
    "create": lambda path: path.write_bytes(b"x"),
    "mkdir": Path.mkdir,
    "mknod": os.mknod,
    "link": link_to,
    "rename": rename_to,
}


@pytest.mark.promise("refused-names")
@pytest.mark.parametrize("durability", ["commit", "async"])
def test_a_name_that_the_store_can_not_have_is_refused_at_once(
    make_node: NodeFactory, lying: LyingS3, durability: str
) -> None:
    node = make_node(**lying.stores, checkpoints__durability=durability)
    node.environment.update(lying.place.environment)
    node.start()
    deep = node.checkpoints / ("d" * 255) / ("e" * 255) / ("f" * 255)
    deep.mkdir(parents=True)
    for directory in (node.checkpoints, deep):
        (directory / "there").write_bytes(b"there")
    wait_until(lambda: len(kept(lying)) == 2)
    puts = len([asked for asked in lying.asked if asked.method == "PUT"])
    for attempt in ATTEMPTS.values():
        assert error_of(partial(attempt, node.checkpoints / ODD)) == errno.EINVAL
        assert error_of(partial(attempt, deep / ("g" * 255))) == errno.ENAMETOOLONG, "1024 bytes, the prefix included"
    assert os.listdir(deep) == ["there"]
    assert len([asked for asked in lying.asked if asked.method == "PUT"]) == puts
    wait_until(lambda: node.status().unsent == [])  # the daemon hears of the last one after the store has it
    still_serves(node)
