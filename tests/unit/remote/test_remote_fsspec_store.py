"""fsspec: what its file systems would rather not tell, and how little they promise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from holdfast.errors import (
    NameNotStorableError,
    ObjectChangedError,
    ObjectMissingError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote import RemoteStore, UploadSource, fsspec_store
from tests.unit.remote.test_remote_contract import REQUEST_TIMEOUT_SECONDS, content, opened, put

SCHEME = "faulty"
SECRET = "pa55word"


class Faulty(MemoryFileSystem):  # type: ignore[misc]
    """A file system in memory whose next operations raise ``problem``; ``made`` counts how often one was opened."""

    protocol = SCHEME
    cachable = False
    store: dict[str, Any] = {}  # noqa: RUF012 as in the class above, which shares it
    pseudo_dirs = [""]  # noqa: RUF012
    problem: Exception | None = None
    made = 0

    def __init__(self, **options: Any) -> None:
        type(self).made += 1
        password = options.pop("password", None)
        if options:
            raise TypeError(f"no such options beside {password}: {options}")
        super().__init__(**options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return super()._strip_protocol(str(path).removeprefix(f"{SCHEME}:/"))  # type: ignore[no-any-return]

    def _fail(self) -> None:
        problem = type(self).problem
        if problem is not None:
            raise problem

    def info(self, path: str, **options: Any) -> Any:
        self._fail()
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self._fail()
        return super().ls(path, detail, **options)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._fail()
        super().makedirs(path, exist_ok)


@pytest.fixture
def faulty() -> Iterator[type[Faulty]]:
    """The file system, without files and faults."""
    fsspec.register_implementation(SCHEME, Faulty, clobber=True)
    Faulty.store.clear()
    Faulty.pseudo_dirs[:] = [""]
    Faulty.problem, Faulty.made = None, 0
    yield Faulty
    Faulty.problem = None


@pytest.fixture
def store(faulty: type[Faulty]) -> RemoteStore:
    """A store over it."""
    return opened(f"{SCHEME}:///box", {"password": SECRET})


@pytest.mark.parametrize("others_do_it", [True, False])
def test_directories_that_others_make_at_the_same_moment_are_no_error(
    store: RemoteStore, faulty: type[Faulty], monkeypatch: pytest.MonkeyPatch, *, others_do_it: bool
) -> None:
    """fsspec looks whether each is there and then makes it; if it is there by then, an SFTP server says only "Failure"."""
    failures: list[str] = []

    def makedirs(self: Faulty, path: str, exist_ok: bool = False) -> None:
        assert exist_ok
        levels = self._strip_protocol(path).split("/")
        for count in range(2, len(levels) + 1):
            if not self.exists(level := "/".join(levels[:count])):
                if others_do_it:
                    self.mkdir(level, create_parents=False)
                failures.append(level)
                raise OSError("Failure")

    monkeypatch.setattr(faulty, "makedirs", makedirs)
    if others_do_it:
        put(store, "d/e/f/a")
        assert content(store, "d/e/f/a") == b"bytes"
        assert failures == ["/box", "/box/d", "/box/d/e", "/box/d/e/f"]
    else:
        with pytest.raises(RemoteUnavailableError, match="Failure"):
            put(store, "d/e/f/a")
        assert set(failures) == {"/box"}


def test_nothing_is_opened_before_it_is_needed(store: RemoteStore, faulty: type[Faulty]) -> None:
    assert faulty.made == 0
    put(store, "a")
    store.head("a")
    assert faulty.made == 1


def test_the_first_write_needs_no_probe(workspace: Path) -> None:
    (workspace / "root").mkdir()
    store = opened(f"fsspec+file://{workspace}/root")
    put(store, "a", b"1")
    file = workspace / "file"
    file.write_bytes(b"from a path")
    store.write("b", UploadSource(11, path=file), {}, create_only=True)
    assert content(store, "b") == b"from a path"


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ConnectionRefusedError(111, f"refused {SECRET}"), RemoteUnavailableError),
        (TimeoutError(f"{SECRET} timed out"), RemoteUnavailableError),
        (RuntimeError(f"of a library, {SECRET}"), RemoteUnavailableError),
        (KeyError(SECRET), RemoteUnavailableError),
        (PermissionError(13, f"denied to {SECRET}"), RemoteRefusedError),
        (OSError(36, f"too long, {SECRET}"), NameNotStorableError),
    ],
)
def test_a_store_that_does_not_answer_is_never_taken_for_empty(
    store: RemoteStore, faulty: type[Faulty], problem: Exception, expected: type[Exception]
) -> None:
    put(store, "a", b"kept")
    faulty.problem = problem
    attempts: list[Callable[[], Any]] = [
        lambda: store.head("a"),
        lambda: store.list_directory(""),
        lambda: list(store.list_tree("")),
        lambda: content(store, "a"),
        lambda: put(store, "a", b"lost", create_only=True),
        lambda: put(store, "a", b"lost"),
        lambda: store.copy("a", "b"),
    ]
    if expected is not NameNotStorableError:  # which can't exist, and need not be deleted
        attempts += [lambda: store.delete(["a"]), lambda: store.prune("a"), store.probe]
    for attempt in attempts:
        with pytest.raises(expected) as caught:
            attempt()
        assert SECRET not in repr(caught.value)
    faulty.problem = None
    assert content(store, "a") == b"kept"
    assert [info.key for info in store.list_tree("")] == ["a"]


def test_a_file_that_shrinks_while_it_is_read_is_another_version(store: RemoteStore, faulty: type[Faulty]) -> None:
    put(store, "a", b"0123456789")
    put(store, "empty", b"")
    body = store.read("a", 0, 10, "")
    faulty.store["/box/a"] = faulty.store["/box/empty"]
    with pytest.raises(ObjectChangedError):
        list(body.buffers)


@pytest.mark.parametrize("extra", [-1, 1])
def test_bytes_that_are_not_as_many_as_were_asked_for_are_refused(
    store: RemoteStore, faulty: type[Faulty], monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    """A library that does not look at the status returns the text of an error."""
    put(store, "a", b"0123456789")
    text = b"{'error': 'no such file'}"
    monkeypatch.setattr(faulty, "cat_file", lambda *_, start, end, **__: text[: end - start + extra])
    with pytest.raises(RemoteUnavailableError, match="in place of 10"):
        content(store, "a")


def test_bytes_of_a_version_that_was_stored_between_two_reads_are_refused(
    store: RemoteStore, faulty: type[Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each buffer is opened separately: without a look after each, a file would be of two halves."""
    monkeypatch.setattr(fsspec_store, "_BUFFER_BYTES", 5)
    put(store, "a", b"first" * 2)
    body = store.read("a", 0, 10, "")
    assert next(body.buffers) == b"first"
    put(store, "a", b"again" * 2)
    with pytest.raises(ObjectChangedError):
        next(body.buffers)


