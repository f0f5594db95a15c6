"""The zones over stores: what close, rename, unlink and a miss mean, and what another node sees."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.store import RENAME_EXCHANGE, rename_with_flags
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, settle, wait_until

TEMPORARY = ".{}.0a1b2c3d-0000-4000-8000-0123456789ab.tmp"


def commit(path: Path, data: bytes) -> None:
    """Write as Spark does: a temporary file in the same directory, renamed."""
    temporary = path.with_name(TEMPORARY.format(path.name))
    temporary.write_bytes(data)
    temporary.rename(path)


def objects(directory: Path) -> dict[str, bytes]:
    """Return all objects of a directory that serves as a remote store. Those that are deleted meanwhile are left out."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if ".holdfast" not in path.parts:
            with suppress(FileNotFoundError, IsADirectoryError):
                found[str(path.relative_to(directory))] = path.read_bytes()
    return found


@pytest.mark.promise("close")
def test_close_answers_when_the_object_is_stored(node: Node, remote_files: Path) -> None:
    with (node.checkpoints / "report").open("wb") as file:
        file.write(b"one")
        file.flush()
        assert objects(remote_files) == {}
    assert objects(remote_files) == {"report": b"one"}


@pytest.mark.promise("close-counts")
def test_a_redirection_of_the_shell_is_sent_twice(node: Node, remote_files: Path) -> None:
    for command, puts in (("echo x >file", 2), (": >empty", 1), ("echo x >file.tmp && mv file.tmp renamed", 1)):
        before = node.requests().get("PUT", 0)
        subprocess.run(["sh", "-c", command], cwd=node.checkpoints, check=True)
        assert node.requests()["PUT"] - before == puts, command
    assert objects(remote_files) == {"empty": b"", "file": b"x\n", "renamed": b"x\n"}


@pytest.mark.promise("close-by-child")
def test_what_a_child_has_inherited_is_sent_when_its_parent_closes_it(node: Node, remote_files: Path) -> None:
    with (node.checkpoints / "report").open("wb", buffering=0) as file:
        file.write(b"one")
        subprocess.run(["true"], pass_fds=[file.fileno()], check=True)
        assert objects(remote_files) == {}
        file.write(b" two")
    assert objects(remote_files) == {"report": b"one two"}
    assert node.requests()["PUT"] == 1


@pytest.mark.promise("close-by-child")
def test_a_child_whose_parent_has_closed_the_file_sends_it(node: Node, remote_files: Path) -> None:
    with (node.checkpoints / "report").open("wb") as file:
        child = subprocess.Popen(["sh", "-c", "read line; echo $line"], stdin=subprocess.PIPE, stdout=file)
    child.communicate(b"one\n")
    assert objects(remote_files) == {"report": b"one\n"}


@pytest.mark.promise("close-by-child")
def test_another_writer_sends_when_it_closes(node: Node, remote_files: Path) -> None:
    with (node.checkpoints / "report").open("ab", buffering=0) as file:
        file.write(b"one\n")
        subprocess.run(["sh", "-c", "echo two >>report"], cwd=node.checkpoints, check=True)
        assert objects(remote_files) == {"report": b"one\ntwo\n"}


def test_who_reads_a_checksum_file_as_hadoop_does_asks_the_daemon_seldom(node: Node) -> None:
    sidecar = node.checkpoints / ".000012-0a1b2c3d-0000-4000-8000-0123456789ab.sst.crc"
    sidecar.write_bytes(b"1" * 368_916)  # not bytes(n): memory that nobody has touched is written page by page
    before = node.status().kernel_requests["GETATTR"]
    with sidecar.open("rb", buffering=0) as file:
        while os.fstat(file.fileno()).st_size > file.tell():
            file.read(4096)
    assert node.status().kernel_requests["GETATTR"] - before < 20


def test_a_checksum_file_that_is_written_in_place_is_read_as_it_is(node: Node) -> None:
    sidecar = node.checkpoints / ".data.crc"
    sidecar.write_bytes(b"1" * 2**17)
    assert sidecar.read_bytes() == b"1" * 2**17
    with sidecar.open("r+b", buffering=0) as writer:
        writer.write(b"2" * 2**17)
    with sidecar.open("rb") as reader, sidecar.open("r+b", buffering=0) as writer:
        assert reader.read() == b"2" * 2**17
        writer.write(b"3" * 2**17)
        assert sidecar.read_bytes() == b"3" * 2**17


