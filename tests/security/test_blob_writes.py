"""Only who may write an object at its own path can create, replace or change it through ``blobStorage``."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.security.stores import evict, put, refused, team_table, workdir_of
from tests.support.daemons.node import Node
from tests.support.stores.s3 import Versitygw
from tests.support.users.privileges import ALICE, MALLORY, User

OF_ALICE = b"written by alice"
TEAM = 60_100
COLLEAGUE = User(60_002, 60_002, [TEAM])


@pytest.fixture(params=[True, False], ids=["passthrough", "daemon-io"])
def node(make_node: NodeFactory, request: pytest.FixtureRequest) -> Node:
    """A started node, in both modes of data."""
    return make_node(mount__passthrough=request.param).start()


@pytest.fixture
def blob_files(workspace: Path) -> Path:
    """Where the objects of ``blobs`` stand as files."""
    return workspace / "remote" / "blobs"


def written(path: Path, flags: int) -> Callable[[], None]:
    """An attempt to write to what a call of open(2) with ``flags`` gives."""

    def attempt() -> None:
        fd = os.open(path, flags, 0o644)
        try:
            os.write(fd, b"written by mallory")
            os.fsync(fd)
        finally:
            os.close(fd)

    return attempt


def overwritings(target: Path, tmp: Path) -> list[Callable[[], object]]:
    """All ways to put something under the name ``target``; ``tmp`` is a directory to prepare things in."""
    ready = tmp / "ready"

    def moved() -> None:
        ready.write_bytes(b"written by mallory")
        ready.replace(target)

    def linked() -> None:
        ready.write_bytes(b"written by mallory")
        os.link(ready, target)

    def renamed_from_a_temporary_name() -> None:
        temporary = target.with_name(f".{target.name}.tmp")
        temporary.write_bytes(b"written by mallory")
        temporary.replace(target)

    return [
        written(target, os.O_WRONLY | os.O_CREAT),
        written(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL),
        written(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        written(target, os.O_RDWR),
        lambda: os.close(os.open(target, os.O_RDONLY | os.O_TRUNC)),
        lambda: os.truncate(target, 3),
        lambda: os.mknod(target, stat.S_IFREG | 0o644),
        moved,
        linked,
        renamed_from_a_temporary_name,
    ]


@pytest.mark.promise("fallback-writes")
@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("directory_mode", [0o700, 0o755])
def test_nobody_overwrites_what_is_not_his(node: Node, blob_files: Path, *, directory_mode: int, is_local: bool) -> None:
    """Mallory would overwrite any object of the store whose path she can guess, and plant new ones beside it."""
    path = put(node.blobs / "secret/blob", OF_ALICE, ALICE, directory_mode=directory_mode)
    if not is_local:
        evict(node, path)
    home = workdir_of(node, MALLORY, "driver_m")

    def attack() -> None:
        directory = home / "blobStorage/secret"
        for target in (directory / "blob", directory / "new", home / "blobStorage/new"):
            for attempt in overwritings(target, home / "tmp"):
                assert refused(attempt) in (errno.EACCES, errno.ENOENT, errno.EEXIST)

    MALLORY.do(attack)
    assert path.read_bytes() == (blob_files / "secret/blob").read_bytes() == OF_ALICE
    assert [file for file in blob_files.rglob("*") if file.is_file()] == [blob_files / "secret/blob"]


@pytest.mark.promise("fallback-writes")
def test_a_name_that_is_removed_here_is_not_free_in_the_store(node: Node, blob_files: Path) -> None:
    """Mallory would remove her own view of an object, which deletes nothing, and create it anew."""
    put(node.blobs / "shared/blob", OF_ALICE, ALICE, directory_mode=0o755)
    home = workdir_of(node, MALLORY, "driver_m")
    target = home / "blobStorage/shared/blob"

    def attack() -> None:
        assert target.read_bytes() == OF_ALICE
        target.unlink()
        for attempt in overwritings(target, home / "tmp"):
            assert refused(attempt) in (errno.EACCES, errno.ENOENT)

    MALLORY.do(attack)
    assert (blob_files / "shared/blob").read_bytes() == OF_ALICE


@pytest.mark.promise("fallback-writes")
def test_a_directory_of_ones_own_does_not_cover_one_of_the_store(node: Node, blob_files: Path) -> None:
    """Mallory would make a directory, or move one, to where only the store has one, and write into it as into her own."""
    put(node.blobs / "secret/blob", OF_ALICE, ALICE)
    put(node.blobs / "secret/sub/blob", OF_ALICE, ALICE)
    home = workdir_of(node, MALLORY, "driver_m")

    def attack() -> None:
        (home / "blobStorage/mine").mkdir()
        (home / "blobStorage/mine/blob.tmp").write_bytes(b"written by mallory")
        assert refused(lambda: os.rename(home / "blobStorage/mine", home / "blobStorage/secret")) == errno.EACCES
        (home / "blobStorage/secret/sub").mkdir()
        for name in ("blob", "sub/blob"):
            for attempt in overwritings(home / "blobStorage/secret" / name, home / "tmp"):
                assert refused(attempt) in (errno.EACCES, errno.ENOENT)

    MALLORY.do(attack)
    assert {file.read_bytes() for file in blob_files.rglob("blob")} == {OF_ALICE}


@pytest.mark.promise("fallback-writes")
def test_who_may_write_a_directory_of_the_store_writes_it_through_a_working_directory(node: Node, blob_files: Path) -> None:
    """Nothing is gained here: what is allowed goes on."""
    os.chown(node.blobs, ALICE.uid, ALICE.gid)
    home = workdir_of(node, ALICE, "driver_a")

    def use() -> None:
        directory = home / "blobStorage/new/deep"
        directory.mkdir(parents=True)
        for number, way in enumerate(overwritings(directory / "blob", home / "tmp")):
            if number not in (4, 5):  # to empty and to cut it
                (directory / "blob").unlink(missing_ok=True)
                if number == 3:
                    (directory / "blob").write_bytes(b"")
            way()
        (directory / "blob").write_bytes(OF_ALICE)
        assert (directory / "blob").read_bytes() == OF_ALICE

    ALICE.do(use)
    assert (blob_files / "new/deep/blob").read_bytes() == OF_ALICE


@pytest.mark.promise("caller-rights")
def test_an_open_file_stays_usable_when_rights_are_taken_away(node: Node, blob_files: Path) -> None:
    """As on any file system: rights are checked when a file is opened."""
    os.chown(node.blobs, ALICE.uid, ALICE.gid)
    home = workdir_of(node, ALICE, "driver_a")

    def use() -> None:
        with (home / "blobStorage/blob").open("wb") as file:
            file.write(OF_ALICE)
            node.blobs.chmod(0o500)
        assert refused((home / "blobStorage/other").touch) == errno.EACCES

    ALICE.do(use)
    assert (blob_files / "blob").read_bytes() == OF_ALICE


@pytest.mark.promise("fallback-writes")
def test_in_a_sticky_directory_one_replaces_only_ones_own(node: Node, blob_files: Path) -> None:
    """In a directory like /tmp, Mallory may not replace what is Alice's."""
    put(node.blobs / "sticky/blob", OF_ALICE, ALICE, directory_mode=0o1777)
    home = workdir_of(node, MALLORY, "driver_m")

    def attack() -> None:
        target = home / "blobStorage/sticky/blob"
        for attempt in overwritings(target, home / "tmp"):
            assert refused(attempt) in (errno.EACCES, errno.EEXIST)
        target.unlink()
        for attempt in overwritings(target, home / "tmp"):
            assert refused(attempt) in (errno.EACCES, errno.ENOENT)

    MALLORY.do(attack)
    assert (blob_files / "sticky/blob").read_bytes() == OF_ALICE
    own = node.blobs / "sticky/own"
    MALLORY.do(lambda: own.write_bytes(b"first"))
    MALLORY.do(lambda: (home / "blobStorage/sticky/own").write_bytes(b"second"))
    assert (blob_files / "sticky/own").read_bytes() == b"second"


