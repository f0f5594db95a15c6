"""The times of what this node stores: the store's from the close on, by whatever clock that has, and for good."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory
from tests.support.daemons.node import Node, settle
from tests.support.disks.mounts import mounted_image
from tests.support.stores.s3 import S3Server
from tests.support.stores.shifted_clock import ShiftedClock

SECOND = 10**9


def mtime(path: Path) -> int:
    return path.stat().st_mtime_ns


def evict(node: Node, path: Path) -> int:
    with node.client() as client:
        return [step.done for step in client.evict(str(path))][-1]


@pytest.fixture(params=[-3600, 3600], ids=["store is behind", "store is ahead"])
def clock(request: pytest.FixtureRequest, place: S3Server) -> Iterator[ShiftedClock]:
    """An S3 server whose clock differs from that of the nodes by an hour."""
    with ShiftedClock(place, request.param) as clock:
        yield clock


@pytest.fixture(params=[True, False], ids=["passthrough", "through the daemon"])
def node(request: pytest.FixtureRequest, clock: ShiftedClock, make_s3_node: S3NodeFactory) -> Node:
    return make_s3_node(clock.server, mount__passthrough=request.param).start()


@pytest.mark.promise("mtime")
def test_a_file_shows_the_time_of_the_store_from_its_close_on_and_for_good(
    node: Node, clock: ShiftedClock, make_s3_node: S3NodeFactory
) -> None:
    other = make_s3_node(clock.server, "b").start()
    written, renamed, large = (node.checkpoints / name for name in ("written", "7", "large"))
    written.write_bytes(b"one")
    (node.checkpoints / "7.tmp").write_bytes(b"two")
    (node.checkpoints / "7.tmp").rename(renamed)
    large.write_bytes(bytes(1_000_000))
    files = [written, renamed, large]
    shown = [mtime(path) for path in files]
    assert shown == [clock.last_modified(f"checkpoints/{path.name}") * SECOND for path in files]
    assert [mtime(other.checkpoints / path.name) for path in files] == shown
    os.listdir(node.checkpoints)
    assert [mtime(path) for path in files] == shown
    node.kill()
    node.start()
    assert [mtime(path) for path in files] == shown
    assert evict(node, node.checkpoints) == 3
    assert [mtime(path) for path in files] == shown
    assert large.read_bytes() == bytes(1_000_000)
    assert [mtime(path) for path in files] == shown


@pytest.mark.promise("mtime")
def test_a_file_that_others_have_open_shows_it_too(node: Node, clock: ShiftedClock) -> None:
    path = node.checkpoints / "file"
    with path.open("wb") as writer:
        writer.write(b"one")
        writer.flush()
        with path.open("rb"):
            writer.close()
            shown = mtime(path)
            assert shown == clock.last_modified("checkpoints/file") * SECOND
    assert mtime(path) == shown
    with path.open("r+b") as writer:
        assert mtime(path) == shown
        writer.write(b"two")
        writer.flush()
        assert abs(mtime(path) - shown) > 1000 * SECOND, "while it is written, the time of this node's clock"
        os.fsync(writer.fileno())
        assert mtime(path) == clock.last_modified("checkpoints/file") * SECOND
    assert path.read_bytes() == b"two"


def _list_and_stat(path: Path) -> None:
    with os.scandir(path.parent) as entries:
        assert [entry.stat().st_size for entry in entries if entry.name == path.name] == [3]


@pytest.mark.parametrize(
    "tell",
    [
        Path.stat,
        _list_and_stat,
        lambda path: os.link(path, path.with_name("link")),
        lambda path: os.truncate(path, 3),
        lambda path: os.chmod(path, 0o600),
        lambda path: os.utime(path),
    ],
    ids=["stat", "list", "link", "truncate", "chmod", "touch"],
)
@pytest.mark.promise("mtime")
def test_a_new_file_whose_time_was_looked_at_before_its_close_shows_it_too(
    node: Node, clock: ShiftedClock, tell: Callable[[Path], None]
) -> None:
    path = node.checkpoints / "file"
    with path.open("wb", buffering=0) as writer:
        writer.write(b"one")
        tell(path)
    shown, names = mtime(path), os.listdir(node.checkpoints)  # a link is an object of its own, stored a moment apart
    assert shown in {clock.last_modified(f"checkpoints/{name}") * SECOND for name in names}


@pytest.mark.parametrize("is_open", [True, False], ids=["before its close", "after it"])
@pytest.mark.parametrize(
    "change",
    [
        lambda path: os.chmod(path, 0o600),
        lambda path: os.chown(path, 1, 1),
        lambda path: subprocess.run(["touch", "-a", "-d", "@1", path], check=True),
        lambda path: os.link(path, path.with_name("link")),
        _list_and_stat,
    ],
    ids=["chmod", "chown", "touch -a", "link", "list"],
)
@pytest.mark.promise("mtime")
def test_a_change_between_the_upload_and_the_first_look_shows_no_other_time(
    node: Node, clock: ShiftedClock, change: Callable[[Path], None], *, is_open: bool
) -> None:
    """Replies to changes have attributes too, which the kernel keeps; the answer to the PUT did not have the time."""
    path = node.checkpoints / "file"
    path.write_bytes(b"two")
    os.listdir(node.checkpoints)
    with path.open("wb", buffering=0) as writer:
        writer.write(b"one")
        os.fsync(writer.fileno())
        if is_open:
            change(path)
    if not is_open:
        change(path)
    assert mtime(path) == clock.last_modified("checkpoints/file") * SECOND


@pytest.mark.parametrize("temporary", ["file", ".file.tmp"])
def test_the_kernel_need_not_ask_for_attributes_to_open_a_new_file(make_node: NodeFactory, temporary: str) -> None:
    node = make_node(remote__metadata_ttl_seconds=3600).start()
    path = node.checkpoints / "file"
    fd = os.open(node.checkpoints / temporary, os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"one")
    os.close(fd)
    os.rename(node.checkpoints / temporary, path)
    os.stat(node.checkpoints)  # which has changed
    before = node.status().kernel_requests.get("GETATTR", 0)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert os.read(fd, 3) == b"one"
    finally:
        os.close(fd)
    assert node.status().kernel_requests.get("GETATTR", 0) == before


@pytest.mark.promise("mtime")
def test_an_empty_file_shows_it_too(node: Node, clock: ShiftedClock) -> None:
    path = node.checkpoints / "file"
    path.touch()
    assert mtime(path) == clock.last_modified("checkpoints/file") * SECOND


def test_other_attributes_of_an_open_file_that_shows_it_are_kept_account_of(node: Node, clock: ShiftedClock) -> None:
    """Set-id bits are cleared by the next write, and a time of access alone changes neither the bytes nor what is shown."""
    path = node.checkpoints / "file"
    with path.open("wb", buffering=0) as writer:
        writer.write(b"one")
        os.fsync(writer.fileno())
        shown = mtime(path)
        assert shown == clock.last_modified("checkpoints/file") * SECOND
        uploaded = node.status().counters["objects_uploaded"]
        subprocess.run(["touch", "-a", "-d", "@1", path], check=True)
        os.chmod(path, 0o4755)
        assert (path.stat().st_atime_ns, mtime(path)) == (SECOND, shown)
        os.fsync(writer.fileno())
        assert node.status().counters["objects_uploaded"] == uploaded
        nobody = ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", "echo two"]
        subprocess.run(nobody, stdout=writer, check=True)  # root's writes clear nothing
        assert os.stat(path).st_mode & 0o7777 == 0o755


@pytest.mark.promise("mtime")
def test_a_time_that_a_user_sets_stays_as_long_as_the_copy(node: Node) -> None:
    source = node.directory / "source"
    source.mkdir()
    (source / "file").write_bytes(b"bytes")
    os.utime(source / "file", ns=(1, 987_654_321_987_654_321))
    subprocess.run(["cp", "-p", source / "file", node.checkpoints / "cp"], check=True)
    with subprocess.Popen(["tar", "-C", source, "-c", "file"], stdout=subprocess.PIPE) as packing:
        subprocess.run(["tar", "-C", node.checkpoints, "-x"], stdin=packing.stdout, check=True)
    shutil.copy2(source / "file", node.checkpoints / "copy2")
    (node.checkpoints / "touched").write_bytes(b"bytes")
    os.utime(node.checkpoints / "touched", ns=(1, 987_654_321_987_654_321))
    (node.checkpoints / "touched").rename(node.checkpoints / "renamed")
    for _ in range(2):
        assert {mtime(path) // SECOND for path in node.checkpoints.iterdir()} == {987_654_321}
        node.kill()
        node.start()
    assert {mtime(path) // SECOND for path in node.checkpoints.iterdir()} == {987_654_321}
    (node.checkpoints / "cp").write_bytes(b"other")
    assert mtime(node.checkpoints / "cp") // SECOND > 10**9


_BY = {
    "rsync": lambda source, target: _run("rsync", "-a", f"{source}/", f"{target}/"),
    "rsync --inplace": lambda source, target: _run("rsync", "-a", "--inplace", f"{source}/", f"{target}/"),
    "cp -a": lambda source, target: _run("cp", "-a", f"{source}/.", target),
    "cp and mv": lambda source, target: _run(
        "sh", "-c", 'for f in *; do cp -p "$f" "$0/$f.tmp" && mv "$0/$f.tmp" "$0/$f" || exit 1; done', target, cwd=source
    ),
    "touch": lambda source, target: _run(
        "sh", "-c", 'for f in *; do cat "$f" >"$0/$f" && touch -r "$f" "$0/$f" || exit 1; done', target, cwd=source
    ),
}
"""The commands that copy a directory with its times."""


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    subprocess.run(command, cwd=cwd, check=True)


@pytest.mark.promise("mtime")
@pytest.mark.parametrize("kind", ["ext3", "ext4"])
@pytest.mark.parametrize("way", _BY)
def test_times_that_are_set_when_a_file_is_closed_stay(
    make_node: NodeFactory, workspace: Path, remote_files: Path, way: str, kind: str
) -> None:
    """Also of files that have just changed, and where the clock of files is coarse, as before Linux 6.13 and on ext3."""
    source = workspace / "source"
    source.mkdir()
    with mounted_image(kind, workspace / "disk", 128 << 20) as disk:
        node = make_node(store__directory=disk / "store").start()
        target = node.checkpoints / "target"
        target.mkdir()
        for number in range(40):
            (source / f"{number}").write_bytes(os.urandom((0, 10, 5000, 100_000)[number % 4]))
            if number % 2:
                os.utime(source / f"{number}", ns=(1, 987_654_321_987_654_321 + number * SECOND))
        expected = {path.name: mtime(path) for path in source.iterdir()}
        _BY[way](source, target)
        if way not in ("touch", "rsync"):  # touch follows two closes by the shell, rsync renames
            assert node.status().counters["objects_uploaded"] == len(expected)
        assert {path.name: mtime(path) for path in target.iterdir()} == expected
        settle(target)
        for path in source.iterdir():
            assert (remote_files / "target" / path.name).read_bytes() == path.read_bytes()
        node.stop()
        node.start()
        assert {path.name: mtime(path) for path in target.iterdir()} == expected
        node.stop()


@pytest.fixture
def vim() -> list[str]:
    """The command of a vim without a terminal and anybody's settings."""
    program = shutil.which("vim") or shutil.which("vim.basic")
    if program is None:
        pytest.skip("there is no vim")
    return [program, "-N", "-u", "NONE", "-i", "NONE", "-es"]