def test_a_file_that_goes_while_it_is_read_is_missing(store: RemoteStore) -> None:
    put(store, "a", b"0123456789")
    body = store.read("a", 0, 10, "")
    store.delete(["a"])
    with pytest.raises(ObjectMissingError):
        list(body.buffers)


def test_what_could_not_be_placed_is_removed(
    store: RemoteStore, faulty: type[Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConnectionResetError("gone")

    with monkeypatch.context() as patched:
        for step in ("mv", "pipe_file"):
            patched.setattr(faulty, step, fail)
            with pytest.raises(RemoteUnavailableError):
                put(store, "a")
            assert faulty.store == {}


def test_options_that_can_not_be_are_refused_with_the_first_request(faulty: type[Faulty]) -> None:
    store = opened(f"{SCHEME}:///box", {"password": SECRET, "nonsense": 1})
    with pytest.raises(RemoteRefusedError, match="options") as caught:
        store.head("a")
    assert SECRET not in repr(caught.value)


class OneConnection(Faulty):
    """A file system that must not be used by two threads at once, as paramiko's and ftplib's."""

    protocol = "sftp"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    used_by_two = False
    last: OneConnection

    def __init__(self, **options: Any) -> None:
        super().__init__()
        type(self).last, self.limits = self, options
        self.user = threading.Lock()
        self.ftp = self

    def get_channel(self) -> OneConnection:
        return self

    def settimeout(self, seconds: float) -> None:
        self.limits["answers"] = seconds

    def info(self, path: str, **options: Any) -> Any:
        if not self.user.acquire(blocking=False):
            type(self).used_by_two = True
            raise AssertionError("two threads use one connection")
        try:
            _SEVERAL.wait()
            return super().info(path, **options)
        finally:
            self.user.release()


_SEVERAL = threading.Barrier(4)


def test_threads_do_not_share_a_connection_that_has_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gain of none: all of them wait for answers that others have taken, for ever."""
    monkeypatch.setitem(_registry, "sftp", OneConnection)
    OneConnection.problem, OneConnection.made = None, 0
    store = opened("sftp:///box")
    with ThreadPoolExecutor(4) as threads:
        for _ in range(3):
            for one in [threads.submit(store.head, "absent") for _ in range(4)]:
                with pytest.raises(ObjectMissingError):
                    one.result()
    assert (OneConnection.used_by_two, OneConnection.made) == (False, 4)
    limits = {"timeout": 2, "banner_timeout": 2, "auth_timeout": 2, "answers": REQUEST_TIMEOUT_SECONDS}
    assert OneConnection.last.limits == limits
    OneConnection.problem = EOFError("connection reset")
    with ThreadPoolExecutor(4) as threads:
        for one in [threads.submit(store.head, "absent") for _ in range(4)]:
            with pytest.raises(RemoteUnavailableError):
                one.result()
        OneConnection.problem = None
        for one in [threads.submit(store.head, "absent") for _ in range(4)]:
            with pytest.raises(ObjectMissingError):
                one.result()
    assert OneConnection.made == 8, "a connection that may be broken is not used again"


class Plain(Faulty):
    """A file system without ``cp_file`` and ``rmdir``: fsspec raises for the former, and does nothing for the latter."""

    protocol = "plain"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    rmdir = fsspec.AbstractFileSystem.rmdir
    cp_file = fsspec.AbstractFileSystem.cp_file

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return super()._strip_protocol(str(path).removeprefix("plain:/"))

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        self.pipe_file(path2, self.cat_file(path1))
        self.rm_file(path1)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        del maxdepth
        assert not recursive
        MemoryFileSystem.rmdir(self, self._strip_protocol(path))


def test_a_file_system_that_does_not_copy_or_says_nothing_when_it_keeps_a_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(_registry, "plain", Plain)
    store = opened("plain:///box")
    put(store, "source", b"copied")
    put(store, "deep/target", b"to be replaced")
    assert store.copy("source", "deep/target").size_bytes == 6
    assert content(store, "deep/target") == b"copied"
    store.delete(["deep/target"])
    store.prune("deep")
    assert store.list_directory("").directories == frozenset()
    assert {name for name in Plain.store if not name.endswith("/source")} == set()
