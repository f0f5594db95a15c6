"""What is said of a store that can't or won't answer: that it be tried again, or mended; and never a credential."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import traceback
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from obstore import exceptions

from holdfast.errors import (
    AccessDeniedError,
    ConfigurationError,
    HoldfastError,
    NameNotStorableError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteError,
    RemoteRefusedError,
    RemoteUnavailableError,
    RemoteUnsupportedError,
)
from holdfast.remote import RemoteStore, UploadSource, open_store
from holdfast.remote.obstore_errors import translated
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.lying_s3 import Answer, Asked, LyingS3, Planted, refusal
from tests.unit.remote.test_remote_contract import content, opened, put

if TYPE_CHECKING:
    from tests.support.stores.s3 import S3Server, Versitygw

pytestmark = pytest.mark.slow


SECRET = "c0ffee/SECRET+value=="
OPERATIONS: dict[str, Callable[[RemoteStore], Any]] = {
    "probe": lambda store: store.probe(),
    "head": lambda store: store.head("a"),
    "list_directory": lambda store: store.list_directory(""),
    "list_tree": lambda store: list(store.list_tree("")),
    "read": lambda store: content(store, "a"),
    "read of nothing": lambda store: content(store, "a", 0, 0),
    "write": lambda store: put(store, "a"),
    "conditional write": lambda store: put(store, "a", create_only=True),
    "copy": lambda store: store.copy("a", "b"),
    "delete": lambda store: store.delete(["a"]),
    "bulk delete": lambda store: store.delete(["a", "b"]),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=list(OPERATIONS))


def answer(code: str, message: str = "as told") -> bytes:
    """Return the body of an S3 error."""
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


def deletion(*, deleted: str, failed: str, code: str) -> bytes:
    """Return the answer to a bulk deletion that went half well."""
    return (
        f"<DeleteResult><Deleted><Key>{deleted}</Key></Deleted>"
        f"<Error><Key>{failed}</Key><Code>{code}</Code><Message>no</Message></Error></DeleteResult>"
    ).encode()


@pytest.fixture
def store(place: Versitygw, proxy: FaultProxy) -> RemoteStore:
    """A store behind the proxy, which nobody has asked anything yet."""
    return opened(place.url, dict(place.through(proxy.endpoint).options))


@every_operation
@pytest.mark.parametrize("server", ["s3_moto", "s3_versitygw"])
def test_a_bucket_that_does_not_exist_is_refused_and_not_empty(
    operation: Callable[[RemoteStore], Any], server: str, request: pytest.FixtureRequest
) -> None:
    running: S3Server = request.getfixturevalue(server)
    store = opened("s3://no-such-bucket/prefix", dict(running.options))
    with pytest.raises(RemoteRefusedError, match="bucket"):
        operation(store)


@every_operation
@pytest.mark.parametrize(
    "wrong",
    [{"access_key_id": "AKIAWRONG"}, {"secret_access_key": SECRET}, {"session_token": SECRET}],
    ids=["key", "secret", "token"],
)
def test_wrong_credentials_are_refused_and_not_told(
    operation: Callable[[RemoteStore], Any], wrong: dict[str, str], place: Versitygw
) -> None:
    put(opened(place.url, dict(place.options)), "a")
    options = {**place.options, **wrong}
    store = opened(place.url, dict(options))
    with pytest.raises(RemoteRefusedError) as caught:
        operation(store)
    tell_nothing(caught.value, [options["access_key_id"], options["secret_access_key"], SECRET])


@every_operation
def test_a_server_that_is_gone_is_worth_another_try(
    operation: Callable[[RemoteStore], Any], store: RemoteStore, proxy: FaultProxy
) -> None:
    put(store, "a")
    proxy.down()
    with pytest.raises(RemoteUnavailableError) as caught:
        operation(store)
    assert caught.value.transient
    proxy.up()
    assert content(store, "a") == b"bytes"


@every_operation
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_server_that_can_not_now_is_worth_another_try(
    operation: Callable[[RemoteStore], Any], status: int, store: RemoteStore, proxy: FaultProxy
) -> None:
    proxy.answer(status)
    with pytest.raises(RemoteUnavailableError):
        operation(store)
    assert len(proxy.requests()) == 1, "retries are the caller's"


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "RequestTimeout", RemoteUnavailableError),
        (400, "IncompleteBody", RemoteUnavailableError),
        (409, "OperationAborted", RemoteUnavailableError),
        (409, "ConditionalRequestConflict", RemoteUnavailableError),
        (404, "NoSuchUpload", RemoteUnavailableError),
        (503, "SlowDown", RemoteUnavailableError),
        (400, "KeyTooLongError", NameNotStorableError),
        (409, "ObjectParentIsFile", NameNotStorableError),
        (409, "ExistingObjectIsDirectory", NameNotStorableError),
        (409, "BlobAlreadyExists", ObjectExistsError),
        (412, "PreconditionFailed", ObjectExistsError),
        (404, "NoSuchBucket", RemoteRefusedError),
        (404, "NoSuchUser", RemoteRefusedError),
        (404, "NoSuchKey", RemoteUnavailableError),
        (403, "AccessDenied", AccessDeniedError),
        (403, "RequestTimeTooSkewed", RemoteRefusedError),
        (400, "InvalidArgument", RemoteRefusedError),
        (405, "MethodNotAllowed", RemoteUnsupportedError),
        (501, "NotImplemented", RemoteUnsupportedError),
        (411, "MissingContentLength", RemoteUnsupportedError),
        (301, "PermanentRedirect", RemoteRefusedError),
    ],
)
def test_the_code_in_the_answer_decides(
    status: int, code: str, expected: type[HoldfastError], store: RemoteStore, proxy: FaultProxy
) -> None:
    proxy.answer(status, body=answer(code))
    with pytest.raises(expected) as caught:
        put(store, "a", create_only=True)
    assert type(caught.value) is expected
    assert put(store, "a", create_only=True).size_bytes == 5


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            FileNotFoundError(
                "Object at location a not found: Bulk delete request failed for key a: The specified blob does not exist. "
                "(code: 404)"
            ),
            ObjectMissingError,
        ),
        (
            exceptions.GenericError("Generic error: Wanted range starting at 1, but object was only 1 bytes long"),
            ObjectChangedError,
        ),
    ],
    ids=["a missing one of many", "a range behind the end"],
)
def test_what_azure_says_is_understood(said: Exception, expected: type[HoldfastError]) -> None:
    with pytest.raises(expected) as caught, translated("asking"):
        raise said
    assert type(caught.value) is expected


def test_a_message_is_shown_without_its_markup(store: RemoteStore, proxy: FaultProxy) -> None:
    proxy.answer(403, body=answer("AuthorizationHeaderMalformed", "the region &#34;x&#34;&#10;is wrong"))
    with pytest.raises(RemoteRefusedError, match='Malformed: the region "x" is wrong'):
        put(store, "a")


@pytest.mark.parametrize(
    ("code", "expected"), [("AccessDenied", RemoteRefusedError), ("InternalError", RemoteUnavailableError)]
)
def test_one_key_that_could_not_be_deleted_is_not_overlooked(
    code: str, expected: type[RemoteError], store: RemoteStore, place: Versitygw, proxy: FaultProxy
) -> None:
    proxy.answer(200, body=deletion(deleted=place.key("a"), failed=place.key("b"), code=code))
    with pytest.raises(expected):
        store.delete(["a", "b"])


@pytest.mark.parametrize("poison", [{"7"}, {"0", "31"}])
def test_a_bulk_deletion_that_is_refused_for_one_name_is_divided(poison: set[str]) -> None:
    names = [str(number) for number in range(32)]
    with LyingS3() as server:
        server.objects = {name: Planted() for name in names}
        store = opened(server.place.url, dict(server.place.options))

        def refuse(asked: Asked) -> Answer | None:
            is_bulk = "delete" in asked.query
            return refusal("InvalidRequest", 400) if is_bulk and poison.intersection(asked.to_delete) else None

        server.lie = refuse
        store.delete(names)
        assert server.objects == {}
        alone = {asked.key for asked in server.asked if asked.method == "DELETE"}
        assert alone == poison, "a request without a body"
        assert len(server.asked) <= 1 + 3 * 5 * len(poison)


def test_a_bulk_deletion_that_is_refused_to_us_is_not_divided(store: RemoteStore, proxy: FaultProxy) -> None:
    proxy.answer(403, body=answer("InvalidAccessKeyId"))
    with pytest.raises(RemoteRefusedError):
        store.delete([str(number) for number in range(32)])
    assert len(proxy.requests()) == 1


class OneKept(BaseHTTPRequestHandler):
    """Google's store, as far as deletions go: it refuses that of ``held``."""

    protocol_version = "HTTP/1.1"
    deleted: ClassVar[list[str]] = []

    def do_DELETE(self) -> None:
        key = self.path.rpartition("/")[2]
        self.send_response(403 if key == "held" else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()
        if key != "held":
            self.deleted.append(key)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def test_an_object_that_is_held_keeps_no_other_where_each_is_deleted_by_itself() -> None:
    names = [str(number) for number in range(50)]
    with ThreadingHTTPServer(("127.0.0.1", 0), OneKept) as server:
        Thread(target=server.serve_forever).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            account = {
                "gcs_base_url": url,
                "disable_oauth": True,
                "private_key": "",
                "private_key_id": "",
                "client_email": "",
            }
            store = opened("gs://bucket", {"service_account_key": json.dumps(account)})
            with pytest.raises(RemoteRefusedError):
                store.delete(["held", *names])
        finally:
            server.shutdown()
    assert set(OneKept.deleted) == set(names)


class Google(BaseHTTPRequestHandler):
    """Takes objects, and keeps what each request said of who sends it."""

    authorizations: list[str]

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.authorizations.append(self.headers.get("authorization", ""))
        self.send_response(200)
        self.send_header("etag", '"1"')
        self.send_header("x-goog-generation", "1")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing."""


def test_an_anonymous_write_to_google_asks_nobody_for_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):
        monkeypatch.setenv(variable, "127.0.0.1:1")  # where nobody answers, should it be asked after all
    monkeypatch.setattr(Google, "authorizations", [], raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Google) as server:
        Thread(target=server.serve_forever).start()
        try:
            store = opened("gs://bucket", {"base_url": f"http://127.0.0.1:{server.server_port}", "skip_signature": True})
            put(store, "a")
        finally:
            server.shutdown()
    assert [said.strip() for said in Google.authorizations] in ([""], ["Bearer"]), "there is no token"


def test_an_answer_that_makes_the_library_panic_does_not_end_the_daemon(store: RemoteStore, proxy: FaultProxy) -> None:
    proxy.answer(200, body=deletion(deleted="a", failed="never asked for", code="AccessDenied"))
    with pytest.raises(RemoteError, match="obstore failed"):
        store.delete(["a", "b"])


def test_the_empty_answer_to_a_head_is_looked_into(store: RemoteStore, proxy: FaultProxy) -> None:
    with pytest.raises(ObjectMissingError):
        store.head("a")
    assert [seen.method for seen in proxy.requests()] == ["HEAD", "GET"], "is it the object that is missing?"
    with pytest.raises(ObjectMissingError):
        store.head("a")
    assert [seen.method for seen in proxy.requests()] == ["HEAD", "GET", "HEAD"], "the bucket is known to be there"
    proxy.answer(404, method="PUT", body=answer("NoSuchBucket"))
    with pytest.raises(RemoteRefusedError):
        put(store, "a")
    proxy.answer(404, method="HEAD")
    proxy.answer(404, method="GET", body=answer("NoSuchBucket"))
    with pytest.raises(RemoteRefusedError):
        store.head("a")
    proxy.answer(400, method="HEAD")
    proxy.answer(400, method="GET", body=answer("InvalidToken", "mend it"))
    with pytest.raises(RemoteRefusedError, match="mend it"):
        store.head("a")


def test_an_answer_that_takes_too_long_is_worth_another_try(place: Versitygw, proxy: FaultProxy) -> None:
    options = dict(place.through(proxy.endpoint).options)
    store = open_store(place.url, options, {}, request_timeout_seconds=0.2, connect_timeout_seconds=0.2)
    proxy.delay_seconds = 30.0
    with pytest.raises(RemoteUnavailableError):
        store.head("a")


@pytest.mark.parametrize("fault", [FaultProxy.truncate_answers, FaultProxy.shorten_answers])
def test_a_body_that_ends_early_is_no_success(fault: Callable[..., None], store: RemoteStore, proxy: FaultProxy) -> None:
    put(store, "a", b"0123456789" * 100_000)
    fault(proxy, method="GET")
    with pytest.raises(RemoteUnavailableError):
        content(store, "a", 0, 1_000_000)
    fault(proxy, method="GET", matching="list-type=2")
    with pytest.raises(RemoteUnavailableError):
        store.list_directory("")
    assert len(content(store, "a")) == 1_000_000


def test_a_file_system_behind_fsspec_is_asked_late_and_its_silence_is_worth_another_try() -> None:
    store = opened(f"fsspec+ftp://user:{SECRET.replace('/', '%2F')}@127.0.0.1:1/directory")
    for operation in OPERATIONS.values():
        with pytest.raises(RemoteUnavailableError) as caught:
            operation(store)
        tell_nothing(caught.value, [SECRET, SECRET.replace("/", "%2F")])
    assert store.url == "ftp://127.0.0.1:1/directory"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        (f"s3://key:{SECRET}@bucket/prefix", {}),
        (f"s3://bucket/prefix?aws_secret_access_key={SECRET}", {}),
        ("s3://bucket/prefix", {"secret_access_key": SECRET, "nonsense": SECRET}),
        ("s3://bucket/prefix", {"secret_access_key": SECRET, "checksum_algorithm": SECRET}),
        ("s3:///prefix", {"secret_access_key": SECRET}),
        ("gs://bucket/prefix", {"service_account_key": SECRET, "user_agent": SECRET}),
        (f"nonsense://user:{SECRET}@host/path", {}),
        (f"fsspec+nonsense://user:{SECRET}@host/path", {"password": SECRET}),
        ("file://host/path", {}),
        ("file:relative", {}),
        ("file:///path?a", {}),
        ("file:///path#a", {}),
        ("/path", {}),
        ("", {}),
    ],
)
def test_an_address_that_can_not_be_is_named_without_its_secrets(url: str, options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        opened(url, dict(options))
    tell_nothing(caught.value, [SECRET])
    assert str(caught.value)


def test_the_address_that_a_store_shows_has_no_credentials(place: Versitygw, workspace: Path) -> None:
    assert opened(place.url, dict(place.options)).url == place.url
    assert opened("memory://").url == "memory://"
    assert opened(f"file://{workspace}/a%20b").url == f"file://{workspace}/a b"
    assert opened(f"fsspec+file://{workspace}").url == f"file://{workspace}"
    assert opened("fsspec+ftp://user:password@host:21/a@b?token=x").url == "ftp://host:21/a@b"
    assert opened("fsspec+ftp://host/a@b").url == "ftp://host/a@b"
    assert opened(f"fsspec+ftp://user:{SECRET}@host:21/path").url == "ftp://***@host:21/path"


def test_credentials_of_the_environment_are_not_told_either(place: Versitygw, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**place.environment, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": SECRET}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    store = opened(place.url, {}, environment)
    with pytest.raises(RemoteRefusedError) as caught:
        put(store, "a")
    tell_nothing(caught.value, [SECRET, place.access_key_id])


def test_a_directory_that_can_not_serve_says_why(workspace: Path) -> None:
    (workspace / "file").write_bytes(b"")
    with pytest.raises(RemoteRefusedError, match="can't be a remote store"):
        opened(f"file://{workspace}/file")
    with pytest.raises(RemoteRefusedError, match="can't be a remote store"):
        opened("file:///proc/store")


def test_a_version_that_is_gone_is_no_reason_to_complain_of_the_store(store: RemoteStore) -> None:
    info = put(store, "a", b"1")
    put(store, "a", b"22")
    with pytest.raises(ObjectChangedError) as caught:
        content(store, "a", etag=info.etag)
    assert not caught.value.transient


def test_a_server_that_ignores_the_condition_of_a_read_does_not_pass_one_version_off_as_another() -> None:
    with LyingS3() as lying:
        lying.objects["checkpoints/a"] = Planted(b"first")
        store = opened(lying.stores["checkpoints"], dict(lying.place.options))
        version = store.head("a").etag
        lying.objects["checkpoints/a"] = Planted(b"again")
        assert content(store, "a", 0, 5) == b"again"
        with pytest.raises(ObjectChangedError):
            store.read("a", 0, 5, version)


def test_a_local_file_that_is_gone_is_not_taken_for_a_missing_object(store: RemoteStore, workspace: Path) -> None:
    for create_only in (False, True):
        with pytest.raises(RemoteUnavailableError):
            store.write("a", UploadSource(5, path=workspace / "gone"), {}, create_only=create_only)
    assert list(store.list_tree("")) == []


def tell_nothing(problem: HoldfastError, secrets: list[str]) -> None:
    """Check that an exception tells no secret, however it is shown."""
    shown = "".join(traceback.format_exception(problem)) + repr(problem) + repr(problem.args)
    told = [line for line in shown.splitlines() if any(secret in line for secret in secrets) and not line.startswith("  ")]
    assert told == []


def hung_up(server: socket.socket) -> None:
    """Read a request and close the connection."""
    connection, _ = server.accept()
    connection.recv(65536)
    connection.close()


def no_http(server: socket.socket) -> None:
    """Answer with something else than HTTP."""
    connection, _ = server.accept()
    connection.recv(65536)
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    connection.close()


def silent(server: socket.socket) -> None:
    """Never answer."""
    del server


@pytest.mark.parametrize(
    ("scheme", "behaviour", "reason"),
    [
        ("http", hung_up, "the server closed the connection before it had answered"),
        ("http", no_http, "the answer is not HTTP"),
        ("https", no_http, "TLS failed"),
        ("http", silent, "no answer within the time allowed"),
        ("https", silent, "no connection within the time allowed"),
        ("http", None, "Connection refused"),
        ("https", None, "Connection refused"),
    ],
)
def test_the_reason_for_which_a_request_got_no_answer_is_told(
    scheme: str, behaviour: Callable[[socket.socket], None] | None, reason: str
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))  # and listens only if there is something to be had
        if behaviour is not None:
            server.listen()
            Thread(target=behaviour, args=(server,), daemon=True).start()
        tell_reason(f"{scheme}://127.0.0.1:{server.getsockname()[1]}", reason, is_silent=behaviour is silent)


def test_a_name_that_can_not_be_resolved_and_a_strange_certificate_are_told(tmp_path: Path) -> None:
    tell_reason("http://no-such-host.invalid", "the server's name can't be resolved")
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"https://127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            with suppress(OSError), context.wrap_socket(server, server_side=True) as tls:
                tls.accept()

        Thread(target=serve, daemon=True).start()
        tell_reason(endpoint, "the server's certificate is not accepted")


def tell_reason(endpoint: str, reason: str, *, is_silent: bool = False) -> None:
    options = {"endpoint": endpoint, "access_key_id": "a", "secret_access_key": SECRET, "region": "us-east-1"}
    request_seconds, connect_seconds = 30.0, 30.0  # on a busy machine a server of the test's takes a while, too
    if is_silent and endpoint.startswith("https"):
        connect_seconds = 0.2
    elif is_silent:
        request_seconds = 2.0
    store = open_store(
        "s3://bucket/x", options, {}, request_timeout_seconds=request_seconds, connect_timeout_seconds=connect_seconds
    )
    with pytest.raises(RemoteUnavailableError) as caught:
        store.probe()
    assert str(caught.value).startswith(f"asking s3://bucket/x: GET {endpoint}: {reason}"), caught.value
    tell_nothing(caught.value, [SECRET])


def test_a_system_without_certificates_of_authorities_is_told_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with pytest.raises(ConfigurationError, match="has no certificates of authorities; install ca-certificates"):
        open_store(
            "s3://bucket/x",
            {"access_key_id": "a", "secret_access_key": SECRET, "region": "us-east-1"},
            {},
            request_timeout_seconds=30.0,
            connect_timeout_seconds=30.0,
        )


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "HTTP://127.0.0.1:1"])
@pytest.mark.parametrize("given", ["base_url", "service_account_key", "service_account", "variable"])
def test_an_endpoint_of_google_with_http_is_used_as_it_is(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, given: str, address: str
) -> None:
    account = {"gcs_base_url": address, "disable_oauth": True, "private_key": "", "private_key_id": "", "client_email": ""}
    file = workspace / "account.json"
    file.write_text(json.dumps(account))
    options: dict[str, dict[str, Any]] = {
        "base_url": {"base_url": address, "skip_signature": True},
        "service_account_key": {"service_account_key": json.dumps(account)},
        "service_account": {"service_account": str(file)},
        "variable": {},
    }
    if given == "variable":
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(file))
    store = opened("gs://bucket", options[given], dict(os.environ))
    with pytest.raises(RemoteUnavailableError, match="Connection refused"):
        store.probe()