@pytest.mark.promise("fsync")
def test_fsync_answers_when_the_object_is_stored(node: Node, remote_files: Path) -> None:
    with (node.checkpoints / "report").open("wb") as file:
        file.write(b"one")
        file.flush()
        os.fsync(file.fileno())
        assert objects(remote_files) == {"report": b"one"}
        file.write(b" two")
    assert objects(remote_files) == {"report": b"one two"}


@pytest.mark.promise("rename-commits")
def test_a_temporary_file_stays_here_until_it_gets_its_final_name(node: Node, remote_files: Path) -> None:
    directory = node.checkpoints / "query" / "offsets"
    directory.mkdir(parents=True)
    temporary = directory / TEMPORARY.format("0")
    temporary.write_bytes(b"v1")
    assert objects(remote_files) == {}
    temporary.rename(directory / "0")
    assert objects(remote_files) == {"query/offsets/0": b"v1"}
    assert node.requests().get("PUT") == 1
    assert os.listdir(directory) == ["0"]


@pytest.fixture
def with_sidecar(node: Node) -> Path:
    """A file in a store, with Hadoop's checksum beside it."""
    directory = node.checkpoints / "state"
    directory.mkdir()
    (directory / "7.zip").write_bytes(b"seven")
    (directory / ".7.zip.crc").write_bytes(b"crc")
    return directory / "7.zip"


def test_a_sidecar_never_leaves_the_node(with_sidecar: Path, remote_files: Path) -> None:
    assert sorted(os.listdir(with_sidecar.parent)) == [".7.zip.crc", "7.zip"]
    assert objects(remote_files) == {"state/7.zip": b"seven"}


@pytest.mark.parametrize(
    "remove", [("rm", "-r"), ("rm", "-rf"), (sys.executable, "-c", "import shutil, sys; shutil.rmtree(sys.argv[1])")]
)
def test_a_directory_with_sidecars_is_removed_as_any_other(
    with_sidecar: Path, remote_files: Path, node: Node, remove: tuple[str, ...]
) -> None:
    subprocess.run([*remove, str(with_sidecar.parent)], check=True, stderr=subprocess.PIPE)
    assert os.listdir(node.checkpoints) == []
    wait_until(lambda: objects(remote_files) == {})


def test_a_sidecar_of_something_else_does_not_stay(with_sidecar: Path) -> None:
    sidecar = with_sidecar.with_name(".7.zip.crc")

    def create() -> None:
        with_sidecar.unlink()
        assert sidecar.read_bytes() == b"crc"
        with_sidecar.write_bytes(b"sept")

    def rename_over() -> None:
        with_sidecar.with_name("new.tmp").write_bytes(b"sieben")
        with_sidecar.with_name("new.tmp").rename(with_sidecar)

    def link() -> None:
        with_sidecar.unlink()
        with_sidecar.with_name("other.zip").write_bytes(b"siete")
        with_sidecar.hardlink_to(with_sidecar.with_name("other.zip"))

    for change in (create, rename_over, link):
        sidecar.write_bytes(b"crc")
        change()
        assert not sidecar.exists(), change


def test_a_sidecar_goes_when_another_node_has_made_its_neighbour_anew(make_node: NodeFactory) -> None:
    here, there = make_node("a", remote__metadata_ttl_seconds=0).start(), make_node("b").start()
    (here.checkpoints / "7.delta").write_bytes(b"an attempt")
    (here.checkpoints / ".7.delta.crc").write_bytes(b"crc")
    (there.checkpoints / "7.delta").write_bytes(b"another one")
    assert (here.checkpoints / "7.delta").read_bytes() == b"another one"
    assert not (here.checkpoints / ".7.delta.crc").exists()


@pytest.mark.promise("miss")
def test_a_miss_is_fetched_once_and_then_served_from_the_disk(make_node: NodeFactory) -> None:
    writer, reader = make_node("a").start(), make_node("b").start()
    (writer.blobs / "jar").write_bytes(b"x" * 100_000)
    path = reader.blobs / "jar"
    assert path.stat().st_size == 100_000
    assert not reader.backing(path).exists()
    assert path.read_bytes() == b"x" * 100_000
    assert path.read_bytes() == b"x" * 100_000
    assert reader.requests()["GET"] == 1
    assert reader.backing(path).read_bytes() == b"x" * 100_000


