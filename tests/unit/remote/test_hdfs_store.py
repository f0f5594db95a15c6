"""HDFS: what it answers, and what is made of that. The contract's tests run on it too."""

from __future__ import annotations

import base64
import json
import sys
import threading
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast.errors import (
    ConfigurationError,
    CredentialsExpiredError,
    HoldfastError,
    NameNotStorableError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote import RemoteStore, UploadSource, hdfs_store, open_store
from tests.support.stores.hdfs import Hdfs
from tests.support.stores.scripted_hdfs import STATUS, Scripted, failure
from tests.unit.remote.test_remote_contract import content, opened, put

WRITERS = 4


@pytest.fixture
def place(hdfs: Hdfs, request: pytest.FixtureRequest) -> Hdfs:
    """A directory of the test's own, with ``holdfast`` as its owner."""
    return hdfs.below(request.node.name)


@pytest.fixture
def store(place: Hdfs) -> RemoteStore:
    """A store there."""
    return opened(place.url, place.options)


@pytest.mark.slow
def test_of_all_who_create_a_name_one_wins_and_its_bytes_are_there(place: Hdfs) -> None:
    """A rename that HDFS refuses is no write: else all are told that they have won."""
    nodes = [opened(place.url, place.options) for _ in range(WRITERS)]

    def create(node: int, number: int) -> bool:
        try:
            put(nodes[node], f"offsets/{number}", b"by %d" % node, {"digest": f"{node}"}, create_only=True)
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(WRITERS) as threads:
        for number in range(10):
            won = [one.result() for one in [threads.submit(create, node, number) for node in range(WRITERS)]]
            assert won.count(True) == 1
            assert content(nodes[0], f"offsets/{number}") == b"by %d" % won.index(True)
            assert nodes[0].head(f"offsets/{number}").metadata == {"digest": f"{won.index(True)}"}
    assert [info.key for info in nodes[0].list_tree(".holdfast")] == [], "what was staged is removed"


@pytest.mark.slow
def test_a_read_has_the_bytes_of_one_version_while_others_replace_it(place: Hdfs, store: RemoteStore) -> None:
    """The name has a combining character, which Hadoop garbles on the way to a datanode."""
    name, versions = "gru\u0308n", [character * 300_000 for character in (b"a", b"b")]
    put(store, name, versions[0])
    done = threading.Event()

    def replace_often() -> None:
        other = opened(place.url, place.options)
        try:
            for number in range(12):
                put(other, name, versions[number % 2])
        finally:
            done.set()

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(replace_often)
        while not done.is_set():
            version = store.head(name)
            try:
                found = content(store, name, etag=version.etag)
            except ObjectChangedError:
                continue
            assert found in versions
        writing.result()
    assert content(store, name) == versions[1]


@pytest.mark.slow
def test_what_another_tool_appends_while_it_is_read_makes_another_version(place: Hdfs, store: RemoteStore) -> None:
    put(store, "log", b"0123456789")
    body = store.read("log", 0, 10, "")
    place.append("log", b"more")
    with pytest.raises(ObjectChangedError):
        list(body.buffers)
    assert content(store, "log") == b"0123456789more"


@pytest.mark.slow
def test_what_lies_below_an_object_is_not_there_and_what_is_closed_to_us_is_refused(place: Hdfs, store: RemoteStore) -> None:
    """HDFS says of both that access is denied."""
    put(store, "object")
    assert not store.list_directory("object/below").exists
    assert not store.list_directory("object/far/below").exists
    with pytest.raises(ObjectMissingError):
        store.head("object/far/below")
    with pytest.raises(NameNotStorableError):
        put(store, "object/below")
    place.make_directory("755", "ours")
    place.make_directory("700", "ours/closed")
    stranger = opened(place.below("ours").url, {**place.options, "user": "stranger"})
    assert stranger.list_directory("").directories == {"closed"}
    attempts: list[Callable[[], Any]] = [
        lambda: put(stranger, "new"),
        lambda: put(stranger, "large", b"x" * 2_000_000),
        lambda: stranger.list_directory("closed"),
        lambda: stranger.head("closed/file"),
    ]
    for attempt in attempts:
        with pytest.raises(RemoteRefusedError, match="denied") as caught:
            attempt()
        assert not caught.value.of_store


@pytest.mark.slow
def test_a_cluster_that_stands_still_is_given_up_and_found_again(place: Hdfs) -> None:
    store = open_store(place.url, place.options, {}, request_timeout_seconds=0.5, connect_timeout_seconds=0.5)
    opened(place.url, place.options).write("a", UploadSource(5, data=b"bytes"), {}, create_only=True)
    place.freeze()
    try:
        for attempt in (lambda: store.head("a"), lambda: put(store, "b"), lambda: content(store, "a"), store.probe):
            with pytest.raises(RemoteUnavailableError):
                attempt()
    finally:
        place.thaw()
    patient = opened(place.url, place.options)
    assert content(patient, "a") == b"bytes"
    with pytest.raises(ObjectMissingError):
        patient.head("b")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((404, failure("FileNotFoundException")), RemoteUnavailableError),
        ((500, failure("IOException")), RemoteUnavailableError),
        ((403, failure("AccessControlException")), RemoteRefusedError),
        ((401, failure("SecurityException", "token=hidden-token")), RemoteRefusedError),
        ((502, "<html>of a proxy</html>"), RemoteUnavailableError),
        ((206, "0123456789"), RemoteUnavailableError),
        ((200, "012345678"), RemoteUnavailableError),
        ((200, "0123456789a"), RemoteUnavailableError),
        ((200, failure("IOException")), RemoteUnavailableError),
    ],
)
def test_only_what_was_asked_for_is_in_a_file(
    scripted: tuple[type[Scripted], str], answer: tuple[int, str], error: type[HoldfastError]
) -> None:
    server, address = scripted
    store = opened(f"webhdfs://{address}/box", {"token": "hidden-token"})
    assert content(store, "file") == b"0123456789"
    server.answers = {**server.answers, "DATA": answer}
    with pytest.raises(error) as caught:
        content(store, "file")
    assert "hidden" not in str(caught.value)


