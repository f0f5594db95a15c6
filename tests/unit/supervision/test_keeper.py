"""What a keeper holds for whom, how long, and how daemons of other versions speak to it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import StoreInUseError
from holdfast.supervision.held_descriptors import MOST_DESCRIPTORS, parsed
from holdfast.supervision.keeper_link import KeeperLink
from tests.support.daemons.kept import KeeperProcess, end_of, exchanged, keeper
from tests.support.users.privileges import MALLORY, needs_root

MOST_KIB = 15 * 1024
"""The limit of a keeper's memory, all of it resident, that of shared libraries too."""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[KeeperProcess]:
    with keeper(tmp_path / "keeper") as process:
        yield process


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError:
            continue


def fetched(link: KeeperLink) -> list[str]:
    found = link.fetch()
    for fd in found.values():
        os.close(fd)
    return sorted(found)


def test_what_a_daemon_gives_comes_back_to_the_next_one(held: KeeperProcess, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    first = KeeperLink(str(held.directory))
    assert first.fetch() == {}
    first.want("holdfast-7", writer)
    assert (first.is_holding, first.problem, held.holds()) == (True, "", "holdfast-7")
    first.close()  # as when its process ends
    held.wait_said("no daemon is there")
    next_one = KeeperLink(str(held.directory))
    found = next_one.fetch()
    os.write(found["holdfast-7"], b"x")
    assert os.read(reader, 1) == b"x"
    os.close(found["holdfast-7"])
    os.close(writer)
    next_one.let_go("holdfast-7")
    assert end_of(reader), "it is closed when it is let go"
    assert held.holds() == ""
    next_one.close()


def test_another_keeper_is_given_the_mount_and_none_that_does_not_say_so_holds_it(
    tmp_path: Path, pipe: tuple[int, int]
) -> None:
    link = KeeperLink(str(tmp_path / "keeper"))
    assert link.fetch() == {}
    link.want("holdfast-7", pipe[1])
    assert not link.is_holding
    assert "no keeper answers" in link.problem
    for _ in range(2):
        with keeper(tmp_path / "keeper") as process:
            link._look()
            assert (link.is_holding, process.holds()) == (True, "holdfast-7")
            process.send_signal(signal.SIGSTOP)
            link._look()
            assert not link.is_holding, "one that is stopped does not answer"
            process.send_signal(signal.SIGCONT)
            link._look()
            assert link.is_holding
        link._look()
        assert not link.is_holding
    link.close()


def test_one_daemon_at_a_time_fetches_what_is_held(held: KeeperProcess, pipe: tuple[int, int]) -> None:
    first, second = KeeperLink(str(held.directory)), KeeperLink(str(held.directory))
    assert fetched(first) == []
    first.want("holdfast-7", pipe[1])
    with pytest.raises(StoreInUseError, match="serves another daemon"):
        second.fetch()
    assert held.holds() == "holdfast-7"
    first.close()
    held.wait_said("no daemon is there")
    assert fetched(second) == ["holdfast-7"]
    second.close()


def test_what_nobody_fetches_is_let_go_in_time(tmp_path: Path, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    with keeper(tmp_path / "keeper", "--abandon", "0.3") as process:
        link = KeeperLink(str(process.directory))
        link.fetch()
        link.want("holdfast-7", writer)
        os.close(writer)
        link.close()
        assert end_of(reader)
        process.wait_said("no daemon has come: letting go of holdfast-7")
        assert process.holds() == ""


def test_a_mount_that_is_gone_is_let_go(held: KeeperProcess) -> None:
    reader, writer = os.pipe()
    held.give("dead", reader)
    os.close(reader)
    os.close(writer)
    held.wait_said("the mount of dead is gone")
    assert held.holds() == ""


def test_only_its_user_speaks_to_it(held: KeeperProcess) -> None:
    """Gain: the descriptor of the mount, by which its holder serves everybody's files."""
    assert held.directory.stat().st_mode & 0o777 == 0o700
    for name in ("notify.sock", "keep.sock"):
        assert (held.directory / name).stat().st_mode & 0o777 == 0o600


@needs_root
def test_another_user_does_not_reach_its_sockets_though_the_directory_is_opened(held: KeeperProcess) -> None:
    held.directory.chmod(0o755)
    os.chmod(held.directory.parent, 0o755)

    def attack() -> None:
        for name, kind in (("notify.sock", socket.SOCK_DGRAM), ("keep.sock", socket.SOCK_SEQPACKET)):
            with socket.socket(socket.AF_UNIX, kind) as channel, pytest.raises(PermissionError):
                channel.connect(str(held.directory / name))

    MALLORY.do(attack)


def ended(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.supervision.keeper", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_directory_is_one_keepers_own(held: KeeperProcess, tmp_path: Path) -> None:
    assert ended(held.directory).stderr == f"holdfast keeper: another keeper uses {held.directory}\n"
    (tmp_path / "full" / "of").mkdir(parents=True)
    mode = (tmp_path / "full").stat().st_mode
    refused = ended(tmp_path / "full")
    assert (refused.returncode, "has other files in it" in refused.stderr) == (1, True)
    assert (tmp_path / "full").stat().st_mode == mode, "what is not its own is left as it is"


def test_it_needs_little_memory_and_ends_on_sigterm(tmp_path: Path) -> None:
    with keeper(tmp_path / "keeper") as process:
        status = Path(f"/proc/{process.pid}/status").read_text()
        (kib,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
        assert kib <= MOST_KIB
        assert process.end() == 0


def test_no_more_is_held_than_fits_into_a_message(held: KeeperProcess, pipe: tuple[int, int]) -> None:
    for number in range(MOST_DESCRIPTORS + 1):
        held.give(f"n{number}", pipe[1])
    held.give("a:b", pipe[1])
    assert len(held.holds().split(":")) == MOST_DESCRIPTORS
    link = KeeperLink(str(held.directory))
    assert len(fetched(link)) == MOST_DESCRIPTORS
    link.close()


def test_the_protocol_is_that_of_version_1(held: KeeperProcess, pipe: tuple[int, int]) -> None:
    """Never change this: keepers stay when daemons are upgraded, and daemons when keepers are."""
    held.give("holdfast-7", pipe[1])
    with held.connected() as channel:
        hello, _ = exchanged(channel, "")
        assert set(hello) == {"KEEPER", "VERSION"}
        assert hello["VERSION"] == "1"
        assert exchanged(channel, "LIST=1\nVERSION=1") == ({"NAMES": "holdfast-7"}, [])
        answer, (fd,) = exchanged(channel, "FETCH=1\nVERSION=1")
        assert answer == {"NAMES": "holdfast-7"}
        os.close(fd)


@pytest.mark.parametrize("request_text", ["LIST=1\nVERSION=2\nSINCE=7", "VERSION=9\nLIST=1", "LIST=1"])
def test_a_daemon_of_another_version_is_answered(request_text: str, held: KeeperProcess) -> None:
    with held.connected() as channel:
        exchanged(channel, "")
        assert exchanged(channel, "UNHEARD-OF=1\nVERSION=2")[0] == {"ERROR": "an unknown request"}
        assert exchanged(channel, request_text)[0] == {"NAMES": ""}


class OtherKeeper:
    """A keeper of another version: it says ``hello``, and answers each request with ``answer``."""

    def __init__(self, directory: Path, hello: str, answer: str) -> None:
        directory.mkdir()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(directory / "keep.sock"))
        self._listener.listen()
        self._hello, self._answer = hello, answer
        self.requests: list[dict[str, str]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.send(self._hello.encode())
            while data := connection.recv(4096):
                self.requests.append(parsed(data))
                connection.send(self._answer.encode())

    def close(self) -> None:
        self._listener.close()
        self._thread.join()


@pytest.fixture
def other_keeper(tmp_path: Path) -> Iterator[Callable[[str, str], OtherKeeper]]:
    made: list[OtherKeeper] = []

    def make(hello: str, answer: str) -> OtherKeeper:
        made.append(OtherKeeper(tmp_path / "other", hello, answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_newer_keeper_that_still_speaks_version_1_is_used(
    other_keeper: Callable[[str, str], OtherKeeper], tmp_path: Path, pipe: tuple[int, int]
) -> None:
    newer = other_keeper("KEEPER=ab\nVERSION=7\nOLDEST=1\nMORE=1", "NAMES=holdfast-7:another\nSTRANGE=1")
    link = KeeperLink(str(tmp_path / "other"))
    link.fetch()
    link.want("holdfast-7", pipe[1])
    assert link.is_holding
    assert [each["VERSION"] for each in newer.requests] == ["1", "1"]
    link.close()


@pytest.mark.parametrize(
    ("hello", "answer", "problem"),
    [
        ("KEEPER=ab\nVERSION=7\nOLDEST=2", "NAMES=holdfast-7", "no longer speaks version 1"),
        ("KEEPER=ab\nVERSION=1", "NAMES=", "does not take it"),
        ("KEEPER=ab\nVERSION=1", "\xff\xff", "does not take it"),
    ],
)
def test_a_keeper_that_does_not_confirm_the_mount_is_not_relied_on(
    hello: str,
    answer: str,
    problem: str,
    other_keeper: Callable[[str, str], OtherKeeper],
    tmp_path: Path,
    pipe: tuple[int, int],
) -> None:
    other_keeper(hello, answer)
    link = KeeperLink(str(tmp_path / "other"))
    assert link.fetch() == {}
    link.want("holdfast-7", pipe[1])
    assert not link.is_holding
    if "no longer" not in problem:
        assert problem in link.problem
        link.close()
