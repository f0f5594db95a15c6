"""The C module under a real kernel: data goes past the daemon, and the mount outlives it.

The file system is the tests' own and as small as can be, so that what fails here is the module.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons.node import wait_until
from tests.support.kernel.needs import needs_takeover
from tests.support.kernel.small_mount import SmallMount
from tests.support.users.privileges import MAY_NET_RAW, as_nobody, needs_root

pytestmark = needs_root

MIB = 2**20
DATA = {"READ", "WRITE"}


@pytest.fixture
def meanwhile() -> Iterator[Callable[..., Future[Any]]]:
    """Run a function in a thread: it may have to wait for a daemon. The mounts end first, or it would wait for ever."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit


@pytest.fixture
def small(workspace: Path, meanwhile: object) -> Iterator[SmallMount]:
    """A mounted small file system, whose daemon is in a process of its own."""
    mount = SmallMount(workspace / "small")
    mount.start()
    yield mount
    mount.end()


@pytest.fixture
def unmounted(workspace: Path, meanwhile: object) -> Iterator[SmallMount]:
    """The same, not yet started."""
    mount = SmallMount(workspace / "unmounted")
    yield mount
    mount.end()


def is_open_for_writing(path: Path) -> bool:
    """Say whether anybody, the kernel included, has the file open for writing (fcntl(2), read leases)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


# --- passthrough ------------------------------------------------------------------------------------------------------


@needs_takeover
def test_data_moves_without_a_request(small: SmallMount) -> None:
    pattern = os.urandom(MIB)
    with (small.path / "file").open("w+b", buffering=0) as file:
        for _ in range(8):
            file.write(pattern)
        file.seek(0)
        assert file.read() == pattern * 8
        assert os.pread(file.fileno(), 4096, 5 * MIB) == pattern[:4096]
    assert (small.backing / "file").read_bytes() == pattern * 8
    told = small.ask()
    assert not DATA & told.requests.keys()
    assert told.mode == "passthrough"


@pytest.mark.parametrize("name", ["file", "file.daemon"])
def test_writing_asks_for_no_attribute_each_time(small: SmallMount, name: str) -> None:
    with (small.path / name).open("wb", buffering=0) as file:
        for _ in range(100):
            file.write(b"x")
    assert small.ask().requests["GETXATTR"] == 1


def test_the_size_is_right_after_each_write(small: SmallMount) -> None:
    with (small.path / "file").open("w+b", buffering=0) as file:
        for count in range(1, 20):
            file.write(b"x" * 1000)
            assert os.fstat(file.fileno()).st_size == count * 1000
            assert (small.path / "file").stat().st_size == count * 1000
            assert file.seek(0, os.SEEK_END) == count * 1000
        os.ftruncate(file.fileno(), 10)
        assert os.fstat(file.fileno()).st_size == 10
        assert os.pread(file.fileno(), 100, 0) == b"x" * 10


@needs_takeover
def test_appends_of_two_handles_do_not_overwrite_each_other(small: SmallMount) -> None:
    path = small.path / "file"
    with path.open("ab", buffering=0) as one, path.open("ab", buffering=0) as other:
        for _ in range(50):
            one.write(b"1")
            other.write(b"22")
    assert (small.backing / "file").read_bytes() == b"122" * 50
    assert not DATA & small.ask().requests.keys()


@needs_takeover
def test_mappings_go_to_the_backing_file(small: SmallMount) -> None:
    backing = small.backing / "file"
    backing.write_bytes(b"a" * 8192)
    with (
        (small.path / "file").open("r+b") as file,
        mmap.mmap(file.fileno(), 8192) as shared,
        mmap.mmap(file.fileno(), 8192, mmap.MAP_PRIVATE) as private,
    ):
        shared[:4] = b"seen"
        private[4096:4100] = b"mine"
        assert backing.read_bytes() == b"seen" + b"a" * 8188
        shared[:4] = b"more"
        assert backing.read_bytes()[:4] == b"more"
    assert not DATA & small.ask().requests.keys()


@needs_takeover
def test_a_program_runs_from_the_mount(small: SmallMount) -> None:
    shutil.copy("/bin/echo", small.path / "echo")
    assert subprocess.run([small.path / "echo", "hello"], check=True, capture_output=True).stdout == b"hello\n"
    assert not DATA & small.ask().requests.keys()


@needs_takeover
def test_copies_inside_the_kernel_need_no_daemon(small: SmallMount) -> None:
    pattern = os.urandom(MIB)
    (small.path / "from").write_bytes(pattern)
    with (small.path / "from").open("rb") as source, (small.path / "to").open("wb") as target:
        assert os.copy_file_range(source.fileno(), target.fileno(), MIB // 2) == MIB // 2
        assert os.sendfile(target.fileno(), source.fileno(), MIB // 2, MIB // 2) == MIB // 2
    assert (small.backing / "to").read_bytes() == pattern
    assert not DATA & small.ask().requests.keys()


@needs_takeover
def test_direct_io_reads_the_disk(small: SmallMount) -> None:
    (small.backing / "file").write_bytes(b"d" * 8192)
    fd = os.open(small.path / "file", os.O_RDWR | os.O_DIRECT)
    with mmap.mmap(-1, 4096) as page:
        assert os.preadv(fd, [page], 4096) == 4096
        assert page[:] == b"d" * 4096
        page[:] = b"e" * 4096
        assert os.pwritev(fd, [page], 0) == 4096
    os.close(fd)
    assert (small.backing / "file").read_bytes() == b"e" * 4096 + b"d" * 4096
    assert not DATA & small.ask().requests.keys()


def test_space_is_allocated_and_freed(small: SmallMount) -> None:
    with (small.path / "file").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, MIB)
        assert os.fstat(file.fileno()).st_size == MIB
        assert (small.backing / "file").stat().st_blocks >= MIB // 512
    punch = ["fallocate", "--punch-hole", "--offset", "0", "--length", str(MIB // 2), str(small.path / "file")]
    subprocess.run(punch, check=True)
    assert (small.backing / "file").stat().st_blocks < MIB // 512
    assert small.ask().requests["FALLOCATE"] == 2


def test_what_the_reply_asks_for_besides_is_heeded(small: SmallMount) -> None:
    (small.path / "file").write_bytes(b"closed without a request")
    assert "FLUSH" not in small.ask().requests


def rewrite(path: Path) -> None:
    with path.open("r+b", buffering=0) as file:
        file.write(b"changed")


def empty(path: Path) -> None:
    path.open("wb").close()


def shorten(path: Path) -> None:
    os.truncate(path, 5)


@pytest.mark.parametrize("name", ["file", "file.daemon"])
@pytest.mark.parametrize("change", [rewrite, empty, shorten])
def test_set_id_bits_go_when_somebody_else_changes_the_bytes(
    small: SmallMount, change: Callable[[Path], object], name: str
) -> None:
    path = small.path / name
    path.touch()
    path.chmod(0o6777)
    change(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o6777  # root may keep them
    as_nobody(lambda: change(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o777


# --- lent descriptors -------------------------------------------------------------------------------------------------


def has_released(small: SmallMount, handles: int) -> bool:
    """Say whether the last of so many handles is gone: a request is counted when it has been read, and carried out later."""
    told = small.ask()
    return told.requests.get("RELEASE") == handles and told.open == 0


@needs_takeover
def test_a_file_in_passthrough_is_known_to_have_no_capabilities_as_long_as_it_is_open(small: SmallMount) -> None:
    path = small.path / "file"
    with path.open("wb"), pytest.raises(OSError, match="No data available"):
        os.getxattr(path, "security.capability")
    wait_until(lambda: has_released(small, 1))
    with pytest.raises(OSError, match="not supported"):
        os.getxattr(path, "security.capability")
    with (small.path / "file.daemon").open("wb"), pytest.raises(OSError, match="not supported"):
        os.getxattr(small.path / "file.daemon", "security.capability")


def test_a_file_that_has_capabilities_is_not_answered_for(small: SmallMount) -> None:
    with (small.path / "file").open("wb"):
        os.setxattr(small.backing / "file", "security.capability", MAY_NET_RAW)
        with pytest.raises(OSError, match="not supported"):
            os.getxattr(small.path / "file", "security.capability")


def test_a_lent_directory_is_answered_for_from_its_descriptor(small: SmallMount) -> None:
    directory = small.path / "directory.lent"
    directory.mkdir()
    (small.backing / "name").touch()  # which the handler finds in any directory
    assert not (directory / "name").exists()
    (directory / "other").mkdir()  # now the attributes that came with the first mkdir don't hold any more
    assert directory.stat().st_atime_ns == (small.backing / "directory.lent").stat().st_atime_ns > 0  # the handler tells 0
    for name in ("later", "directory.lent/later"):
        (small.backing / name).touch()
    assert (directory / "later").exists()


# --- backing ids ------------------------------------------------------------------------------------------------------


@needs_takeover
def test_the_last_handle_closes_the_backing_file(small: SmallMount) -> None:
    path, backing = small.path / "file", small.backing / "file"
    with path.open("wb"):
        with path.open("rb"), path.open("r+b"):
            assert (small.ask().open, small.ask().ids) == (1, 1)
        wait_until(lambda: small.ask().requests.get("RELEASE") == 2)
        assert is_open_for_writing(backing)
    wait_until(lambda: has_released(small, 3))
    assert small.ask().ids == 0
    assert not is_open_for_writing(backing)


def test_opens_of_one_file_at_the_same_time_never_fail(small: SmallMount) -> None:
    for name in ("file", "file.daemon"):
        (small.path / name).write_bytes(b"x" * 100)

    def open_often(name: str) -> None:
        for _ in range(200):
            with (small.path / name).open("r+b", buffering=0) as file:
                assert file.read(100) == b"x" * 100

    with ThreadPoolExecutor(6) as threads:
        for done in [threads.submit(open_often, name) for name in ("file", "file.daemon") * 3]:
            done.result()
    wait_until(lambda: small.ask().open == 0)
    told = small.ask()
    assert told.ids == 0
    assert told.requests["RELEASE"] == told.requests["OPEN"] + told.requests["CREATE"]


def test_many_opens_leave_nothing_behind(small: SmallMount) -> None:
    path = small.path / "file"
    path.write_bytes(b"x")
    wait_until(lambda: small.ask().open == 0)
    before = small.descriptors()
    for _ in range(1000):
        path.read_bytes()
    wait_until(lambda: small.ask().open == 0)
    assert small.descriptors() == before
    assert not is_open_for_writing(small.backing / "file")


def test_files_that_the_daemon_serves_stand_beside_those_it_does_not(small: SmallMount) -> None:
    (small.backing / "file.daemon").write_bytes(b"served")
    (small.backing / "file").write_bytes(b"passed")
    with (small.path / "file.daemon").open("r+b", buffering=0) as file:
        assert (small.path / "file").read_bytes() == b"passed"
        assert file.read() == b"served"
        file.write(b" too")
    assert (small.backing / "file.daemon").read_bytes() == b"served too"
    told = small.ask()
    assert told.requests["READ"] >= 1
    assert told.requests["WRITE"] == 1


@needs_takeover
def test_a_handle_for_direct_io_does_not_bind_later_opens(small: SmallMount) -> None:
    (small.backing / "file.late").write_bytes(b"x" * 4096)
    path = small.path / "file.late"
    with path.open("r+b", buffering=0) as direct, path.open("r+b", buffering=0) as passed:
        assert direct.read(10) == passed.read(10) == b"x" * 10
        passed.write(b"y" * 10)
        assert direct.read(10) == b"y" * 10
        mmap.mmap(passed.fileno(), 4096).close()
        with pytest.raises(OSError, match="No such device"):
            mmap.mmap(direct.fileno(), 4096)
    assert small.ask().requests["READ"] == 2


@needs_takeover
def test_the_kernel_fails_an_open_of_another_kind(small: SmallMount) -> None:
    (small.backing / "file.mixed").write_bytes(b"x")
    path = small.path / "file.mixed"
    with path.open("rb") as file:
        with pytest.raises(OSError, match="Input/output error"):
            path.open("rb")
        assert file.read() == b"x"


# --- without it -------------------------------------------------------------------------------------------------------


@needs_takeover
def test_switched_off_the_daemon_serves(unmounted: SmallMount) -> None:
    unmounted.start(passthrough=False)
    (unmounted.path / "file").write_bytes(b"served")
    assert (unmounted.path / "file").read_bytes() == b"served"
    told = unmounted.ask()
    assert told.mode == "daemon-io: switched off by setting"
    assert told.takeover == "takeover"
    assert told.requests["WRITE"] == 1


def test_without_the_c_module_the_daemon_serves(unmounted: SmallMount) -> None:
    elsewhere = [path for path in os.environ["PYTHONPATH"].split(":") if not list(Path(path).glob("_holdfast_kernel*.so"))]
    unmounted.start(environment={"PYTHONPATH": ":".join(elsewhere)})
    (unmounted.path / "file").write_bytes(b"served")
    assert (unmounted.path / "file").read_bytes() == b"served"
    told = unmounted.ask()
    assert told.mode == "daemon-io: the C module is not there (No module named '_holdfast_kernel')"
    assert told.requests == {}
    assert unmounted.device == -1


# --- takeover ---------------------------------------------------------------------------------------------------------


@needs_takeover
def test_data_of_open_files_moves_while_there_is_no_daemon(small: SmallMount) -> None:
    with (small.path / "file").open("w+b", buffering=0) as file:
        os.ftruncate(file.fileno(), 4096)
        with mmap.mmap(file.fileno(), 4096) as mapped:
            file.write(b"x" * 4096)
            small.kill()
            assert os.pread(file.fileno(), 4096, 0) == b"x" * 4096
            assert os.pwrite(file.fileno(), b"y" * 4096, 4096) == 4096
            mapped[:4] = b"kept"
            small.start()
    assert (small.backing / "file").read_bytes() == b"kept" + b"x" * 4092 + b"y" * 4096
    wait_until(lambda: has_released(small, 1))
    assert not is_open_for_writing(small.backing / "file")


@needs_takeover
def test_a_request_that_came_while_there_was_no_daemon_is_carried_out(
    small: SmallMount, meanwhile: Callable[..., Future[Any]]
) -> None:
    small.kill()
    made = meanwhile((small.path / "made").mkdir)
    small.start()
    made.result()
    assert (small.backing / "made").is_dir()
    assert small.ask().resent == []


@needs_takeover
@pytest.mark.parametrize("daemons_that_die", [1, 3])
def test_a_directory_that_was_made_before_the_daemon_died_is_made_once(
    unmounted: SmallMount, meanwhile: Callable[..., Future[Any]], daemons_that_die: int
) -> None:
    unmounted.start(die_in="mkdir")
    made = meanwhile((unmounted.path / "made").mkdir)
    for last in [False] * (daemons_that_die - 1) + [True]:
        unmounted.wait_until_dying()
        unmounted.kill()
        assert (unmounted.backing / "made").is_dir()
        assert not made.done()
        unmounted.start(die_in="" if last else "mkdir")
    made.result()
    assert unmounted.ask().resent == ["mkdir"]
    with pytest.raises(FileExistsError):
        (unmounted.path / "made").mkdir()


@needs_takeover
def test_a_file_whose_creation_was_not_answered_is_opened_in_passthrough_all_the_same(
    unmounted: SmallMount, meanwhile: Callable[..., Future[Any]]
) -> None:
    unmounted.start(die_in="create")
    created = meanwhile((unmounted.path / "file").open, "w+b", buffering=0)
    unmounted.wait_until_dying()
    unmounted.kill()
    unmounted.start()
    with created.result() as file:
        file.write(b"written")
        assert os.pread(file.fileno(), 100, 0) == b"written"
    told = unmounted.ask()
    assert told.resent == ["create"]
    assert not DATA & told.requests.keys()


@needs_takeover
def test_a_file_opened_under_one_daemon_is_opened_again_under_the_next(small: SmallMount) -> None:
    path = small.path / "file"
    path.write_bytes(b"first")
    with path.open("r+b", buffering=0) as old:
        for _ in range(3):
            small.kill()
            small.start()
            with path.open("rb") as new:
                assert new.read() == b"first"
        assert old.read() == b"first"
    assert not DATA & small.ask().requests.keys()


@needs_takeover
def test_a_daemon_that_died_before_it_spoke_to_the_kernel_is_followed_by_one_that_does(unmounted: SmallMount) -> None:
    unmounted.start(die_in="start")
    unmounted.kill()
    assert not unmounted.kept.exists()
    unmounted.start()
    (unmounted.path / "file").write_bytes(b"passed")
    assert unmounted.ask().mode == "passthrough"
    assert unmounted.kept.exists()


@needs_takeover
def test_a_daemon_that_died_with_its_first_reply_unsent_is_followed_by_one_that_sends_it(
    unmounted: SmallMount, small: SmallMount
) -> None:
    (small.path / "file").touch()
    unmounted.start(die_in="start")
    unmounted.kill()
    shutil.copy(small.kept, unmounted.kept)
    unmounted.start()
    (unmounted.path / "file").write_bytes(b"passed")
    told = unmounted.ask()
    assert told.mode == "passthrough"
    assert not DATA & told.requests.keys()


@needs_takeover
def test_a_mount_keeps_what_was_agreed_on_at_its_start(unmounted: SmallMount) -> None:
    unmounted.start(passthrough=False)
    (unmounted.path / "file").write_bytes(b"served")
    unmounted.kill()
    unmounted.start(passthrough=True)
    assert (unmounted.path / "file").read_bytes() == b"served"
    told = unmounted.ask()
    assert told.mode == "daemon-io: the mount was made without it"
    assert told.takeover == "takeover"


@needs_takeover
def test_nothing_fails_while_daemons_are_killed_one_after_the_other(
    small: SmallMount, meanwhile: Callable[..., Future[Any]]
) -> None:
    def kill_and_start() -> None:
        for _ in range(10):
            small.kill()
            small.start()

    killed = meanwhile(kill_and_start)
    rounds = 0
    while not killed.done() or rounds < 10:
        rounds += 1
        path = small.path / f"file-{rounds}"
        path.write_bytes(b"%d" % rounds)
        assert path.read_bytes() == b"%d" % rounds
        (small.path / f"directory-{rounds}").mkdir()
        path.unlink()
    killed.result()
    assert len(list(small.backing.iterdir())) == rounds
