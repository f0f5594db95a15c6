"""Tokens that expire while a store is in use: renewed ones are waited for, and who has none to wait for is told.

Ceph says no more than AccessDenied of an expired token, as of missing rights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import obstore
import pytest
from trio.testing import MockClock

from holdfast.errors import AccessDeniedError, CredentialsExpiredError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote import RemoteStore, credential_refusals, credentials
from holdfast.remote.credential_refusals import CredentialRefusals
from holdfast.remote.credentials import RenewedKeys, are_fixed
from tests.support.stores.ceph import session_keys
from tests.support.stores.contract_servers import StoreServer
from tests.support.stores.lying_s3 import GOOD, Answer, Asked, LyingS3, refusal, xml
from tests.support.stores.renewed_access import read_when_renewed
from tests.unit.remote.test_remote_contract import content, opened, put

KEY = "checkpoints/good/file"


DENIED = refusal("AccessDenied")


class Guarded(LyingS3):
    """A server that takes one session token alone, and answers ``expired`` to all others."""

    def __init__(self) -> None:
        super().__init__()
        self.token = "first"
        self.expired = refusal("ExpiredToken", 400)
        self.lie = self._refuse_others

    def _refuse_others(self, asked: Asked) -> Answer | None:
        return None if asked.headers.get("x-amz-security-token") == self.token else self.expired


@pytest.fixture
def server() -> Iterator[Guarded]:
    with Guarded() as running:
        yield running


def write_keys(home: Path, keys: Mapping[str, str]) -> None:
    """Put keys into the file of the AWS tools, as one of them does."""
    (home / ".aws").mkdir(exist_ok=True)
    lines = (f"{name} = {value}\n" for name, value in {**keys, "region": "r"}.items())
    (home / ".aws/new").write_text(f"[default]\n{''.join(lines)}")
    (home / ".aws/new").rename(home / ".aws/credentials")


def write_token(home: Path, token: str) -> None:
    keys = {"aws_access_key_id": "KEY", "aws_secret_access_key": "SECRET", "aws_session_token": token}
    write_keys(home, keys)


def by_profile(server: Guarded, home: Path) -> RemoteStore:
    write_token(home, server.token)
    return opened(server.place.url, {"endpoint": server.place.endpoint}, {"HOME": str(home)})


def works(store: RemoteStore) -> None:
    """Use the token in use, for a listing too."""
    assert content(store, KEY, 0, len(GOOD)) == GOOD
    store.probe()


OPERATIONS: list[Callable[[RemoteStore], Any]] = [
    lambda store: store.probe(),
    lambda store: store.head(KEY),
    lambda store: store.list_directory("checkpoints"),
    lambda store: content(store, KEY, 0, len(GOOD)),
    lambda store: put(store, "new", create_only=True),
    lambda store: store.delete(["new"]),
]


@pytest.mark.parametrize(
    ("expired", "told"),
    [
        (refusal("ExpiredToken", 400), "which have expired.*; new ones are waited for"),
        (DENIED, "the session token may have expired, and another one is waited for"),
    ],
    ids=["told", "denied"],
)
async def test_a_token_of_a_file_is_waited_for(
    server: Guarded, tmp_path: Path, autojump_clock: MockClock, expired: Answer, told: str
) -> None:
    server.expired = expired
    store = by_profile(server, tmp_path)
    works(store)
    server.token = "second"
    for operation in OPERATIONS:
        with pytest.raises(RemoteUnavailableError, match=told):
            operation(store)

    async def renew() -> None:
        write_token(tmp_path, "second")

    # The clock of trio runs ahead of the one by which obstore keeps a token for 10 s.
    found, events = await read_when_renewed(store, lambda: content(store, KEY, 0, len(GOOD)), renew, 10**6)
    assert found == GOOD
    assert events == ["remote-down", "remote-up"]


@pytest.fixture
def reads_files_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let obstore ask for the keys before each request."""
    monkeypatch.setattr(credentials, "_READ_AGAIN_AFTER", timedelta(0))


