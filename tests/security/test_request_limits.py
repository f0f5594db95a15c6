"""Requests of one user that wait: whoever they wait for, others' requests are answered between them."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.stores.delaying_proxy import delaying
from tests.support.stores.s3 import S3Server
from tests.support.users.privileges import ALICE, MALLORY, User

_THREADS = 100
_PARALLEL = 4
"""Requests that the store gets at once."""
_SECONDS = 0.25
"""What a byte takes to the store; an answer takes twice as long."""


@pytest.fixture
def far(make_node: NodeFactory, s3_moto: S3Server) -> Iterator[Node]:
    """A node whose store is far away and has directories for a flood, which are known here by name."""
    server = s3_moto.below(uuid.uuid4().hex)
    for number in range(_THREADS):
        server.client().put_object(Bucket=server.bucket, Key=f"{server.prefix}/checkpoints/d{number}/there", Body=b"x")
    with delaying(server.endpoint, _SECONDS) as endpoint:
        node = make_node(
            checkpoints=server.below("checkpoints").url,
            blobs=server.below("blobs").url,
            remote__parallel_transfers=_PARALLEL,
        )
        node.environment = {**server.environment, "AWS_ENDPOINT_URL": endpoint}
        yield node.start()
        node.stop()


class Flood:
    """Threads of a process of another user, each of which does ``act`` once with its own number."""

    def __init__(self, user: User, threads: int, act: Callable[[int], object]) -> None:
        self._user = user
        self._threads = threads
        self._act = act
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._answered = 0

    def answered(self) -> int:
        """Return how many threads have had their answer."""
        with suppress(BlockingIOError):
            self._answered += len(os.read(self._reader, self._threads))
        return self._answered

    @contextmanager
    def running(self) -> Iterator[None]:
        """Flood while the body runs; wait for all answers at its end."""
        thread = threading.Thread(target=self._user.do, args=[self._run])
        thread.start()
        try:
            yield
        finally:
            thread.join()
            os.close(self._reader)
            os.close(self._writer)

    def _run(self) -> None:
        threads = [threading.Thread(target=self._one, args=[number]) for number in range(self._threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _one(self, number: int) -> None:
        self._act(number)
        os.write(self._writer, b".")


@pytest.mark.promise("store-turns")
def test_who_lists_everything_of_a_far_store_at_once_leaves_others_their_turn(far: Node) -> None:
    """Gain: the store's requests are all the attacker's, and everybody else waits until they have been answered."""
    assert len(os.listdir(far.checkpoints)) == _THREADS
    flood = Flood(MALLORY, _THREADS, lambda number: os.listdir(far.checkpoints / f"d{number}"))
    with flood.running():
        wait_until(lambda: flood.answered() > 0)
        ALICE.do(lambda: (far.checkpoints / "absent").exists())
        assert flood.answered() < _THREADS / 2


@pytest.mark.promise("store-turns")
def test_requests_count_for_who_makes_them_not_for_who_opened_the_file(make_node: NodeFactory) -> None:
    """Gain: by closing a file that its victim has open, the attacker uses up the victim's turns instead of its own."""
    node = make_node(limits__requests_per_user=2).start()
    path = _file_of_alice(node)

    def writes(number: int) -> None:
        for _ in range(20):
            path.write_text(f"{number}")

    with _opened_by(ALICE, path):
        with Flood(MALLORY, 50, writes).running():
            pass
        assert {told["uid"] for told in node.events("limit-reached")} == {MALLORY.uid}


def _file_of_alice(node: Node) -> Path:
    node.checkpoints.chmod(0o1777)
    directory = node.checkpoints / "alices"

    def makes() -> None:
        directory.mkdir()
        (directory / "file").write_text("Alice's")
        (directory / "file").chmod(0o666)

    ALICE.do(makes)
    return directory / "file"


@contextmanager
def _opened_by(user: User, path: Path) -> Iterator[None]:
    """Let a process of ``user`` have ``path`` open while the body runs."""
    reader, writer = os.pipe()
    is_open, tells = os.pipe()

    def holds() -> None:
        os.close(writer)
        with path.open("rb"):
            os.write(tells, b".")
            os.read(reader, 1)

    thread = threading.Thread(target=user.do, args=[holds])
    thread.start()
    try:
        os.read(is_open, 1)
        yield
    finally:
        os.close(writer)
        thread.join()
        for fd in (reader, is_open, tells):
            os.close(fd)


@pytest.mark.promise("store-turns")
def test_attributes_of_objects_that_are_fetched_count_for_who_sets_them(make_node: NodeFactory) -> None:
    """Gain: setting an attribute fetches the whole object, before the requests of everybody else."""
    node = make_node(limits__requests_per_user=2).start()
    node.checkpoints.chmod(0o1777)
    directory = node.checkpoints / "mallorys"

    def makes() -> None:
        directory.mkdir()
        for number in range(50):
            (directory / f"{number}").write_bytes(b"x" * 100_000)

    MALLORY.do(makes)
    with node.client() as client:
        for _ in client.evict(str(directory)):
            pass
    with Flood(MALLORY, 50, lambda number: os.setxattr(directory / f"{number}", "user.a", b"x")).running():
        pass
    assert {told["uid"] for told in node.events("limit-reached")} == {MALLORY.uid}
