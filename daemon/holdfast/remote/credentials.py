"""Credentials for S3 from the files that the AWS tools use.

obstore itself knows the environment, web identity, container and instance roles, but not the profiles of ``~/.aws``. Static
keys of a profile are read here; a profile that gets its keys otherwise (SSO, assumed roles, a process) needs boto3, which
obstore can ask. Nothing here is ever logged.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigurationError

_FROM_ELSEWHERE = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def s3_profile_options(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the obstore options that the chosen profile gives; empty when the environment names credentials itself.

    Raises ``ConfigurationError`` when ``AWS_PROFILE`` names a profile that does not exist or that needs boto3.
    """
    if any(environment.get(name) for name in _FROM_ELSEWHERE):
        return {}
    wanted = environment.get("AWS_PROFILE")
    profile = wanted or "default"
    home = Path(environment.get("HOME", "/root"))
    credentials = _section(Path(environment.get("AWS_SHARED_CREDENTIALS_FILE", home / ".aws/credentials")), profile)
    config = _section(
        Path(environment.get("AWS_CONFIG_FILE", home / ".aws/config")),
        profile if profile == "default" else f"profile {profile}",
    )
    if wanted and credentials is None and config is None:
        raise ConfigurationError(f"$AWS_PROFILE: there is no profile {wanted} in ~/.aws/credentials or ~/.aws/config")
    merged = {**(config or {}), **(credentials or {})}
    options = _options(merged)
    if wanted and "access_key_id" not in options:
        options["credential_provider"] = _provider_of_boto3(profile)
    return options


def _section(file: Path, name: str) -> dict[str, str] | None:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file)
    except configparser.Error as problem:
        raise ConfigurationError(f"{file}: {problem.message.splitlines()[0]}") from None
    return dict(parser[name]) if parser.has_section(name) else None


def _options(profile: Mapping[str, str]) -> dict[str, Any]:
    names = {
        "aws_access_key_id": "access_key_id",
        "aws_secret_access_key": "secret_access_key",
        "aws_session_token": "session_token",
        "region": "region",
        "endpoint_url": "endpoint",
    }
    return {option: profile[name] for name, option in names.items() if name in profile}


def _provider_of_boto3(profile: str) -> Any:
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise ConfigurationError(
            f"$AWS_PROFILE: the profile {profile} has no static keys; install boto3 beside Holdfast, "
            "which can ask for them, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from None
    return Boto3CredentialProvider(boto3.Session(profile_name=profile))