def refused_at_once(store: RemoteStore, operations: Iterable[Callable[[RemoteStore], Any]]) -> None:
    for operation in operations:
        with pytest.raises(RemoteRefusedError, match=r"AccessDenied|the store refuses") as refused:
            operation(store)
        assert not refused.value.transient


def test_an_object_that_is_denied_to_a_token_that_works_is_refused_at_once(
    server: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_refusals, "_ANSWER_SECONDS", 3600.0)
    store = by_profile(server, tmp_path)
    works(store)
    server.lie = lambda asked: DENIED if asked.key == KEY else None
    server.asked.clear()
    of_object = [OPERATIONS[1], OPERATIONS[3]] * 5
    refused_at_once(store, of_object)
    assert sum(asked.is_list for asked in server.asked) == 1, "what tells is asked once in a while"
    assert store.list_directory("checkpoints").directories == {"good"}


def test_a_token_that_may_not_list_is_refused_at_once(server: Guarded, tmp_path: Path) -> None:
    store = by_profile(server, tmp_path)
    server.lie = lambda asked: DENIED if asked.is_list or asked.key != KEY else None
    assert content(store, KEY, 0, len(GOOD)) == GOOD
    refused_at_once(store, [OPERATIONS[0], OPERATIONS[2], lambda store: store.head("checkpoints/denied")])


def test_a_token_whose_source_fails_is_waited_for() -> None:
    def fails() -> NoReturn:
        raise KeyError("the process that has the keys is gone")

    keys = cast(RenewedKeys, SimpleNamespace(token="first", newest=fails))
    refusals = CredentialRefusals(keys, lambda: False, are_renewed=True)
    told = refusals.judged(AccessDeniedError("no"), "first")
    assert isinstance(told, RemoteUnavailableError)
    assert told.of_store


def test_a_request_that_was_refused_while_the_token_was_renewed_says_nothing_of_the_store() -> None:
    keys = cast(RenewedKeys, SimpleNamespace(token="second"))
    told = CredentialRefusals(keys, lambda: True, are_renewed=True).judged(AccessDeniedError("no"), "first")
    assert isinstance(told, RemoteUnavailableError)
    assert not told.of_store


def test_a_token_that_has_never_worked_is_refused_at_once(server: Guarded, tmp_path: Path) -> None:
    server.expired = DENIED
    store = by_profile(server, tmp_path)
    server.token = "another"
    refused_at_once(store, OPERATIONS * 2)


@pytest.mark.usefixtures("reads_files_always")
def test_a_renewed_token_that_is_denied_too_is_refused_at_once(server: Guarded, tmp_path: Path) -> None:
    server.expired = DENIED
    store = by_profile(server, tmp_path)
    works(store)
    server.token = "none"
    with pytest.raises(RemoteUnavailableError):
        store.probe()
    write_token(tmp_path, "second")
    with pytest.raises(RemoteUnavailableError):  # it may have been sent with the one before
        store.probe()
    refused_at_once(store, OPERATIONS * 2)


@pytest.mark.usefixtures("reads_files_always")
def test_a_file_whose_token_was_replaced_while_a_request_was_under_way_is_no_refusal(
    server: Guarded, tmp_path: Path
) -> None:
    server.expired = DENIED
    store = by_profile(server, tmp_path)
    assert content(store, KEY, 0, len(GOOD)) == GOOD

    def renewed_meanwhile(asked: Asked) -> Answer | None:
        write_token(tmp_path, "second")
        server.token = "second"
        return None if asked.headers.get("x-amz-security-token") == "second" else DENIED

    server.lie = renewed_meanwhile
    with pytest.raises(RemoteUnavailableError, match="may have expired"):
        content(store, KEY, 0, len(GOOD))
    assert content(store, KEY, 0, len(GOOD)) == GOOD


