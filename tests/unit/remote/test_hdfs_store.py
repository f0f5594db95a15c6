"""HDFS: what it answers, and what is made of that. The contract's tests run on it too."""

from __future__ import annotations

import base64
import json
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
from holdfast.remote import RemoteStore, UploadSource, hdfs_namenodes, hdfs_store, open_store
from holdfast.remote.hdfs_options import hdfs_access
from tests.support.stores.hdfs import Hdfs
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


class Scripted(BaseHTTPRequestHandler):
    """A namenode and the datanode beside it. ``answers`` has status and text by operation; the datanode's is ``DATA``."""

    answers: dict[str, tuple[int, str]]
    asked: list[str]
    lines: list[str] = []  # noqa: RUF012
    ticket = ""
    """What is asked of whoever has no cookie."""
    missing_bytes = 0
    """So many bytes of each answer are announced and not sent."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        op = "DATA" if url.path == "/data" else parse_qs(url.query)["op"][0]
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.asked.append(op)
        self.lines.append(self.path)
        if self.ticket and "hadoop.auth=yes" not in self.headers.get("cookie", ""):
            is_theirs = self.headers.get("authorization") == f"Negotiate {self.ticket}"
            self.send_response(200 if is_theirs else 401)
            self.send_header(
                *(("set-cookie", "hadoop.auth=yes; Path=/") if is_theirs else ("www-authenticate", "Negotiate"))
            )
            status, text = self.answers[op] if is_theirs else (401, "")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())
            return
        place = json.dumps({"Location": f"http://{self.headers['host']}/data"})
        status, text = self.answers.get(op, (200, place))
        self.send_response(status)
        self.send_header("content-length", str(len(text) + self.missing_bytes))
        self.end_headers()
        self.wfile.write(text.encode())

    do_PUT = do_DELETE = do_GET  # noqa: N815 the names are http.server's

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing."""


STATUS = json.dumps({"FileStatus": {"type": "FILE", "length": 10, "modificationTime": 1, "fileId": 7, "pathSuffix": ""}})


def failure(exception: str, message: str = "no") -> str:
    return json.dumps({"RemoteException": {"exception": exception, "message": message}})


@pytest.fixture
def scripted() -> Iterator[tuple[type[Scripted], str]]:
    """The server's class, and its address. It has one file of ten bytes, under each name."""

    class Server(Scripted):
        answers = {"GETFILESTATUS": (200, STATUS), "GETXATTRS": (200, '{"XAttrs": []}'), "DATA": (200, "0123456789")}  # noqa: RUF012
        asked: list[str] = []  # noqa: RUF012
        lines: list[str] = []  # noqa: RUF012

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Server, f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((404, failure("FileNotFoundException")), ObjectChangedError),
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


@pytest.mark.parametrize("other_is", ["StandbyException", "ObserverRetryOnActiveException", "RetriableException", "dead"])
def test_the_next_namenode_is_asked_if_one_is_not_active(
    scripted: tuple[type[Scripted], str], other_is: str, tmp_path: Path
) -> None:
    """One that has just started says that it may be asked again, and one that observes would answer reads."""
    server, address = scripted
    server.answers = {**server.answers, "SETTIMES": (404, failure("FileNotFoundException"))}
    others: list[str] = []

    class Other(Scripted):
        answers = {**server.answers, "SETTIMES": (403, failure(other_is))}  # noqa: RUF012
        asked = others

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever, args=(0.01,))
        thread.start()
        if other_is == "dead":
            other.shutdown()
            other.server_close()
        addresses = {"nn1": f"127.0.0.1:{other.server_port}", "nn2": address}
        write_site(
            tmp_path,
            {"dfs.ha.namenodes.both": "nn1,nn2"} | {f"dfs.namenode.http-address.both.{n}": a for n, a in addresses.items()},
        )
        store = opened("hdfs://both/box", {"config_dir": str(tmp_path)})
        assert [store.head("file").size_bytes for _ in range(3)] == [10] * 3
        assert others == ([] if other_is == "dead" else ["SETTIMES"]), "the active one is remembered"
        assert server.asked[:2] == ["SETTIMES", "GETFILESTATUS"]
        assert server.asked.count("SETTIMES") == 1
        other.shutdown()
        thread.join()


