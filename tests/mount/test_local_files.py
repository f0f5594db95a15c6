"""The file system where nothing is sent: a working directory behaves like any local file system."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import socket
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from holdfast.store import RENAME_EXCHANGE, RENAME_NOREPLACE, rename_with_flags
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted, mounted_image
from tests.support.processes.programs import copied_program, running
from tests.support.users.privileges import MAY_NET_RAW, as_nobody

RENAME_WHITEOUT = 4


@pytest.fixture
def home(node: Node) -> Path:
    path = node.work / "plain"
    path.mkdir()
    return path


@pytest.mark.promise("local-links")
def test_hard_links_are_one_file_whichever_name_goes_first(home: Path) -> None:
    first, second, third = home / "first", home / "second", home / "third"
    first.write_bytes(b"bytes")
    os.link(first, second)
    os.link(second, third)
    assert {path.stat().st_ino for path in (first, second, third)} == {first.stat().st_ino}
    assert first.stat().st_nlink == 3
    first.unlink()
    assert second.stat().st_nlink == 2
    third.write_bytes(b"changed")
    assert second.read_bytes() == b"changed"
    second.rename(home / "fourth")
    third.unlink()
    assert (home / "fourth").stat().st_nlink == 1
    assert (home / "fourth").read_bytes() == b"changed"
    assert os.listdir(home) == ["fourth"]


@pytest.mark.promise("local-files")
def test_an_unlinked_open_file_lives_until_it_is_closed(home: Path, node: Node) -> None:
    path = home / "file"
    with path.open("w+b") as file:
        path.unlink()
        file.write(b"still here")
        file.seek(0)
        assert file.read() == b"still here"
        assert os.fstat(file.fileno()).st_nlink == 0
        path.write_bytes(b"another")
        file.seek(0)
        assert file.read() == b"still here"
    assert path.read_bytes() == b"another"
    wait_until(lambda: list((node.store / "orphans").iterdir()) == [])  # the kernel tells of the last close a moment later


def test_a_file_that_was_renamed_over_lives_until_it_is_closed(home: Path) -> None:
    old, new = home / "old", home / "new"
    old.write_bytes(b"old")
    new.write_bytes(b"new")
    with old.open("rb") as file:
        new.rename(old)
        assert file.read() == b"old"
        assert os.fstat(file.fileno()).st_nlink == 0
    assert old.read_bytes() == b"new"


@pytest.mark.promise("local-files")
def test_rename_flags(home: Path) -> None:
    (home / "a").write_bytes(b"a")
    (home / "b").write_bytes(b"b")
    directory = os.open(home, os.O_RDONLY)
    try:
        with pytest.raises(FileExistsError):
            rename_with_flags(directory, b"a", directory, b"b", RENAME_NOREPLACE)
        rename_with_flags(directory, b"a", directory, b"b", RENAME_EXCHANGE)
        assert ((home / "a").read_bytes(), (home / "b").read_bytes()) == (b"b", b"a")
        rename_with_flags(directory, b"a", directory, b"c", RENAME_NOREPLACE)
        with pytest.raises(OSError, match="Invalid argument"):
            rename_with_flags(directory, b"c", directory, b"d", RENAME_WHITEOUT)
    finally:
        os.close(directory)
    assert sorted(os.listdir(home)) == ["b", "c"]


def test_times_are_kept_to_the_nanosecond(home: Path) -> None:
    path = home / "file"
    path.touch()
    os.utime(path, ns=(1_234_567_890_123_456_789, 987_654_321_987_654_321))
    found = path.stat()
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_234_567_890_123_456_789, 987_654_321_987_654_321)


@pytest.mark.promise("local-rights")
def test_set_id_bits_go_when_the_file_is_written(home: Path) -> None:
    path = home / "program"
    path.write_bytes(b"#!")
    path.chmod(0o6755)
    assert stat.S_IMODE(path.stat().st_mode) == 0o6755
    with path.open("ab") as file:
        file.write(b"/bin")
    assert stat.S_IMODE(path.stat().st_mode) == 0o6755, "root may keep them (CAP_FSETID)"
    path.chmod(0o6757)
    writer = "import sys; open(sys.argv[1], 'ab').write(b'/sh')"
    subprocess.run(["setpriv", "--reuid=1", "--regid=1", "--clear-groups", sys.executable, "-c", writer, path], check=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o757


@pytest.mark.parametrize("inside", [False, True])
def test_a_change_of_a_link_changes_nothing_of_what_it_leads_to(inside: bool, home: Path, workspace: Path) -> None:
    """An empty chown(2) is all that the kernel sends before it writes, too."""
    secret = (home if inside else workspace) / "secret"
    secret.write_bytes(b"secret")
    secret.chmod(0o600)
    home.chmod(0o1777)

    def attack() -> None:
        os.symlink(secret, home / "link")
        os.symlink(home / "nothing", home / "dangling")
        for link in (home / "link", home / "dangling"):
            os.chown(link, -1, -1, follow_symlinks=False)

    as_nobody(attack)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_ISLNK((home / "dangling").lstat().st_mode)


def test_an_empty_change_keeps_the_set_group_id_of_a_directory(home: Path) -> None:
    home.chmod(0o2755)
    os.chown(home, -1, -1)
    assert stat.S_IMODE(home.stat().st_mode) == 0o2755


def test_a_set_group_id_directory_hands_its_group_down(home: Path) -> None:
    directory = home / "shared"
    directory.mkdir()
    os.chown(directory, 0, 1234)
    directory.chmod(0o2775)
    (directory / "file").touch()
    (directory / "below").mkdir()
    assert (directory / "file").stat().st_gid == 1234
    assert (directory / "below").stat().st_gid == 1234
    assert (directory / "below").stat().st_mode & stat.S_ISGID


@pytest.mark.promise("local-files")
def test_names_need_not_be_utf8_and_may_have_255_bytes(home: Path) -> None:
    names = [b"\xff\xfe latin \xe9", b"x" * 255, "ü".encode() * 127, b"new\nline"]
    base = os.fsencode(home)
    for name in names:
        with open(base + b"/" + name, "wb") as file:
            file.write(name)
    assert sorted(os.listdir(base)) == sorted(names)
    for name in names:
        with open(base + b"/" + name, "rb") as file:
            assert file.read() == name
    with pytest.raises(OSError, match="File name too long") as problem:
        open(base + b"/" + b"x" * 256, "wb").close()
    assert problem.value.errno == errno.ENAMETOOLONG


@pytest.mark.promise("local-files")
def test_special_files(home: Path) -> None:
    os.mkfifo(home / "fifo", 0o640)
    assert stat.S_ISFIFO((home / "fifo").stat().st_mode)
    assert stat.S_IMODE((home / "fifo").stat().st_mode) == 0o640
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "socket"))
        listener.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(home / "socket"))
    os.symlink("fifo", home / "link")
    assert (home / "link").readlink() == Path("fifo")


@pytest.mark.promise("local-files")
def test_links_and_special_files_where_files_are_hashed(node: Node) -> None:
    home = node.work / "worker_1/localState"
    home.parent.mkdir()
    (home / "link").symlink_to("nowhere")
    os.link(home / "link", home / "second", follow_symlinks=False)
    os.mkfifo(home / "fifo")
    os.mknod(home / "socket", stat.S_IFSOCK | 0o600)
    for name in ("link", "second", "fifo", "socket"):
        os.chown(home / name, 1000, 1000, follow_symlinks=False)
        os.utime(home / name, ns=(1, 2), follow_symlinks=False)
        if not (home / name).is_symlink():
            (home / name).chmod(0o620)
        (home / name).rename(home / f"{name}.new")
        found = (home / f"{name}.new").lstat()
        assert (found.st_uid, found.st_gid, found.st_mtime_ns) == (1000, 1000, 2)
    assert (home / "second.new").lstat().st_nlink == 2
    assert (home / "second.new").readlink() == Path("nowhere")
    assert stat.S_IMODE((home / "socket.new").stat().st_mode) == 0o620


def test_capabilities_are_told_of_a_file_that_is_open_and_go_with_the_next_write(home: Path) -> None:
    path = home / "program"
    path.write_bytes(b"code")
    with path.open("r+b", buffering=0) as file:
        assert file.write(b"Code") == 4
        with pytest.raises(OSError, match="No data available"):
            os.getxattr(path, "security.capability")
        os.setxattr(path, "security.capability", MAY_NET_RAW)
        os.setxattr(path, "user.colour", b"green")
        assert os.getxattr(path, "security.capability") == MAY_NET_RAW
        assert os.getxattr(path, "user.colour") == b"green"
    with path.open("r+b", buffering=0) as file:
        assert os.getxattr(path, "security.capability") == MAY_NET_RAW
        file.write(b"more")
        with pytest.raises(OSError, match="No data available"):
            os.getxattr(path, "security.capability")
        assert os.getxattr(path, "user.colour") == b"green"


@pytest.mark.promise("local-rights")
def test_attributes_of_trusted_programs_are_shown_to_root_alone(home: Path) -> None:
    path = home / "file"
    path.touch()
    os.setxattr(path, "trusted.secret", b"x")
    os.setxattr(path, "user.colour", b"green")
    home.chmod(0o755)
    assert sorted(os.listxattr(path)) == ["trusted.secret", "user.colour"]

    def look() -> None:
        assert os.listxattr(path) == ["user.colour"]

    as_nobody(look)


def test_the_daemon_reads_without_a_trace(node: Node) -> None:
    (node.work / "worker_1").mkdir()
    path = node.work / "worker_1/localState/file"
    path.write_bytes(b"hashed in the background")
    os.utime(path, (5, 5))
    node.wait_digest(path)
    assert path.stat().st_atime == 5


@pytest.mark.promise("local-files")
def test_extended_attributes(home: Path) -> None:
    path = home / "file"
    path.touch()
    os.setxattr(path, "user.colour", b"green")
    os.setxattr(path, "user.empty", b"")
    assert os.getxattr(path, "user.colour") == b"green"
    assert sorted(os.listxattr(path)) == ["user.colour", "user.empty"]
    with pytest.raises(FileExistsError):
        os.setxattr(path, "user.colour", b"red", os.XATTR_CREATE)
    os.removexattr(path, "user.colour")
    with pytest.raises(OSError, match="No data available"):
        os.getxattr(path, "user.colour")


@pytest.mark.promise("local-files")
def test_shared_and_private_mappings(home: Path) -> None:
    path = home / "mapped"
    path.write_bytes(bytes(3 * mmap.PAGESIZE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
        shared[mmap.PAGESIZE : mmap.PAGESIZE + 5] = b"hello"
        shared.flush()
        assert os.pread(file.fileno(), 5, mmap.PAGESIZE) == b"hello"
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as private:
            private[0:3] = b"own"
            assert shared[0:3] == bytes(3)
    assert path.read_bytes()[mmap.PAGESIZE :].startswith(b"hello")


@pytest.mark.promise("local-locks")
def test_locks_exclude_each_other(home: Path) -> None:
    path = home / "lock"
    path.touch()
    with path.open("r+b") as holder, path.open("r+b") as other:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(holder, fcntl.LOCK_UN)
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        child = os.fork()
        if child == 0:
            try:
                fcntl.lockf(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


def change_while_listing(directory: Path) -> None:
    stay = {f"stay-{number}" for number in range(1500)}
    go = {f"go-{number}" for number in range(500)}
    for name in stay | go:
        (directory / name).touch()
    seen: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            seen.append(entry.name)
            if len(seen) == 50:
                for name in go:
                    (directory / name).unlink()
                for number in range(500):
                    (directory / f"new-{number}").touch()
                    os.link(directory / "stay-0", directory / f"link-{number}")
                assert stay <= set(os.listdir(directory)), "another listing is not whole"
    assert len(seen) == len(set(seen)), "an entry was listed twice"
    assert stay <= set(seen), "an entry that was there all the time was not listed"


@pytest.mark.promise("local-listings")
def test_a_listing_goes_on_while_entries_come_and_go(home: Path) -> None:
    change_while_listing(home)


def test_a_listing_ends_while_its_names_are_changed(home: Path) -> None:
    """Some file systems put what is renamed behind all that is still to be listed."""
    for number in range(3000):
        (home / f"old-{number}").touch()
    seen = 0
    with os.scandir(home) as entries:
        for entry in entries:
            seen += 1
            (home / entry.name).rename(home / f"{entry.name}-{seen}")
            assert seen < 10_000
    assert seen >= 3000


def test_a_listing_goes_on_where_the_disks_own_may_not(make_node: NodeFactory, workspace: Path) -> None:
    """The offsets of an overlay are those of whatever it lies on."""
    node = make_node()
    with mounted("tmpfs", workspace / "memory") as memory:
        for name in ("lower", "upper", "work"):
            (memory / name).mkdir()
        layers = f"lowerdir={memory}/lower,upperdir={memory}/upper,workdir={memory}/work"
        with mounted("overlay", node.store, "-o", layers):
            node.start()
            (node.work / "home").mkdir()
            change_while_listing(node.work / "home")
            node.stop()


def test_append_from_two_descriptors(home: Path) -> None:
    path = home / "log"
    with path.open("ab", buffering=0) as first, path.open("ab", buffering=0) as second:
        for number in range(50):
            first.write(b"first %d\n" % number)
            second.write(b"second %d\n" % number)
    assert len(path.read_bytes().splitlines()) == 100


def test_more_files_are_synced_at_once_than_there_are_threads_for_it(home: Path) -> None:
    count = 100
    together = threading.Barrier(count)

    def write(number: int) -> None:
        with (home / str(number)).open("wb") as file:
            file.write(b"%d" % number)
            file.flush()
            together.wait()
            os.fsync(file.fileno())
            os.fdatasync(file.fileno())

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(write, range(count)))
    assert [(home / str(number)).read_bytes() for number in range(count)] == [b"%d" % number for number in range(count)]


@pytest.mark.promise("zones-only")
def test_the_root_holds_zones_only(node: Node) -> None:
    assert sorted(os.listdir(node.mountpoint)) == ["blobs", "checkpoints", "work"]
    with pytest.raises(PermissionError):
        (node.mountpoint / "file").touch()
    with pytest.raises(PermissionError):
        (node.mountpoint / "directory").mkdir()
    with pytest.raises(PermissionError):
        node.work.rmdir()
    with pytest.raises(OSError, match="Device or resource busy"):
        node.work.rename(node.mountpoint / "elsewhere")


def test_inode_numbers_outlive_the_daemon(home: Path, node: Node) -> None:
    (home / "file").touch()
    before = (home / "file").stat().st_ino
    node.stop()
    node.start()
    assert (home / "file").stat().st_ino == before


@pytest.mark.parametrize("bytes_in_all", [0, 256 << 20], ids=["plenty", "near its end"])
def test_a_directory_without_search_permission_gets_it_back_from_a_daemon_without_privileges(
    bytes_in_all: int, make_node: NodeFactory, workspace: Path
) -> None:
    """Java takes all permissions from a new directory before it gives some back.

    Near its end a disk is written as by nobody, which takes a privilege.
    """
    with mounted_image("ext4", workspace / "disk", bytes_in_all) if bytes_in_all else nullcontext(workspace) as disk:
        node = make_node(store__directory=disk / "store")
        may_not = "-dac_override,-dac_read_search"
        node.prefix = ["setpriv", f"--inh-caps={may_not}", f"--bounding-set={may_not}"]
        directory = node.start().work / "worker_1" / "tmp" / "private"
        directory.mkdir(parents=True)
        for mode in (0o600, 0o000, 0o700):
            directory.chmod(mode)
            assert directory.stat().st_mode & 0o7777 == mode
        (directory / "file").write_bytes(b"written")
        node.stop()


@pytest.mark.promise("running-programs")
@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC])
def test_a_program_that_runs_is_neither_written_nor_emptied(node: Node, flags: int) -> None:
    program = node.work / "one_1" / "program"
    program.parent.mkdir()
    whole = copied_program(program)
    with running(program) as process:
        with pytest.raises(OSError, match="Text file busy"):
            os.open(program, flags)
        assert process.poll() is None
    assert program.read_bytes() == whole
    os.close(os.open(program, flags))


def test_a_program_that_has_ended_is_emptied_while_others_read_it(node: Node) -> None:
    program = node.work / "one_1" / "program"
    program.parent.mkdir()
    copied_program(program)
    with program.open("rb"):
        with running(program):
            pass
        os.close(os.open(program, os.O_RDONLY | os.O_TRUNC))
    assert program.read_bytes() == b""


@pytest.mark.promise("running-programs")
def test_a_program_elsewhere_with_the_same_path_keeps_nobody_from_emptying_a_file(node: Node, tmp_path: Path) -> None:
    """Another user could keep it so for ever, by a directory of its own."""
    program, decoy = node.work / "one_1" / "program", tmp_path / "work" / "one_1" / "program"
    for each in (program, decoy):
        each.parent.mkdir(parents=True)
        copied_program(each)
    with running(decoy):
        os.close(os.open(program, os.O_RDONLY | os.O_TRUNC))
    assert program.read_bytes() == b""


@pytest.mark.promise("running-programs")
def test_a_program_that_runs_is_not_emptied_after_a_takeover(make_node: NodeFactory) -> None:
    node = make_node()
    node.supervised = True
    node.start()
    program = node.work / "one_1" / "program"
    program.parent.mkdir()
    whole = copied_program(program)
    with running(program), running(program):
        for _ in range(2):
            node.kill_daemon()
            with pytest.raises(OSError, match="Text file busy"):
                os.open(program, os.O_RDONLY | os.O_TRUNC)
    assert program.read_bytes() == whole
    os.close(os.open(program, os.O_RDONLY | os.O_TRUNC))
    assert program.read_bytes() == b""
    node.stop()


def test_a_program_that_runs_is_not_emptied_by_another_of_its_names(node: Node) -> None:
    directory = node.work / "one_1"
    directory.mkdir()
    whole = copied_program(directory / "first")
    os.link(directory / "first", directory / "second")
    for runs, other in (("first", "second"), ("second", "first")):
        with running(directory / runs), pytest.raises(OSError, match="Text file busy"):
            os.open(directory / other, os.O_RDONLY | os.O_TRUNC)
        assert (directory / other).read_bytes() == whole