@pytest.mark.promise("write-once")
def test_a_write_once_name_is_created_once_whichever_node_tries(make_node: NodeFactory, remote_files: Path) -> None:
    first, second = make_node("a").start(), make_node("b").start()
    for node in (first, second):
        (node.checkpoints / "query" / "commits").mkdir(parents=True)
    commit(first.checkpoints / "query/commits/0", b"first")
    loser = second.checkpoints / "query/commits" / TEMPORARY.format("0")
    loser.write_bytes(b"second")
    with pytest.raises(FileExistsError):
        loser.rename(second.checkpoints / "query/commits/0")
    assert loser.read_bytes() == b"second", "the loser keeps its bytes"
    assert (second.checkpoints / "query/commits/0").read_bytes() == b"first"
    assert objects(remote_files) == {"query/commits/0": b"first"}


@pytest.mark.promise("write-once")
@pytest.mark.parametrize("flags", [os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_TRUNC, os.O_APPEND, os.O_TRUNC, 0])
def test_a_write_once_name_is_never_opened_for_writing_again(make_node: NodeFactory, flags: int) -> None:
    first, second = make_node("a").start(), make_node("b").start()
    (first.checkpoints / "query/offsets").mkdir(parents=True)
    commit(first.checkpoints / "query/offsets/3", b"three")
    for node in (first, second):
        with pytest.raises(FileExistsError):
            os.open(node.checkpoints / "query/offsets/3", os.O_WRONLY | flags)
        assert (node.checkpoints / "query/offsets/3").read_bytes() == b"three"


def test_a_write_once_name_that_was_sent_is_not_opened_for_writing_though_its_writer_has_it_open(node: Node) -> None:
    path = node.checkpoints / "query/_spark_metadata/0"
    path.parent.mkdir(parents=True)
    with path.open("wb", buffering=0) as file:
        file.write(b"one")
        os.fsync(file.fileno())
        with pytest.raises(FileExistsError):
            os.open(path, os.O_WRONLY)


@pytest.mark.promise("write-once")
def test_a_write_once_name_refuses_links_truncation_and_renames_over_it(node: Node) -> None:
    directory = node.checkpoints / "query/offsets"
    directory.mkdir(parents=True)
    commit(directory / "3", b"three")
    (directory / "other.tmp").write_bytes(b"other")
    with pytest.raises(FileExistsError):
        os.link(directory / "other.tmp", directory / "3")
    with pytest.raises(FileExistsError):
        (directory / "other.tmp").rename(directory / "3")
    with pytest.raises(FileExistsError):
        os.truncate(directory / "3", 0)
    assert (directory / "3").read_bytes() == b"three"


def test_an_exclusive_creation_asks_the_store_once(node: Node, remote_files: Path) -> None:
    def asked() -> int:
        return node.requests().get("HEAD", 0) + node.requests().get("LIST", 0)

    directory = node.checkpoints / "new"
    directory.mkdir()
    counts = []
    for number in range(5):
        before = asked()
        (directory / f"{number}").open("xb").close()
        counts.append(asked() - before)
    assert min(counts) == 1, "more only if the machine lets a creation come long after its lookup"
    assert not (directory / "other").exists()
    (remote_files / "new/other").write_bytes(b"of another node")
    with pytest.raises(FileExistsError):
        (directory / "other").open("xb")


@pytest.mark.promise("write-once-again")
def test_a_write_once_name_may_be_created_anew_after_an_unlink(node: Node, remote_files: Path) -> None:
    directory = node.checkpoints / "query/offsets"
    directory.mkdir(parents=True)
    commit(directory / "3", b"three")
    (directory / "3").unlink()
    commit(directory / "3", b"again")
    assert objects(remote_files) == {"query/offsets/3": b"again"}


@pytest.mark.promise("write-once")
def test_of_two_direct_creations_of_a_write_once_name_the_second_close_fails(make_node: NodeFactory) -> None:
    first, second = make_node("a").start(), make_node("b").start()
    for node in (first, second):
        (node.checkpoints / "query/_spark_metadata").mkdir(parents=True)
    one = (first.checkpoints / "query/_spark_metadata/0").open("wb")
    two = (second.checkpoints / "query/_spark_metadata/0").open("wb")
    one.write(b"one")
    two.write(b"two")
    one.close()
    with pytest.raises(FileExistsError):
        two.close()
    assert (second.checkpoints / "query/_spark_metadata/0").read_bytes() == b"one"
    kept = [file for file in (second.store / "quarantine").iterdir() if file.suffix != ".json"]
    assert [file.read_bytes() for file in kept] == [b"two"], "the loser's bytes are kept aside"