@pytest.mark.promise("fallback-writes")
def test_refusals_are_told_once_for_all(node: Node) -> None:
    """Mallory would flood the journal of events with refusals."""
    home = workdir_of(node, MALLORY, "driver_m")

    def attack() -> None:
        for number in range(50):
            assert refused((home / f"blobStorage/{number}").touch) == errno.EACCES

    MALLORY.do(attack)
    told = [{key: event[key] for key in ("store", "uid", "times")} for event in node.events("access-refused")]
    assert told == [{"store": "blobs", "uid": MALLORY.uid, "times": 1}]


@pytest.mark.promise("fallback-writes")
def test_a_team_writes_its_own_store_and_nobody_else_asks_it(
    make_node: NodeFactory, workspace: Path, s3_versitygw: Versitygw
) -> None:
    """Mallory takes the role of another team, and would write to its store, or let it be asked."""
    store = s3_versitygw.below(uuid.uuid4().hex)
    file = workspace / "holdfast.toml"
    table = team_table("red", store.url, store.options, ALICE, TEAM)
    file.write_text(table.replace("0640", "0660").replace("0750", "0770"))
    node = make_node()
    node.environment.update(HOLDFAST_CONFIG=str(file))
    node.start()
    home, own = workdir_of(node, MALLORY, "red_m"), workdir_of(node, COLLEAGUE, "red_c")
    store.clear_log()

    def attack() -> None:
        for target in (home / "blobStorage/blob", home / "blobStorage/commits/7", home / "blobStorage/metadata"):
            target.parent.mkdir(exist_ok=True)
            for attempt in overwritings(target, home / "tmp"):
                assert refused(attempt) in (errno.EACCES, errno.ENOENT)

    MALLORY.do(attack)
    assert not store.requests()
    COLLEAGUE.do(lambda: (own / "blobStorage/blob").write_bytes(OF_ALICE))
    assert store.client().get_object(Bucket=store.bucket, Key=store.key("blob"))["Body"].read() == OF_ALICE