@pytest.mark.promise("mtime")
def test_vim_saves_twice_without_a_warning(node: Node, vim: list[str]) -> None:
    path = node.checkpoints / "notes.txt"
    path.write_text("one\n")
    commands = ["normal otwo", "write", "call system('ls -l')", "normal othree", "write", "quit"]
    done = subprocess.run(
        [*vim, *(f"+{command}" for command in commands), path],
        cwd=node.checkpoints,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert path.read_text() == "one\ntwo\nthree\n"


@pytest.mark.promise("mtime")
def test_vim_saves_what_another_vim_saved_a_moment_ago(node: Node, vim: list[str]) -> None:
    """Vim sets the mode of a file that it writes in place, once it is synced and before its close."""
    path = node.checkpoints / "notes.txt"
    path.write_text("one\n")
    for word in ("two", "three", "four"):
        commands = ["+set backupcopy=yes", f"+normal Go{word}", "+wq"]
        subprocess.run([*vim, *commands, path], stdin=subprocess.DEVNULL, timeout=60, check=True)
    assert path.read_text() == "one\ntwo\nthree\nfour\n"


@pytest.mark.promise("mtime")
def test_the_time_of_what_nobody_looks_at_costs_no_request(node: Node) -> None:
    for number in range(3):
        (node.checkpoints / f"{number}").write_bytes(b"x")
    assert node.requests().get("HEAD", 0) == 0

    def asked() -> int:
        return node.requests().get("HEAD", 0) + node.requests().get("LIST", 0)

    before = asked()
    assert mtime(node.checkpoints / "2") == mtime(node.checkpoints / "2")
    assert asked() - before == 1


@pytest.mark.promise("mtime")
def test_a_store_that_is_a_directory_shows_its_times_at_once(make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node().start()
    for name in ("written", "5.zip"):
        (node.checkpoints / name).write_bytes(b"one")
        assert mtime(node.checkpoints / name) == mtime(remote_files / name)
    os.link(node.checkpoints / "written", node.checkpoints / "linked")
    linked = mtime(node.checkpoints / "linked")
    assert linked == mtime(remote_files / "written"), "link(2) changes no time"
    os.listdir(node.checkpoints)
    assert mtime(node.checkpoints / "linked") == mtime(node.checkpoints / "written") == linked