def test_half_an_answer_is_none(scripted: tuple[type[Scripted], str]) -> None:
    server, address = scripted
    store = opened(f"webhdfs://{address}/box")
    body = store.read("file", 0, 10, "")
    assert b"".join(body.buffers) == b"0123456789"
    server.answers = {**server.answers, "DATA": (200, "01234567")}
    server.missing_bytes = 2
    for attempt in (lambda: store.head("file"), lambda: store.list_directory(""), lambda: put(store, "new")):
        with pytest.raises(RemoteUnavailableError):
            attempt()
    server.missing_bytes = 0
    for location in ("", "http://", "http://host:port/", "nonsense", f"http://{address}/a\\u0000?delegation=hidden-token"):
        server.answers = {**server.answers, "OPEN": (200, f'{{"Location": "{location}"}}')}
        with pytest.raises(RemoteUnavailableError) as caught:
            content(store, "file")
        assert "hidden" not in str(caught.value)


def test_the_body_of_a_read_that_ends_early_is_refused(scripted: tuple[type[Scripted], str]) -> None:
    server, address = scripted

    class Data(server):  # type: ignore[misc, valid-type]
        answers = {"DATA": (200, "01234567")}  # noqa: RUF012
        missing_bytes = 2

    with ThreadingHTTPServer(("127.0.0.1", 0), Data) as datanode:
        thread = threading.Thread(target=datanode.serve_forever, args=(0.01,))
        thread.start()
        place = json.dumps({"Location": f"http://127.0.0.1:{datanode.server_port}/data"})
        server.answers = {**server.answers, "OPEN": (200, place)}
        with pytest.raises(RemoteUnavailableError, match="2 bytes early"):
            content(opened(f"webhdfs://{address}/box"), "file")
        datanode.shutdown()
        thread.join()