def test_a_namenode_that_is_silent_is_left_when_the_request_is_tried_again(scripted: tuple[type[Scripted], str]) -> None:
    """It may have carried the request out, so the next namenode is not asked by itself."""
    server, address = scripted
    server.answers = {**server.answers, "SETTIMES": (404, failure("FileNotFoundException"))}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {"namenodes": f"127.0.0.1:{silent.getsockname()[1]}, {address}"}
        store = open_store(f"webhdfs://{address}/box", options, {}, request_timeout_seconds=3, connect_timeout_seconds=10)
        with pytest.raises(RemoteUnavailableError, match="timed out"):
            store.head("file")
        assert server.asked == []
        assert store.head("file").size_bytes == 10


def test_the_active_namenode_is_read_in_the_safe_mode_of_its_start(scripted: tuple[type[Scripted], str]) -> None:
    server, address = scripted
    said = "org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot set times. Name node is in safe mode.\nMore"
    refusal = (403, failure("RetriableException", said))
    server.answers = {**server.answers, "SETTIMES": refusal, "CREATE": refusal}
    store = opened(f"webhdfs://{address}/box", {"namenodes": f"{address}, 127.0.0.1:1"})
    assert content(store, "file") == b"0123456789"
    with pytest.raises(RemoteUnavailableError, match=r"Name node is in safe mode\.$"):
        put(store, "file")


