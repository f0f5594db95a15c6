"""S3 credentials from the configuration files of the AWS tools, and whether a store's credentials are ever renewed.

obstore itself supports the environment, web identity, container and instance roles, but not the profiles of ``~/.aws``.
Keys of a profile are read here: once, or again and again if there is a session token with them, which expires and is then
replaced in the file by whoever keeps it. A profile that gets its keys otherwise (SSO, assumed roles, a process) needs boto3,
which obstore can use. As with the AWS tools, the environment overrides a profile, setting by setting. Nothing here is
logged.
"""

from __future__ import annotations

import abc
import configparser
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigurationError
from holdfast.remote.store_options import plain_name

_FROM_ELSEWHERE = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
_NEEDS_BOTO3 = {
    "credential_process",
    "credential_source",
    "login_session",
    "role_arn",
    "source_profile",
    "sso_account_id",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
}
_FIXED = {
    "s3": {"access_key_id"},
    "az": {"account_key", "access_key", "master_key", "sas_key", "sas_token", "bearer_token", "token"},
    "gs": {"skip_signature"},
}
"""The settings that are credentials themselves, by service; all others say where to get some."""
_READ_AGAIN_AFTER = timedelta(seconds=10)
_VARIABLES = {
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
}


def s3_profile_options(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the obstore options from the chosen profile, except those that the environment sets.

    Keys are taken from the profile only if the environment has no credentials of any kind. Raises ``ConfigurationError`` if
    ``AWS_PROFILE`` names a profile that does not exist or needs boto3, and for files that can't be read.
    """
    wanted = environment.get("AWS_PROFILE")
    name = wanted or "default"
    profile = _profile(environment, name)
    named = any(environment.get(variable) for variable in _FROM_ELSEWHERE)
    if profile is None:
        if wanted and not named:
            raise ConfigurationError(f"$AWS_PROFILE: there is no profile {wanted} in ~/.aws/credentials or ~/.aws/config")
        return {}
    options: dict[str, Any] = {
        option: profile[setting]
        for option, setting in (("region", "region"), ("endpoint", "endpoint_url"))
        if setting in profile and not any(environment.get(variable) for variable in _VARIABLES[option])
    }
    if not named:
        keys = {option: profile[setting] for setting, option in _KEYS.items() if setting in profile}
        if keys.keys() >= set(_KEYS.values()):
            options["credential_provider"] = ProfileKeys(dict(environment), name, keys)
        else:
            options.update(keys)
        if wanted and "access_key_id" not in keys and _NEEDS_BOTO3 & profile.keys():
            options["credential_provider"] = _provider_of_boto3(wanted)
    return options


class RenewedKeys(abc.ABC):
    """Keys that somebody else renews, as obstore asks for them: every few seconds."""

    refresh_threshold = timedelta(0)

    def __init__(self) -> None:
        self.token = ""
        """The session token that obstore uses; "" before it has asked for the first, and for keys without one."""

    @abc.abstractmethod
    def newest(self) -> dict[str, Any]:
        """Return ``access_key_id``, ``secret_access_key`` and ``token`` as they are by now. Raises what its source does."""

    def __call__(self) -> dict[str, Any]:
        """Return the keys, and when obstore is to ask again."""
        keys = self.newest()
        self.token = keys["token"] or ""
        return {**keys, "expires_at": datetime.now(UTC) + _READ_AGAIN_AFTER}


class ProfileKeys(RenewedKeys):
    """The keys of a profile with a session token, which the files tell."""

    def __init__(self, environment: Mapping[str, str], name: str, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._environment = environment
        self._name = name
        self._keys = keys

    def newest(self) -> dict[str, Any]:
        """Return the keys. While a file can't be read, or has not all of them, those before stay."""
        with suppress(ConfigurationError):
            profile = _profile(self._environment, self._name) or {}
            if _KEYS.keys() <= profile.keys():
                self._keys = {option: profile[setting] for setting, option in _KEYS.items()}
        return {
            "access_key_id": self._keys["access_key_id"],
            "secret_access_key": self._keys["secret_access_key"],
            "token": self._keys["session_token"],
        }


class BotoKeys(RenewedKeys):
    """Keys that boto3 gets, and renews before they expire. obstore's own provider would keep them for half an hour."""

    def __init__(self, provider: Any) -> None:
        super().__init__()
        self.config = provider.config
        self._provider = provider

    def newest(self) -> dict[str, Any]:
        return {name: value for name, value in self._provider().items() if name != "expires_at"}


def are_fixed(kind: str, settings: Mapping[str, Any]) -> bool:
    """Say whether the credentials of a store of ``kind`` (s3, az, gs) are among its settings, so that none replace them."""
    return any(plain_name(name) in _FIXED[kind] for name, value in settings.items() if value)


def _profile(environment: Mapping[str, str], name: str) -> dict[str, str] | None:
    home = Path(environment.get("HOME", "/root"))
    credentials = _parsed(Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws/credentials"))
    config = _parsed(Path(environment.get("AWS_CONFIG_FILE") or home / ".aws/config"))
    titles = [f"profile {name}", f'profile "{name}"', *(["default"] if name == "default" else [])]
    sections = [config[title] for title in titles if config.has_section(title)]
    sections += [credentials[name]] if credentials.has_section(name) else []
    if not sections:
        return None
    return {setting: value for section in sections for setting, value in section.items()}


def _parsed(file: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(file.read_text("utf-8"), str(file))
    except (FileNotFoundError, NotADirectoryError):
        return parser
    except configparser.Error as problem:
        raise ConfigurationError(f"{file}: {problem.message.splitlines()[0]}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{file}: {getattr(problem, 'strerror', None) or 'not UTF-8'}") from None
    return parser


def _provider_of_boto3(profile: str) -> Any:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise ConfigurationError(
            f"$AWS_PROFILE: the profile {profile} has no static keys; install boto3 beside Holdfast, "
            "which can ask for them, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from None
    try:
        return BotoKeys(Boto3CredentialProvider(boto3.Session(profile_name=profile)))
    except (BotoCoreError, ValueError) as problem:
        raise ConfigurationError(f"$AWS_PROFILE: the profile {profile}: {problem}") from None