@pytest.mark.promise("write-once")
def test_all_writers_of_a_name_that_was_lost_are_told(make_node: NodeFactory) -> None:
    first, second = make_node("a").start(), make_node("b").start()
    for node in (first, second):
        (node.checkpoints / "query/offsets").mkdir(parents=True)
    losers = [(second.checkpoints / "query/offsets/0").open("wb", buffering=0) for _ in range(2)]
    for loser in losers:
        loser.write(b"two")
    (first.checkpoints / "query/offsets/0").write_bytes(b"one")
    with pytest.raises(FileExistsError):
        os.fsync(losers[0].fileno())
    for loser in losers:
        with pytest.raises(FileExistsError):
            os.fsync(loser.fileno())
        with pytest.raises(FileExistsError):
            loser.close()
    assert (second.checkpoints / "query/offsets/0").read_bytes() == b"one"
    (second.checkpoints / "query/offsets/1").write_bytes(b"next")


def test_only_the_name_that_was_lost_goes(make_node: NodeFactory, remote_files: Path) -> None:
    first, second = make_node("a").start(), make_node("b").start()
    for node in (first, second):
        (node.checkpoints / "query/_spark_metadata").mkdir(parents=True)
    two = (second.checkpoints / "query/_spark_metadata/0").open("wb", buffering=0)
    two.write(b"two")
    os.link(second.checkpoints / "query/_spark_metadata/0", second.checkpoints / "other")
    os.link(second.checkpoints / "other", second.checkpoints / "other.tmp")
    two.write(b" and more")
    (first.checkpoints / "query/_spark_metadata/0").write_bytes(b"one")
    with pytest.raises(FileExistsError):
        two.close()
    assert (second.checkpoints / "query/_spark_metadata/0").read_bytes() == b"one"
    for name in ("other", "other.tmp"):
        assert (second.checkpoints / name).read_bytes() == b"two and more"
    assert objects(remote_files) == {"query/_spark_metadata/0": b"one", "other": b"two and more"}
    assert second.status().unsent == []
    assert list((second.store / "quarantine").iterdir()) == []


@pytest.mark.promise("lookups")
def test_who_asks_again_and_again_sees_the_file_of_another_node(make_node: NodeFactory) -> None:
    reader, writer = make_node("a").start(), make_node("b").start()
    (writer.checkpoints / "q/offsets").mkdir(parents=True)
    awaited = reader.checkpoints / "q/offsets/5"
    assert not awaited.exists()
    (writer.checkpoints / "q/offsets/5").write_text("v1")
    wait_until(awaited.exists)
    assert awaited.read_text() == "v1"


@pytest.mark.promise("lookups")
@pytest.mark.parametrize("name", ["2.delta", "2.zip", "009-4f7d.sst", "part-00000-4f7d.parquet", "notes.txt"])
def test_who_has_just_made_a_directory_and_files_in_it_sees_those_of_another_node(name: str, make_node: NodeFactory) -> None:
    here, there = make_node("a").start(), make_node("b").start()
    (here.checkpoints / "q/state/0/0").mkdir(parents=True)
    (here.checkpoints / "q/state/0/0" / f"1{name}").write_text("v1")
    (there.checkpoints / "q/state/0/0" / name).write_text("v2")
    assert (here.checkpoints / "q/state/0/0" / name).read_text() == "v2"


@pytest.mark.promise("lookups")
def test_a_writer_that_asks_again_and_again_sees_the_file_of_another_node(make_node: NodeFactory) -> None:
    here, there = make_node("a").start(), make_node("b").start()
    (there.checkpoints / "q/offsets").mkdir(parents=True)
    (there.checkpoints / "q/offsets/4").write_text("v1")
    assert os.listdir(here.checkpoints / "q/offsets") == ["4"]
    (here.checkpoints / "q/offsets/5.tmp").write_text("v1")
    (here.checkpoints / "q/offsets/5.tmp").rename(here.checkpoints / "q/offsets/5")
    awaited = here.checkpoints / "q/offsets/6"
    assert not awaited.exists()
    (there.checkpoints / "q/offsets/6").write_text("v1")
    wait_until(awaited.exists)
    assert awaited.read_text() == "v1"


