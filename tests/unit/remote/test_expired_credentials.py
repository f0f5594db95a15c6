"""Tokens that expire while a store is in use: renewed ones are waited for, and who has none to wait for is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from trio.testing import MockClock

from holdfast.errors import CredentialsExpiredError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote import RemoteStore
from holdfast.remote.credentials import are_fixed
from tests.support.stores.contract_servers import StoreServer
from tests.support.stores.lying_s3 import GOOD, Answer, Asked, LyingS3, refusal
from tests.support.stores.renewed_access import read_when_renewed
from tests.unit.remote.test_remote_contract import content, opened, put

KEY = "checkpoints/good/file"


class Guarded(LyingS3):
    """A server that takes one session token alone."""

    def __init__(self) -> None:
        super().__init__()
        self.token = "first"
        self.lie = self._refuse_others

    def _refuse_others(self, asked: Asked) -> Answer | None:
        return None if asked.headers.get("x-amz-security-token") == self.token else refusal("ExpiredToken", 400)


@pytest.fixture
def server() -> Iterator[Guarded]:
    with Guarded() as running:
        yield running


def write_token(home: Path, token: str) -> None:
    """Put a token into the file of the AWS tools, as one of them does."""
    keys = "aws_access_key_id = KEY\naws_secret_access_key = SECRET\n"
    (home / ".aws").mkdir(exist_ok=True)
    (home / ".aws/credentials").write_text(f"[default]\n{keys}aws_session_token = {token}\nregion = r\n")


def by_profile(server: Guarded, home: Path) -> RemoteStore:
    write_token(home, server.token)
    return opened(server.place.url, {"endpoint": server.place.endpoint}, {"HOME": str(home)})


OPERATIONS: list[Callable[[RemoteStore], Any]] = [
    lambda store: store.probe(),
    lambda store: store.head(KEY),
    lambda store: store.list_directory("checkpoints"),
    lambda store: content(store, KEY, 0, len(GOOD)),
    lambda store: put(store, "new", create_only=True),
    lambda store: store.delete(["new"]),
]


async def test_a_token_of_a_file_is_waited_for(server: Guarded, tmp_path: Path, autojump_clock: MockClock) -> None:
    store = by_profile(server, tmp_path)
    assert content(store, KEY, 0, len(GOOD)) == GOOD
    server.token = "second"
    for operation in OPERATIONS:
        with pytest.raises(RemoteUnavailableError, match=r"which have expired.*; new ones are waited for"):
            operation(store)

    async def renew() -> None:
        write_token(tmp_path, "second")

    # The clock of trio runs ahead of the one by which obstore keeps a token for 10 s.
    found, events = await read_when_renewed(store, lambda: content(store, KEY, 0, len(GOOD)), renew, 10**6)
    assert found == GOOD
    assert events == ["remote-down", "remote-up"]


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
