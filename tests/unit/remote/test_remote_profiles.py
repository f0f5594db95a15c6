"""Credentials from ``~/.aws``: which profile counts, what goes before it, and what is said when it can't be used."""

from __future__ import annotations

import json
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import ConfigurationError, RemoteRefusedError
from holdfast.remote.credentials import s3_profile_options
from tests.unit.remote.test_remote_contract import content, opened, put

if TYPE_CHECKING:
    from tests.support.stores.s3 import Versitygw

pytestmark = pytest.mark.slow


CREDENTIALS = """
[default]
aws_access_key_id = DEFAULTKEY
aws_secret_access_key = default%secret

[team]
aws_access_key_id = TEAMKEY
aws_secret_access_key = team/secret+=
aws_session_token = team-token
"""
CONFIG = """
[default]
region = eu-central-1

[profile team]
region = eu-west-1
endpoint_url = http://127.0.0.1:9
s3 =
    max_concurrent_requests = 20

[profile "with space"]
aws_access_key_id = SPACEKEY
aws_secret_access_key = space

[profile bare]
region = us-west-2

[profile sso]
sso_start_url = https://example.invalid/start
sso_account_id = 1
"""
DEFAULT = {"access_key_id": "DEFAULTKEY", "secret_access_key": "default%secret"}
TEAM = {"access_key_id": "TEAMKEY", "secret_access_key": "team/secret+=", "token": "team-token"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with the files of the AWS tools."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws/config").write_text(CONFIG)
    return tmp_path


def keys_of_provider(options: dict[str, Any]) -> dict[str, Any]:
    """Take the function that reads the keys out of ``options``; return what it says now, but for the time."""
    keys: dict[str, Any] = options.pop("credential_provider")()
    assert 0 < (keys.pop("expires_at") - datetime.now(UTC)).total_seconds() <= 10
    return keys


def test_without_files_there_is_nothing(tmp_path: Path) -> None:
    assert s3_profile_options({"HOME": str(tmp_path)}) == {}


def test_the_default_profile_counts_when_none_is_named(home: Path) -> None:
    assert s3_profile_options({"HOME": str(home)}) == {**DEFAULT, "region": "eu-central-1"}


def test_a_named_profile_counts_with_both_files(home: Path) -> None:
    options = s3_profile_options({"HOME": str(home), "AWS_PROFILE": "team"})
    assert keys_of_provider(options) == TEAM
    assert options == {"region": "eu-west-1", "endpoint": "http://127.0.0.1:9"}
    spaced = s3_profile_options({"HOME": str(home), "AWS_PROFILE": "with space"})
    assert spaced == {"access_key_id": "SPACEKEY", "secret_access_key": "space"}


def test_the_credentials_file_goes_before_the_configuration(home: Path) -> None:
    with (home / ".aws/config").open("a") as file:
        file.write("[profile both]\naws_access_key_id = FROMCONFIG\naws_secret_access_key = x\nregion = r\n")
    with (home / ".aws/credentials").open("a") as file:
        file.write("[both]\naws_access_key_id = FROMCREDENTIALS\naws_secret_access_key = y\n")
    options = s3_profile_options({"HOME": str(home), "AWS_PROFILE": "both"})
    assert options == {"access_key_id": "FROMCREDENTIALS", "secret_access_key": "y", "region": "r"}


def test_the_files_can_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "c").write_text(CREDENTIALS)
    (tmp_path / "f").write_text(CONFIG)
    environment = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "c"), "AWS_CONFIG_FILE": str(tmp_path / "f")}
    assert s3_profile_options({"HOME": "/nonexistent", **environment}) == {**DEFAULT, "region": "eu-central-1"}


@pytest.mark.parametrize(
    "variable",
    [
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ],
)
def test_credentials_of_the_environment_go_before_the_profiles_keys(home: Path, variable: str) -> None:
    environment = {"HOME": str(home), variable: "x"}
    assert s3_profile_options(environment) == {"region": "eu-central-1"}
    assert s3_profile_options({**environment, "AWS_PROFILE": "missing"}) == {}


def test_region_and_endpoint_of_the_environment_go_before_the_profiles(home: Path) -> None:
    environment = {"HOME": str(home), "AWS_PROFILE": "team"}
    for region in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        for endpoint in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"):
            options = s3_profile_options({**environment, region: "x", endpoint: "y"})
            assert keys_of_provider(options) == TEAM
            assert options == {}


def test_a_profile_that_does_not_exist_is_named(home: Path) -> None:
    with pytest.raises(ConfigurationError, match="no profile typo"):
        s3_profile_options({"HOME": str(home), "AWS_PROFILE": "typo"})