def test_a_store_that_does_not_answer_when_it_is_asked_whether_it_takes_the_token_is_unavailable(
    server: Guarded, tmp_path: Path
) -> None:
    store = by_profile(server, tmp_path)
    assert content(store, KEY, 0, len(GOOD)) == GOOD
    server.lie = lambda asked: refusal("SlowDown", 503) if asked.is_list else DENIED
    with pytest.raises(RemoteUnavailableError, match="SlowDown"):
        content(store, KEY, 0, len(GOOD))


def test_names_that_are_denied_in_a_bulk_deletion_say_nothing_of_the_token(server: Guarded, tmp_path: Path) -> None:
    store = by_profile(server, tmp_path)
    assert content(store, KEY, 0, len(GOOD)) == GOOD
    error = "<Error><Key>b</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    server.lie = lambda asked: xml(f"<DeleteResult>{error}</DeleteResult>") if "delete" in asked.query else None
    server.asked.clear()
    with pytest.raises(RemoteRefusedError, match="AccessDenied"):
        store.delete(["a", "b"])
    assert not any(asked.is_list for asked in server.asked)


def test_a_token_that_nothing_renews_is_told(server: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = server.place
    keys = {"access_key_id": "KEY", "secret_access_key": "SECRET"}
    of_options = opened(place.url, {"endpoint": place.endpoint, "region": "r", **keys, "session_token": "first"})
    variables = {f"AWS_{name.upper()}": value for name, value in {**keys, "session_token": "first"}.items()}
    for name, value in variables.items():  # obstore reads the process's own
        monkeypatch.setenv(name, value)
    of_environment = opened(place.url, {"endpoint": place.endpoint, "region": "r"}, {**variables, "HOME": str(tmp_path)})
    for store in (of_options, of_environment):
        server.token = "first"
        assert content(store, KEY, 0, len(GOOD)) == GOOD
        server.token = "second"
        for operation in OPERATIONS:
            with pytest.raises(
                CredentialsExpiredError, match=r"which have expired.*option or a variable.*nothing renews"
            ) as told:
                operation(store)
            assert not told.value.transient


def test_a_token_that_nothing_renews_is_refused_at_once_where_that_is_not_told(server: Guarded) -> None:
    server.expired = DENIED
    keys = {"access_key_id": "KEY", "secret_access_key": "SECRET", "session_token": "first"}
    store = opened(server.place.url, {"endpoint": server.place.endpoint, "region": "r", **keys})
    assert content(store, KEY, 0, len(GOOD)) == GOOD
    server.token = "second"
    refused_at_once(store, OPERATIONS)


@pytest.mark.parametrize(
    ("kind", "settings", "fixed"),
    [
        ("s3", {"AWS_ACCESS_KEY_ID": "K"}, True),
        ("s3", {"aws_access_key_id": "K"}, True),
        ("s3", {"AWS_ACCESS_KEY_ID": ""}, False),
        ("s3", {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ROLE_ARN": "arn"}, False),
        ("s3", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://x"}, False),
        ("az", {"sas_key": "sv=…"}, True),
        ("az", {"AZURE_STORAGE_ACCOUNT_KEY": "K"}, True),
        ("az", {"AZURE_STORAGE_SAS_TOKEN": "K"}, True),
        ("az", {"AZURE_FEDERATED_TOKEN_FILE": "/token", "AZURE_CLIENT_ID": "id", "account_name": "a"}, False),
        ("az", {"client_id": "id", "client_secret": "s", "tenant_id": "t"}, False),
        ("gs", {"GOOGLE_APPLICATION_CREDENTIALS": "/file"}, False),
    ],
)
def test_credentials_that_are_settings_are_fixed(kind: str, settings: dict[str, str], *, fixed: bool) -> None:
    assert are_fixed(kind, settings) is fixed


@pytest.mark.parametrize(
    "detail",
    [
        "Signature not valid in the specified time frame: Start [Thu, 01 Jan 2026] - Expiry [Fri, 02 Jan 2026]",
        "IDX10223: lifetime validation failed. The token is expired.",
    ],
)
def test_azures_only_code_for_credentials_tells_expired_ones(monkeypatch: pytest.MonkeyPatch, detail: str) -> None:
    options = {"account_name": "a", "sas_key": "sv=2024&sig=c2ln", "endpoint": "http://127.0.0.1:9/a"}
    store = opened("az://container/place", options)

    def refuse(*_: object, **__: object) -> None:
        told = f"<AuthenticationErrorDetail>{detail}</AuthenticationErrorDetail>"
        body = f"<Error><Code>AuthenticationFailed</Code>{told}</Error>"
        raise obstore.exceptions.PermissionDeniedError(f"status code: 403 Forbidden: {body}")

    monkeypatch.setattr(obstore, "list_with_delimiter", refuse)
    with pytest.raises(CredentialsExpiredError, match="nothing renews"):
        store.probe()


@pytest.mark.slow
@pytest.mark.usefixtures("reads_files_always")
async def test_a_session_token_of_ceph_that_expires_is_waited_for(
    store_server: Callable[[str], StoreServer], tmp_path: Path, autojump_clock: MockClock
) -> None:
    ceph = store_server("s3-ceph")
    assert ceph.locked is not None

    def renew(seconds: int) -> None:
        write_keys(tmp_path, session_keys(ceph.options, seconds))

    def has_worked() -> bool:
        """Say whether a token of four seconds has worked, which on a busy machine may have expired before."""
        renew(4)
        with suppress(RemoteRefusedError, RemoteUnavailableError):
            return content(store, "a") == b"bytes"
        return False

    renew(3600)
    place = {name: ceph.options[name] for name in ("endpoint", "region")}
    store = opened(ceph.url, place, {"HOME": str(tmp_path)})
    put(store, "a")
    store.probe()
    with ceph.locked("", ["a"]), pytest.raises(RemoteRefusedError, match="AccessDenied"):
        store.delete(["a"])
    while not has_worked():
        pass
    with suppress(RemoteUnavailableError):
        while content(store, "a") == b"bytes":
            pass
    for operation in (store.probe, lambda: store.head("a"), lambda: put(store, "b"), lambda: store.delete(["a"])):
        with pytest.raises(RemoteUnavailableError, match="may have expired, and another one is waited for"):
            operation()

    async def renew_for_long() -> None:
        renew(3600)

    found, events = await read_when_renewed(store, lambda: content(store, "a"), renew_for_long, 10**6)
    assert found == b"bytes"
    assert events == ["remote-down", "remote-up"]


@pytest.mark.slow
def test_a_sas_that_expires_is_refused_by_a_server(store_server: Callable[[str], StoreServer]) -> None:
    """Azurite says no more of it than that it refuses."""
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    azurite = store_server("azurite")
    account, container = azurite.options["account_name"], azurite.url.split("/")[2]
    rights = ContainerSasPermissions(read=True, write=True, delete=True, list=True)

    def store_until(seconds: float) -> RemoteStore:
        expiry = datetime.now(UTC) + timedelta(seconds=seconds)
        sas = generate_container_sas(
            account, container, account_key=azurite.options["account_key"], permission=rights, expiry=expiry
        )
        options = {name: value for name, value in azurite.options.items() if name != "account_key"}
        return opened(azurite.url, {**options, "sas_token": sas})

    store = store_until(3600)
    put(store, "a")
    assert content(store, "a") == b"bytes"
    assert store.list_directory("").objects.keys() == {"a"}
    store = store_until(2)
    with suppress(RemoteRefusedError):
        while content(store, "a") == b"bytes":
            pass
    for operation in (store.probe, lambda: store.head("a"), lambda: put(store, "b"), lambda: store.delete(["a"])):
        with pytest.raises(RemoteRefusedError) as told:
            operation()
        assert told.value.of_store
        assert "sig=" not in str(told.value)
    assert store_until(3600).list_directory("").objects.keys() == {"a"}
