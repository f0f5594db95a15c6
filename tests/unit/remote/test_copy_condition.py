"""The trial of the condition of a copy on an S3 server: it is made once, and only an answer that says so counts."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.errors import (
    HoldfastError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteRefusedError,
    RemoteUnavailableError,
    RemoteUnsupportedError,
)
from holdfast.remote import ObjectInfo, UploadSource
from holdfast.remote.large_create import LargeCreate

TRIED = {".holdfast/condition-source", ".holdfast/condition-taken"}


class Server:
    """A server without objects, except those of the trial.."""

    def __init__(self, answer: HoldfastError | None = None) -> None:
        self.answer = answer
        self.sizes: dict[str, int] = {}
        self.copies: list[tuple[str, str]] = []
        self.deleted: list[str] = []
        self.whole: list[str] = []

    def head(self, key: str) -> ObjectInfo:
        if key not in self.sizes:
            raise ObjectMissingError(key)
        return ObjectInfo(key, self.sizes[key], "etag", 0)

    def delete_staged(self, key: str) -> None:
        self.deleted.append(key)
        raise RemoteRefusedError("nothing may be deleted", of_store=False)

    def put_parts(self, key: str, source: UploadSource, metadata: dict[str, str]) -> None:
        del metadata
        self.sizes[key] = source.size_bytes

    def write_private(self, name: str, data: bytes, *, create_only: bool) -> None:
        assert create_only
        if f".holdfast/{name}" in self.sizes:
            raise ObjectExistsError(name)
        self.sizes[f".holdfast/{name}"] = len(data)

    def copy_object(self, source: str, target: str, *, overwrite: bool) -> None:
        assert not overwrite
        self.copies.append((source, target))
        if {source, target} == TRIED:
            assert self.sizes[source], "some servers treat empty parts in a way of their own"
            if self.answer is not None:
                raise self.answer
        self.sizes[target] = self.sizes[source]

    def create(self, key: str, source: UploadSource, metadata: dict[str, str]) -> ObjectInfo:
        """Stand in for one conditional PUT."""
        del metadata
        self.whole.append(key)
        return ObjectInfo(key, source.size_bytes, "etag", 0)


def creation(server: Server) -> LargeCreate:
    return LargeCreate(server, server.create)


@pytest.fixture
def source(tmp_path: Path) -> UploadSource:
    path = tmp_path / "large"
    path.write_bytes(b"bytes")
    return UploadSource(5, path=path)


def test_a_server_that_refuses_a_copy_to_a_name_that_is_taken_is_trusted(source: UploadSource) -> None:
    server = Server(ObjectExistsError("taken"))
    large = creation(server)
    for key in ("a", "b"):
        large.create(key, source, {})
    assert server.whole == []
    assert [target for _, target in server.copies] == [".holdfast/condition-taken", "a", "b"], "tried once"


@pytest.mark.parametrize("answer", [None, RemoteUnsupportedError("no such copy", of_store=False)])
def test_a_server_that_takes_it_or_knows_no_such_copy_gets_whole_files(
    answer: HoldfastError | None, source: UploadSource
) -> None:
    server = Server(answer)
    large = creation(server)
    for key in ("a", "b"):
        large.create(key, source, {})
    assert server.whole == ["a", "b"]
    assert len(server.copies) == 1


@pytest.mark.parametrize(
    "answer",
    [
        RemoteRefusedError("AccessDenied", of_store=False),
        RemoteRefusedError("SignatureDoesNotMatch"),
        RemoteUnavailableError("SlowDown"),
    ],
)
def test_an_answer_that_says_nothing_of_the_condition_is_raised_and_not_remembered(
    answer: HoldfastError, source: UploadSource
) -> None:
    server = Server(answer)
    large = creation(server)
    with pytest.raises(type(answer), match=str(answer)):
        large.create("a", source, {})
    assert server.whole == []
    server.answer = ObjectExistsError("taken")
    large.create("a", source, {})
    assert server.whole == []
    assert server.copies[-1][1] == "a"


def test_all_nodes_try_it_with_the_same_two_objects_and_delete_none(source: UploadSource) -> None:
    server = Server()
    for number in range(3):
        creation(server).create(f"{number}", source, {})
    assert server.sizes.keys() == TRIED
    assert server.deleted == []


def test_several_who_are_first_at_once_try_it_once(source: UploadSource) -> None:
    server = Server()
    large, start = creation(server), threading.Barrier(8)

    def create(number: int) -> None:
        start.wait(60)
        large.create(f"{number}", source, {})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(8)))
    assert len(server.copies) == 1
    assert len(server.whole) == 8
