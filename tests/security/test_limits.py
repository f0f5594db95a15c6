"""One user who takes what there is: descriptors of the daemon, requests that wait. Others must go on, and so must root."""

from __future__ import annotations

import errno
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

_DESCRIPTORS = 1200
_OPEN_FILES = _DESCRIPTORS * 3 // 4 // 2
"""What half of the descriptors that are left to users is."""

_THREADS = 300


@pytest.fixture
def narrow(make_node: NodeFactory) -> Node:
    """A node whose daemon has few descriptors."""
    node = make_node()
    node.prefix = ["prlimit", f"--nofile={_DESCRIPTORS}"]
    node.start()
    node.checkpoints.chmod(0o1777)
    return node


@contextmanager
def meanwhile(user: User, does: Callable[[], None], sign: Path) -> Iterator[None]:
    """Let a process of ``user`` do something, make the directory ``sign``, and keep what it has while the body runs."""

    def works() -> None:
        os.close(writer)
        does()
        sign.mkdir()
        os.read(reader, 1)

    def runs() -> None:
        try:
            user.do(works)
        except AssertionError as problem:
            problems.append(problem)

    problems: list[AssertionError] = []
    reader, writer = os.pipe()
    thread = threading.Thread(target=runs)
    thread.start()
    try:
        wait_until(lambda: sign.exists() or bool(problems))
        assert not problems, problems[0]
        yield
    finally:
        os.close(writer)
        thread.join()
        os.close(reader)
    assert not problems, problems[0]