def test_the_logs_of_a_query_that_begins_are_listed_at_once(make_node: NodeFactory) -> None:
    writer, reader = make_node("a").start(), make_node("b", remote__metadata_ttl_seconds=60).start()
    logs = {"offsets": "5", "commits": "4", "sources/0": "0", "state/0/0": "5.zip"}
    for log, name in logs.items():
        (writer.checkpoints / "q" / log).mkdir(parents=True)
        (writer.checkpoints / "q" / log / name).write_text(name)
    for directory in ("q", "r/q"):
        (writer.checkpoints / directory).mkdir(parents=True, exist_ok=True)
        (writer.checkpoints / directory / "metadata").write_text("{}")

    assert (reader.checkpoints / "r/q/metadata").read_text() == "{}"
    before = reader.requests()["LIST"]
    assert (reader.checkpoints / "q/metadata").read_text() == "{}"
    wait_until(lambda: reader.requests()["LIST"] >= before + 5)  # its own directory's, and one a log
    asked = reader.requests()["LIST"]
    assert os.listdir(reader.checkpoints / "q/offsets") == ["5"]
    assert os.listdir(reader.checkpoints / "q/commits") == ["4"]
    assert os.listdir(reader.checkpoints / "q/sources/0") == ["0"]
    assert os.listdir(reader.checkpoints / "q/state") == ["0"]
    assert reader.requests()["LIST"] == asked + 1  # of sources


@pytest.mark.promise("replaceable")
def test_a_replaceable_name_is_replaced_for_other_nodes_too(make_node: NodeFactory) -> None:
    first, second = make_node("a").start(), make_node("b", remote__metadata_ttl_seconds=0).start()
    (first.checkpoints / "state").mkdir()
    path = second.checkpoints / "state/5.zip"
    commit(first.checkpoints / "state/5.zip", b"first try")
    assert path.read_bytes() == b"first try"
    with path.open("rb") as before:
        commit(first.checkpoints / "state/5.zip", b"the second try")
        assert path.read_bytes() == b"the second try"
        assert path.stat().st_size == len(b"the second try")
        assert before.read() == b"first try", "who has the old version open keeps it"