def test_a_namenode_is_asked_again_after_a_while_whether_it_is_still_active(
    scripted: tuple[type[Scripted], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, address = scripted
    server.answers = {**server.answers, "SETTIMES": (404, failure("FileNotFoundException"))}
    now = [0.0]
    monkeypatch.setattr(hdfs_namenodes, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    store = opened(f"webhdfs://{address}/box", {"namenodes": f"{address}, {address}"})
    for now[0], asked in [(1.0, 1), (10.9, 1), (11.1, 2), (21.0, 2), (22.0, 3)]:
        store.head("file")
        assert server.asked.count("SETTIMES") == asked
    server.answers["SETTIMES"] = (403, failure("StandbyException"))
    store.head("file")
    now[0] = 33.0
    with pytest.raises(RemoteUnavailableError, match="no namenode is active"):
        store.head("file")


def write_site(directory: Path, settings: dict[str, str]) -> None:
    found = "".join(f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    (directory / "hdfs-site.xml").write_text(f"<configuration>{found}</configuration>")


@pytest.mark.parametrize(
    ("url", "options", "site", "origins"),
    [
        ("hdfs://nn:8020/a", {}, {}, ["http://nn:9870"]),
        ("hdfs://nn/a", {}, {"dfs.http.policy": "HTTPS_ONLY"}, ["https://nn:9871"]),
        ("hdfs://nn:8020/a", {}, {"dfs.namenode.http-address": "nn:50070"}, ["http://nn:50070"]),
        ("hdfs://nn:8020/a", {}, {"dfs.namenode.http-address": "0.0.0.0:9870"}, ["http://nn:9870"]),
        ("hdfs://nn:8020/a", {}, {"dfs.namenode.http-address": "0.0.0.0:50070"}, ["http://nn:50070"]),
        ("hdfs://nn:8020/a", {}, {"dfs.namenode.http-address": "other:50070"}, ["http://nn:9870"]),
        ("hdfs://nn:8020/a", {}, {"web": "nn:50070", "dfs.namenode.http-address": "${web}"}, ["http://nn:50070"]),
        (
            "hdfs://both/a",
            {},
            {
                "dfs.ha.namenodes.both": "nn1,nn2,nn3",
                "dfs.namenode.rpc-address.both.nn1": "one:8020",
                "dfs.namenode.rpc-address.both.nn2": "two:8020",
                "dfs.namenode.http-address.both.nn2": "0.0.0.0:50070",
                "dfs.namenode.http-address.both.nn3": "${host.of.nn3}:50070",
                "host.of.nn3": "three",
            },
            ["http://one:9870", "http://two:50070", "http://three:50070"],
        ),
        ("hdfs:///a", {}, {"fs.defaultFS": "hdfs://nn:8020"}, ["http://nn:9870"]),
        ("hdfs://nn:8020/a", {"namenodes": "one:1, two"}, {}, ["http://one:1", "http://two:9870"]),
        ("webhdfs://nn:50070/a", {}, {}, ["http://nn:50070"]),
        ("swebhdfs://nn/a", {}, {}, ["https://nn:9871"]),
        ("hdfs://nn/a", {"namenodes": "[::1]:50070 [::1]"}, {}, ["http://[::1]:50070", "http://[::1]:9870"]),
    ],
)
def test_the_namenodes_come_from_the_url_the_options_or_hadoops_files(
    url: str, options: dict[str, Any], site: dict[str, str], origins: list[str], tmp_path: Path
) -> None:
    write_site(tmp_path, site)
    access = hdfs_access(url, options, {"HADOOP_CONF_DIR": str(tmp_path), "HADOOP_USER_NAME": "somebody"})
    assert (list(access.origins), access.directory, access.user) == (origins, "/a", "somebody")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("hdfs:///a", {}),
        ("hdfs://user:pa55word@nn/a", {}),
        ("hdfs://nn/a?op=DELETE", {}),
        ("hdfs://nn/a", {"nonsense": "1"}),
        ("hdfs://nn/a", {"kerberos": "perhaps"}),
        ("hdfs://nn/a", {"kerberos": ""}),
        ("hdfs://nn/a", {"config_dir": "/dev/null/x"}),
        ("hdfs://nn/a", {"namenodes": "nn1:9870 nn2:http"}),
        ("hdfs://nn/a", {"namenodes": "nn1:70000"}),
        ("hdfs://nn/a", {"namenodes": "http://nn1:9870"}),
        ("hdfs://${nn}/a", {}),
        ("webhdfs://:9870/a", {}),
        ("swebhdfs://nn/a", {"ca_file": "/no/such/file"}),
        ("swebhdfs://nn/a", {"ca_file": __file__}),
    ],
)
def test_a_url_or_an_option_that_can_not_be_is_refused_before_a_request(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        opened(url, options)
    assert "pa55word" not in str(caught.value)


def test_a_namenode_without_an_address_is_told_before_a_request(tmp_path: Path) -> None:
    write_site(tmp_path, {"dfs.ha.namenodes.both": "nn1,nn2", "dfs.namenode.http-address.both.nn1": "one:9870"})
    with pytest.raises(ConfigurationError, match=r"nn2: dfs\.namenode\.http-address\.both\.nn2 is missing"):
        hdfs_access("hdfs://both/a", {"config_dir": str(tmp_path)}, {})


@pytest.mark.parametrize("name", ["a:b", "\uffff", ".snapshot", "x" * 256])
def test_a_name_that_hdfs_does_not_take_is_refused_before_a_request(name: str) -> None:
    with pytest.raises(NameNotStorableError):
        put(opened("hdfs://127.0.0.1:1/box"), f"a/{name}")


@pytest.mark.parametrize(("given", "meant"), [(True, True), ("true", True), (False, False), ("false", False)])
def test_kerberos_may_be_switched_by_a_text(given: bool | str, meant: bool, tmp_path: Path) -> None:
    """The environment and ``--set`` have no other values."""
    assert hdfs_access("hdfs://nn/a", {"kerberos": given}, {}).kerberos is meant
    setting = "<property><name>hadoop.security.authentication</name><value>kerberos</value></property>"
    tmp_path.joinpath("core-site.xml").write_text(f"<configuration>{setting}</configuration>")
    assert hdfs_access("hdfs://nn/a", {"kerberos": given}, {"HADOOP_CONF_DIR": str(tmp_path)}).kerberos is meant


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


def test_a_token_is_in_an_option_or_in_a_file() -> None:
    with pytest.raises(ConfigurationError, match="token_file: there is a token already"):
        hdfs_access("hdfs://host/box", {"token": "t", "token_file": "/token"}, {})