@pytest.mark.promise("open-files")
@pytest.mark.parametrize("zone", ["work", "checkpoints"])
def test_a_user_with_all_files_open_leaves_the_others_theirs(narrow: Node, zone: str) -> None:
    """Gain: nobody else opens a file any more, and no daemon command answers."""
    home = narrow.mountpoint / zone / "mallorys"

    def opens() -> None:
        home.mkdir()
        assert _opened_in(home, _DESCRIPTORS) == _OPEN_FILES
        assert len(os.listdir(home)) == _OPEN_FILES

    def others() -> None:
        directory = narrow.mountpoint / zone / f"others{os.getuid()}"
        directory.mkdir()
        files = [(directory / f"{number}").open("w+") for number in range(_OPEN_FILES // 4)]
        for file in files:
            file.write("mine")
            file.close()
        assert sorted(os.listdir(directory)) == sorted(str(number) for number in range(len(files)))

    with meanwhile(MALLORY, opens, narrow.work / "mallory-has-all"):
        ALICE.do(others)
        others()
        told = narrow.wait_event("limit-reached", uid=MALLORY.uid)
        assert (told["what"], told["limit"]) == ("open files", _OPEN_FILES)
    assert len(narrow.events("limit-reached")) == 1


@pytest.mark.promise("open-files")
def test_what_a_user_had_open_is_given_back(narrow: Node) -> None:
    """Gain: who opens and leaves often enough has all descriptors in the end."""
    before = _descriptors_of(narrow)

    def opens() -> None:
        home = narrow.work / "mallorys"
        home.mkdir(exist_ok=True)
        for number in range(_OPEN_FILES - 1):
            os.open(home / f"{number}", os.O_CREAT | os.O_RDWR)

    for _ in range(3):
        MALLORY.do(opens)
    wait_until(lambda: _descriptors_of(narrow) <= before + 8)


@pytest.mark.promise("open-files")
def test_many_handles_of_one_file_count_once(narrow: Node) -> None:
    def opens() -> None:
        path = narrow.work / "file"
        path.touch()
        for _ in range(_OPEN_FILES + 100):
            os.open(path, os.O_RDONLY)

    MALLORY.do(opens)


@pytest.mark.promise("open-files")
def test_a_limit_that_is_set_holds(make_node: NodeFactory) -> None:
    node = make_node(limits__open_files_per_user=10).start()

    def opens() -> None:
        assert _opened_in(node.work, 20) == 10

    MALLORY.do(opens)
    for number in range(20):
        os.open(node.work / f"root-{number}", os.O_CREAT | os.O_RDWR)


def test_who_finds_no_descriptor_left_is_not_named_for_it(make_node: NodeFactory) -> None:
    """Gain: with two user ids, the attacker takes all that users may have, and the events name its victim."""
    node = make_node()
    node.prefix = ["prlimit", f"--nofile={_DESCRIPTORS}"]
    node.start()
    other = User(MALLORY.uid + 1, MALLORY.gid)

    def opens() -> None:
        home = node.work / f"{os.getuid()}"
        home.mkdir()
        assert _opened_in(home, _DESCRIPTORS) == _OPEN_FILES

    def finds_none() -> None:
        assert _opened_in(node.work, 1) == 0

    with meanwhile(MALLORY, opens, node.work / "mallory-has-half"), meanwhile(other, opens, node.work / "other-has-half"):
        ALICE.do(finds_none)
        (node.work / "roots").touch()
        assert ALICE.uid not in {told.get("uid") for told in node.events("limit-reached")}
        assert node.wait_event("limit-reached", what="open files of all users")["limit"] == 2 * _OPEN_FILES


@pytest.mark.promise("open-files")
def test_what_a_user_has_open_counts_for_the_next_daemon_too(make_node: NodeFactory) -> None:
    """Gain: with each restart of the daemon, as many files more, until nobody else opens any."""
    node = make_node(limits__open_files_per_user=10)
    node.supervised = True
    node.start()
    home = node.work / "mallorys"

    def opens() -> None:
        home.mkdir()
        assert _opened_in(home, 20) == 10

    def opens_more() -> None:
        assert _opened_in(node.work, 20) == 0

    def is_free() -> bool:
        try:
            MALLORY.do(lambda: os.close(os.open(node.work / "free", os.O_CREAT | os.O_RDWR)))
        except AssertionError:
            return False
        return True

    with meanwhile(MALLORY, opens, node.work / "mallory-has-all"):
        for _ in range(2):
            node.kill_daemon()
            wait_until(node.answers)
            MALLORY.do(opens_more)
            ALICE.do((node.work / "alices").touch)
    wait_until(is_free)


@pytest.mark.promise("store-turns")
def test_a_user_who_waits_for_a_far_store_in_all_threads_leaves_others_their_turn(
    make_node: NodeFactory, s3_moto: S3Server
) -> None:
    """Gain: every request of everybody waits behind those of one user."""
    server = s3_moto.below(uuid.uuid4().hex)
    for thread in range(_THREADS):
        server.client().put_object(Bucket=server.bucket, Key=f"{server.prefix}/checkpoints/mallorys{thread}/there", Body=b"")
    with delaying(server.endpoint, 0.25) as far:
        node = make_node(checkpoints=server.below("checkpoints").url, blobs=server.below("blobs").url)
        node.environment = {**server.environment, "AWS_ENDPOINT_URL": far}
        node.start()
        assert len(os.listdir(node.checkpoints)) == _THREADS
        reader, writer = os.pipe()

        def asks_in(thread: int) -> None:
            (node.checkpoints / f"mallorys{thread}/absent").exists()
            os.write(writer, b".")

        def floods() -> None:
            threads = [threading.Thread(target=asks_in, args=[number]) for number in range(_THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        flood = threading.Thread(target=MALLORY.do, args=[floods])
        flood.start()
        try:
            node.wait_event("limit-reached", uid=MALLORY.uid, what="requests")
            ALICE.do(lambda: (node.checkpoints / "alices").exists())
            (node.checkpoints / "roots").exists()
            os.set_blocking(reader, False)
            answered = 0
            with suppress(BlockingIOError):  # nobody yet
                answered = len(os.read(reader, _THREADS))
            assert answered < _THREADS / 2
        finally:
            flood.join()
            os.close(reader)
            os.close(writer)


def _opened_in(directory: Path, most: int) -> int:
    """Create files and keep them open until the limit or ``most`` is reached; return how many they are."""
    for number in range(most):
        try:
            os.open(directory / f"{number}", os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as problem:
            if problem.errno != errno.ENFILE:
                raise
            return number
    return most


def _descriptors_of(node: Node) -> int:
    return len(os.listdir(f"/proc/{node.pid}/fd"))