@pytest.mark.promise("unlink")
def test_unlink_then_rename_onto_the_same_name_is_one_put(make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node(remote__delete_delay_seconds=3600).start()  # or a machine with much to do deletes before the rename
    (node.checkpoints / "state").mkdir()
    commit(node.checkpoints / "state/5.zip", b"one")
    before = node.requests()
    temporary = node.checkpoints / "state" / TEMPORARY.format("5.zip")
    temporary.write_bytes(b"two")
    (node.checkpoints / "state/5.zip").unlink()
    temporary.rename(node.checkpoints / "state/5.zip")
    after = node.requests()
    assert after["PUT"] == before["PUT"] + 1
    assert after.get("DELETE", 0) == 0
    assert objects(remote_files) == {"state/5.zip": b"two"}


@pytest.mark.promise("unlink")
def test_deletions_are_sent_in_bulk_and_waited_for_by_fsync_of_the_directory(
    make_node: NodeFactory, remote_files: Path
) -> None:
    node = make_node(remote__delete_delay_seconds=3600).start()  # or some go before all have been asked for
    directory = node.checkpoints / "many"
    directory.mkdir()
    for number in range(50):
        (directory / f"{number}.delta").write_bytes(b"x")
    assert len(objects(remote_files)) == 50
    for path in directory.iterdir():
        path.unlink()
    assert os.listdir(directory) == []
    settle(directory)
    assert objects(remote_files) == {}
    assert node.requests()["DELETE"] <= 3


@pytest.mark.promise("unlink")
def test_a_deletion_survives_the_daemon(node: Node, remote_files: Path) -> None:
    node.stop()
    node.start(remote__delete_delay_seconds=3600)
    (node.checkpoints / "old").write_bytes(b"x")
    (node.checkpoints / "old").unlink()
    assert objects(remote_files) == {"old": b"x"}
    node.kill()
    node.start()
    assert os.listdir(node.checkpoints) == []
    settle(node.checkpoints)
    assert objects(remote_files) == {}


@pytest.mark.promise("store-listings")
def test_listings_merge_what_is_here_and_what_is_in_the_store(make_node: NodeFactory) -> None:
    first, second = make_node("a").start(), make_node("b", remote__metadata_ttl_seconds=0).start()
    (first.checkpoints / "query/state/0").mkdir(parents=True)
    commit(first.checkpoints / "query/state/0/1.delta", b"one")
    (second.checkpoints / "query/state/0" / "mine.tmp").write_bytes(b"temporary")
    assert sorted(os.listdir(second.checkpoints / "query/state/0")) == ["1.delta", "mine.tmp"]
    assert os.listdir(first.checkpoints / "query/state/0") == ["1.delta"]
    (first.checkpoints / "query/state/0/1.delta").unlink()
    settle(first.checkpoints / "query/state/0")
    assert os.listdir(second.checkpoints / "query/state/0") == ["mine.tmp"]


@pytest.mark.promise("store-listings")
def test_a_copy_goes_when_the_object_is_deleted_on_another_node(make_node: NodeFactory) -> None:
    first, second = make_node("a").start(), make_node("b", remote__metadata_ttl_seconds=0).start()
    for name in ("dir/9.zip", "dir/sub/1.delta"):
        (first.checkpoints / name).parent.mkdir(parents=True, exist_ok=True)
        (first.checkpoints / name).write_bytes(b"x")
        assert (second.checkpoints / name).read_bytes() == b"x"
    for name in ("dir/9.zip", "dir/sub/1.delta"):
        (first.checkpoints / name).unlink()
    (first.checkpoints / "dir/sub").rmdir()
    (first.checkpoints / "dir").rmdir()
    assert os.listdir(second.checkpoints) == []
    assert not second.backing(second.checkpoints / "dir").exists()
    with pytest.raises(FileNotFoundError):
        (second.checkpoints / "dir/9.zip").stat()


@pytest.mark.promise("mtime")
def test_the_mtime_is_the_stores_on_every_node_and_after_every_fetch(make_node: NodeFactory) -> None:
    first, second = make_node("a", remote__metadata_ttl_seconds=0).start(), make_node("b").start()
    (first.checkpoints / "state").mkdir()
    commit(first.checkpoints / "state/5.zip", b"five")
    os.listdir(first.checkpoints / "state")
    on_first = (first.checkpoints / "state/5.zip").stat().st_mtime_ns
    remote = (second.checkpoints / "state/5.zip").stat().st_mtime_ns
    (second.checkpoints / "state/5.zip").read_bytes()
    fetched = (second.checkpoints / "state/5.zip").stat().st_mtime_ns
    with second.client() as client:
        assert [step.done for step in client.evict(str(second.checkpoints / "state/5.zip"))][-1] == 1
    evicted = (second.checkpoints / "state/5.zip").stat().st_mtime_ns
    assert on_first == remote == fetched == evicted


@pytest.mark.promise("empty-directories")
def test_empty_directories(make_node: NodeFactory, remote_files: Path) -> None:
    first, second = make_node("a").start(), make_node("b", remote__metadata_ttl_seconds=0).start()
    (first.checkpoints / "empty").mkdir()
    assert os.listdir(first.checkpoints) == ["empty"]
    assert os.listdir(second.checkpoints) == [], "a store knows no empty directory"
    (first.checkpoints / "empty" / "file").write_bytes(b"x")
    assert os.listdir(second.checkpoints) == ["empty"]
    (first.checkpoints / "empty" / "file").unlink()
    assert os.listdir(first.checkpoints) == ["empty"], "who emptied a directory keeps it"
    first.stop()
    first.start()
    assert os.listdir(first.checkpoints) == ["empty"]
    (first.checkpoints / "empty").rmdir()
    assert os.listdir(first.checkpoints) == []
    assert objects(remote_files) == {}


@pytest.mark.promise("rename-file")
def test_renaming_files_and_directories(node: Node, remote_files: Path) -> None:
    (node.checkpoints / "a").mkdir()
    (node.checkpoints / "a/one").write_bytes(b"1")
    (node.checkpoints / "a/one").rename(node.checkpoints / "a/two")
    (node.checkpoints / "a/two").rename(node.blobs / "three")
    settle(node.checkpoints / "a")
    assert objects(remote_files) == {}
    assert objects(remote_files.with_name("blobs")) == {"three": b"1"}
    (node.checkpoints / "a/_temporary").mkdir()
    (node.checkpoints / "a/_temporary/part.tmp").write_bytes(b"t")
    (node.checkpoints / "a").rename(node.checkpoints / "b")
    assert (node.checkpoints / "b/_temporary/part.tmp").read_bytes() == b"t"
    (node.checkpoints / "b/real").write_bytes(b"r")
    with pytest.raises(OSError, match="cross-device") as problem:
        (node.checkpoints / "b").rename(node.checkpoints / "c")
    assert problem.value.errno == errno.EXDEV
    assert sorted(os.listdir(node.checkpoints / "b")) == ["_temporary", "real"], "never half a move"


@pytest.mark.promise("fsync")
def test_a_file_that_was_never_opened_is_sent(node: Node, remote_files: Path) -> None:
    (node.checkpoints / "offsets").mkdir()
    for name in ("empty", "offsets/0", "later.tmp"):
        os.mknod(node.checkpoints / name, stat.S_IFREG | 0o644)
    assert objects(remote_files) == {"empty": b"", "offsets/0": b""}


@pytest.mark.promise("rename-directory")
@pytest.mark.parametrize("durability", ["commit", "async"])
def test_a_directory_with_files_that_must_be_sent_is_copied(
    make_node: NodeFactory, remote_files: Path, durability: str
) -> None:
    node = make_node(checkpoints__durability=durability).start()
    task = node.checkpoints / "out/_temporary/0/task/year=2013"
    task.mkdir(parents=True)
    (task / "part-0").write_bytes(b"rows")
    with pytest.raises(OSError, match="cross-device") as problem:
        task.rename(node.checkpoints / "out/year=2013")  # as Hadoop's FileOutputCommitter does
    assert problem.value.errno == errno.EXDEV
    shutil.move(task, node.checkpoints / "out/year=2013")
    wait_until(lambda: objects(remote_files) == {"out/year=2013/part-0": b"rows"})


@pytest.mark.promise("rename-file")
def test_moving_between_a_working_directory_and_a_store(node: Node, remote_files: Path) -> None:
    workdir = node.work / "worker_1"
    workdir.mkdir()
    (workdir / "tmp/result").write_bytes(b"result")
    (workdir / "tmp/result").rename(node.checkpoints / "result")
    assert objects(remote_files) == {"result": b"result"}
    (node.checkpoints / "result").rename(workdir / "tmp/back")
    assert (workdir / "tmp/back").read_bytes() == b"result"
    settle(node.checkpoints)
    assert objects(remote_files) == {}


@pytest.mark.promise("rename-file")
@pytest.mark.parametrize("target", ["work/kept", "checkpoints/kept.tmp"])
def test_a_file_that_leaves_the_store_is_on_the_disk_before_its_object_goes(node: Node, target: str) -> None:
    path = node.checkpoints / "only"
    path.write_bytes(bytes(1 << 20))
    if not waits_for_writeback(node.backing(path)):
        pytest.skip("this file system gives a file its place on the disk at once")
    path.rename(node.mountpoint / target)
    assert not waits_for_writeback(node.backing(node.mountpoint / target))


def waits_for_writeback(path: Path) -> bool:
    """Say whether a part of the file has no place on the disk yet (FIEMAP_EXTENT_DELALLOC)."""
    request = bytearray(struct.pack("=QQIIII", 0, 2**64 - 1, 0, 0, 1, 0) + bytes(56))
    with path.open("rb") as file:
        fcntl.ioctl(file, 0xC020660B, request)  # FS_IOC_FIEMAP
    (flags,) = struct.unpack_from("=I", request, 32 + 40)
    return bool(flags & 0x4)


@pytest.mark.promise("store-links")
def test_hard_links_are_one_file_here_and_one_object_a_name_there(node: Node, remote_files: Path) -> None:
    (node.checkpoints / "one.sst").write_bytes(b"data")
    os.link(node.checkpoints / "one.sst", node.checkpoints / "two.sst")
    assert objects(remote_files) == {"one.sst": b"data", "two.sst": b"data"}
    assert (node.checkpoints / "one.sst").stat().st_ino == (node.checkpoints / "two.sst").stat().st_ino
    with (node.checkpoints / "two.sst").open("ab") as file:
        file.write(b"+")
    assert objects(remote_files) == {"one.sst": b"data+", "two.sst": b"data+"}


@pytest.mark.promise("refused-kinds")
def test_what_no_store_can_keep_is_refused_at_once(node: Node) -> None:
    with pytest.raises(PermissionError):
        os.symlink("x", node.checkpoints / "link")
    with pytest.raises(PermissionError):
        os.mkfifo(node.checkpoints / "fifo")
    (node.work / "driver_1").mkdir()
    os.mkfifo(node.work / "driver_1/tmp/fifo")
    os.symlink("/etc/passwd", node.work / "driver_1/tmp/link")
    for name in ("fifo", "link"):  # which the daemon neither opens nor follows
        with pytest.raises(PermissionError):
            os.link(node.work / "driver_1/tmp" / name, node.checkpoints / name, follow_symlinks=False)
    with pytest.raises(OSError, match="Invalid or incomplete") as problem:
        open(os.fsencode(node.checkpoints) + b"/\xff", "wb").close()
    assert problem.value.errno == errno.EILSEQ


@pytest.mark.promise("miss")
def test_a_large_object_is_read_while_it_arrives(make_node: NodeFactory) -> None:
    writer = make_node("a").start()
    data = os.urandom(1 << 20) * 48
    (writer.checkpoints / "large").write_bytes(data)
    reader = make_node("b", remote__read_while_arriving_bytes=1 << 20).start()
    with (reader.checkpoints / "large").open("rb") as file:
        file.seek(-100, os.SEEK_END)
        assert file.read() == data[-100:]
        file.seek(0)
        assert file.read() == data
    assert (reader.checkpoints / "large").read_bytes() == data
    assert reader.requests()["GET"] == 6, "48 MiB in chunks of 8 MiB, each asked for once"


def test_append_to_an_object_that_is_not_here(make_node: NodeFactory, remote_files: Path) -> None:
    writer, appender = make_node("a").start(), make_node("b").start()
    (writer.checkpoints / "log").write_bytes(b"one\n")
    with (appender.checkpoints / "log").open("ab") as file:
        file.write(b"two\n")
    assert objects(remote_files) == {"log": b"one\ntwo\n"}


@pytest.mark.promise("changes-sent")
def test_truncation_by_path_is_sent(node: Node, remote_files: Path) -> None:
    (node.checkpoints / "file").write_bytes(b"0123456789")
    os.truncate(node.checkpoints / "file", 4)
    assert objects(remote_files) == {"file": b"0123"}


@pytest.mark.promise("changes-sent")
def test_bytes_written_through_a_mapping_after_close_are_sent(node: Node, remote_files: Path) -> None:
    import mmap

    path = node.checkpoints / "mapped"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 8192)
    mapping[4096:4101] = b"later"
    mapping.close()
    os.sync()
    node.stop()
    assert objects(remote_files)["mapped"][4096:4101] == b"later"