def test_a_profile_without_keys_leaves_them_to_the_machine(home: Path) -> None:
    assert s3_profile_options({"HOME": str(home), "AWS_PROFILE": "bare"}) == {"region": "us-west-2"}


def test_a_profile_that_needs_boto3_says_so_where_there_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ConfigurationError, match="install boto3"):
        s3_profile_options({"HOME": str(home), "AWS_PROFILE": "sso"})


def test_a_profile_that_boto3_can_not_use_is_an_error_of_the_configuration(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_PROFILE", "sso")
    with pytest.raises(ConfigurationError, match="profile sso"):
        s3_profile_options({"HOME": str(home), "AWS_PROFILE": "sso"})


@pytest.mark.parametrize(
    "text", ["aws_secret_access_key = SECRET", "[a]\nSECRET\n", "[a]\nx = SECRET\nx = SECRET\n", "[a]\nx = \udcffSECRET\n"]
)
def test_a_file_that_can_not_be_read_is_named_and_not_quoted(home: Path, text: str) -> None:
    file = home / ".aws/credentials"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigurationError) as caught:
        s3_profile_options({"HOME": str(home)})
    assert str(file) in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_a_directory_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".aws/config").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="config"):
        s3_profile_options({"HOME": str(tmp_path)})


def test_a_session_token_that_is_replaced_in_the_file_is_used(home: Path) -> None:
    provider = s3_profile_options({"HOME": str(home), "AWS_PROFILE": "team"})["credential_provider"]
    file = home / ".aws/credentials"
    for text in ("[team]\naws_access_key_id = HALF\n", "no file of its kind", "[other]\n"):
        file.write_text(text)
        assert (provider()["access_key_id"], provider()["token"]) == ("TEAMKEY", "team-token")
    file.write_text("[team]\naws_access_key_id = NEWKEY\naws_secret_access_key = new\naws_session_token = new-token\n")
    keys = provider()
    assert (keys["access_key_id"], keys["secret_access_key"], keys["token"]) == ("NEWKEY", "new", "new-token")


def write_profile(home: Path, server: Versitygw, name: str) -> dict[str, str]:
    """Write a profile for ``server``; return an environment that names it."""
    with (home / ".aws/credentials").open("a") as file:
        file.write(f"[{name}]\naws_access_key_id = {server.access_key_id}\n")
        file.write(f"aws_secret_access_key = {server.secret_access_key}\n")
    with (home / ".aws/config").open("a") as file:
        file.write(f"[profile {name}]\nendpoint_url = {server.endpoint}\nregion = {server.region}\n")
    return {"HOME": str(home), "AWS_PROFILE": name}


def test_a_store_is_opened_with_a_profile(home: Path, s3_versitygw: Versitygw) -> None:
    place = s3_versitygw.below(uuid.uuid4().hex)
    store = opened(place.url, {}, write_profile(home, place, "works"))
    put(store, "a")
    assert content(store, "a") == b"bytes"


def test_options_go_before_the_profile_and_credentials_are_never_mixed(home: Path, s3_versitygw: Versitygw) -> None:
    place = s3_versitygw.below(uuid.uuid4().hex)
    for prefix in ("", "aws_"):
        options = {f"{prefix}{name}": value for name, value in place.options.items()}
        store = opened(place.url, dict(options), {"HOME": str(home), "AWS_PROFILE": "team"})
        put(store, "a")  # with the profile's session token it would be refused
    environment = write_profile(home, place, "works")
    with pytest.raises(RemoteRefusedError):
        opened(place.url, {"secret_access_key": "wrong", "access_key_id": "wrong"}, environment).probe()


def test_a_profile_with_a_process_is_asked_through_boto3(
    home: Path, s3_versitygw: Versitygw, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = s3_versitygw.below(uuid.uuid4().hex)
    keys = {"Version": 1, "AccessKeyId": place.access_key_id, "SecretAccessKey": place.secret_access_key}
    (home / "keys.json").write_text(json.dumps(keys))
    with (home / ".aws/config").open("a") as file:
        file.write(f"[profile process]\ncredential_process = cat {home / 'keys.json'}\nregion = {place.region}\n")
    environment = {"HOME": str(home), "AWS_PROFILE": "process", "AWS_ENDPOINT_URL": place.endpoint}
    for name, value in environment.items():  # boto3 reads the process's own
        monkeypatch.setenv(name, value)
    options = s3_profile_options(environment)
    assert keys_of_provider(options)["access_key_id"] == place.access_key_id, "asked again before boto3's keys expire"
    store = opened(place.url, {}, environment)
    put(store, "a")
    assert content(store, "a") == b"bytes"