def test_a_challenge_of_kerberos_is_answered_and_its_cookie_kept(
    scripted: tuple[type[Scripted], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, address = scripted
    targets: list[str] = []

    class GSSError(Exception):
        maj_code, min_code = 851968, 2529638944

        def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
            assert (code, is_major) == (self.min_code, False)
            return [str(self)]

    expired = [GSSError("the ticket has expired")]

    class Context:
        def __init__(self, *, name: str, usage: str) -> None:
            assert usage == "initiate"
            targets.append(name)

        def step(self) -> bytes:
            if expired:
                raise expired.pop()
            return b"ticket"

    kinds = types.SimpleNamespace(hostbased_service="service")
    library = types.SimpleNamespace(
        Name=lambda name, _: name,
        NameType=kinds,
        SecurityContext=Context,
        exceptions=types.SimpleNamespace(GSSError=GSSError),
    )
    monkeypatch.setitem(sys.modules, "gssapi", library)
    monkeypatch.delitem(sys.modules, "holdfast.remote.hdfs_kerberos", raising=False)
    monkeypatch.setattr(server, "ticket", base64.b64encode(b"ticket").decode())
    monkeypatch.setattr(hdfs_store, "find_spec", lambda _: library)
    store = opened(f"webhdfs://{address}/box", {"kerberos": True})
    with pytest.raises(RemoteUnavailableError, match="expired"):
        store.head("file")
    assert [store.head("file").size_bytes for _ in range(3)] == [10] * 3
    assert targets == ["HTTP@127.0.0.1"] * 2
    assert not any("user.name" in line for line in server.lines)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((403, failure("FileAlreadyExistsException")), ObjectExistsError),
        ((403, failure("NSQuotaExceededException")), RemoteRefusedError),
        ((400, failure("InvalidPathException")), NameNotStorableError),
        ((403, failure("PathComponentTooLongException")), NameNotStorableError),
        ((403, failure("SafeModeException")), RemoteUnavailableError),
        ((500, failure("IOException")), RemoteUnavailableError),
        ((404, failure("FileNotFoundException")), RemoteUnavailableError),
    ],
)
def test_a_write_whose_rename_is_refused_is_no_write(
    scripted: tuple[type[Scripted], str], answer: tuple[int, str], error: type[HoldfastError]
) -> None:
    server, address = scripted
    server.answers = {**server.answers, "DATA": (201, ""), "RENAME": answer, "MKDIRS": (200, '{"boolean": true}')}
    store = opened(f"webhdfs://{address}/box")
    with pytest.raises(error):
        put(store, "file", b"0123456789", create_only=True)
    server.answers = {**server.answers, "RENAME": (200, "")}
    with pytest.raises(RemoteUnavailableError, match="stored in place of"):
        put(store, "file", b"012345678901", create_only=True)
    assert put(store, "file", b"0123456789", create_only=True).size_bytes == 10


@pytest.mark.parametrize("name", ["a:b", "\uffff", ".snapshot", "x" * 256])
def test_a_name_that_hdfs_does_not_take_is_refused_before_a_request(name: str) -> None:
    with pytest.raises(NameNotStorableError):
        put(opened("hdfs://127.0.0.1:1/box"), f"a/{name}")


def test_kerberos_without_its_library_is_refused_before_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_store, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="gssapi"):
        opened("hdfs://nn/a", {"kerberos": True})


def test_a_cluster_without_extended_attributes_is_refused(scripted: tuple[type[Scripted], str]) -> None:
    server, address = scripted
    said = (
        "The XAttr operation has been rejected.  Support for XAttrs has been disabled by setting dfs.namenode.xattrs.enabled"
    )
    server.answers = {**server.answers, "GETXATTRS": (500, failure("IOException", said))}
    with pytest.raises(RemoteRefusedError, match=r"xattrs\.enabled"):
        opened(f"webhdfs://{address}/box").head("file")


def test_a_gateway_that_gives_no_numbers_of_files_is_refused(scripted: tuple[type[Scripted], str]) -> None:
    server, address = scripted
    server.answers = {**server.answers, "GETFILESTATUS": (200, STATUS.replace("fileId", "other"))}
    with pytest.raises(RemoteRefusedError, match="HttpFS"):
        content(opened(f"webhdfs://{address}/box"), "file")


@pytest.mark.parametrize(
    "refusal",
    [
        (403, failure("InvalidToken", "token (HDFS_DELEGATION_TOKEN token 1 for holdfast) can't be found in cache")),
        (
            401,
            failure(
                "SecurityException",
                "Failed to obtain user group information: org.apache.hadoop.security.token.SecretManager$InvalidToken: "
                "token (token for holdfast: HDFS_DELEGATION_TOKEN owner=holdfast, sequenceNumber=1) is expired",
            ),
        ),
    ],
)
def test_a_delegation_token_that_is_replaced_in_its_file_is_used(
    scripted: tuple[type[Scripted], str], tmp_path: Path, refusal: tuple[int, str]
) -> None:
    server, address = scripted
    file = tmp_path / "token"
    file.write_text("first-token\n")
    by_file = opened(f"webhdfs://{address}/box", {"token_file": str(file)})
    by_option = opened(f"webhdfs://{address}/box", {"token": "first-token"})
    assert content(by_file, "file") == content(by_option, "file") == b"0123456789"
    good, server.answers = server.answers, {**server.answers, "GETFILESTATUS": refusal}
    with pytest.raises(RemoteUnavailableError, match=r"a new one in .*/token is waited for"):
        content(by_file, "file")
    with pytest.raises(CredentialsExpiredError, match="the option token, which nothing renews"):
        content(by_option, "file")
    file.unlink()
    with pytest.raises(RemoteUnavailableError, match="No such file"):
        content(by_file, "file")
    file.write_text("second-token")
    server.answers = good
    del server.lines[:]
    assert content(by_file, "file") == b"0123456789"
    asked = [parse_qs(urlsplit(line).query) for line in server.lines if not line.startswith("/data")]
    assert [query["delegation"] for query in asked] == [["second-token"]] * len(asked)