def test_a_directorys_attributes_follow_what_happens_in_it(node: Node, remote_files: Path) -> None:
    directory = node.checkpoints / "query"
    (directory / "offsets").mkdir(parents=True)
    assert (directory.stat().st_nlink, directory.stat().st_ino) == (3, node.backing(directory).stat().st_ino)
    (directory / "commits").mkdir()
    assert directory.stat().st_nlink == 4
    before = directory.stat().st_mtime_ns
    (directory / "metadata").write_bytes(b"{}")
    assert directory.stat().st_mtime_ns == node.backing(directory).stat().st_mtime_ns >= before
    directory.chmod(0o711)
    assert directory.stat().st_mode & 0o777 == 0o711
    other = remote_files / "query" / "sources"
    other.mkdir()
    (other / "0").write_bytes(b"of another node")
    wait_until(lambda: (directory / "sources").is_dir())
    assert sorted(os.listdir(directory)) == ["commits", "metadata", "offsets", "sources"]


def test_names_of_objects_may_have_255_bytes(node: Node, remote_files: Path) -> None:
    written, renamed = node.checkpoints / ("w" * 255), node.checkpoints / ("r" * 255)
    written.write_bytes(b"written")
    (node.checkpoints / "other.tmp").write_bytes(b"renamed")
    (node.checkpoints / "other.tmp").rename(renamed)
    assert objects(remote_files) == {written.name: b"written", renamed.name: b"renamed"}
    assert (written.read_bytes(), renamed.read_bytes()) == (b"written", b"renamed")


def test_a_directory_is_not_exchanged_into_a_store(node: Node) -> None:
    directory, file = node.work / "plain" / "directory", node.checkpoints / "file.tmp"
    directory.mkdir(parents=True)
    file.write_bytes(b"bytes")
    parents = [os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY) for path in (directory, file)]
    try:
        for one, other in ((0, 1), (1, 0)):
            names = [b"directory", b"file.tmp"]
            with pytest.raises(OSError, match="Invalid argument"):
                rename_with_flags(parents[one], names[one], parents[other], names[other], RENAME_EXCHANGE)
    finally:
        for parent in parents:
            os.close(parent)
    assert directory.is_dir()
    assert file.read_bytes() == b"bytes"
