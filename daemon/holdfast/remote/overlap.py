"""Stores that share objects, as far as their URLs and options tell: nothing is asked of any server.

Two stores are apart if they are on different servers, by URL, endpoint or account, or in different directories. Other
credentials don't make another server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from holdfast.remote.urls import directory_of, parts_of

_SAME_SCHEMES = {"s3a": "s3", "abfs": "az", "abfss": "az", "local": "file", "gcs": "gs"}
_FORCED = "fsspec+"
_OF_NOBODY_ELSE = "memory"
_PREFIXES = ("aws_", "azure_storage_", "azure_", "google_", "storage_")
_SERVER_OPTIONS = {"account_name": "account", "base_url": "endpoint", "host": "host", "hostname": "host", "port": "port"}
_SERVER_VARIABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "s3": {"endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")},
    "az": {"account": ("AZURE_STORAGE_ACCOUNT_NAME",)},
}


_USUAL_PORTS = {"http": ":80", "https": ":443", "ftp": ":21", "sftp": ":22"}


class Location(NamedTuple):
    """The place of a store: the server, with the bucket, and the directories down to the store."""

    server: tuple[str, ...]
    path: tuple[str, ...]

    def contains(self, other: Location) -> bool:
        """Say whether objects of ``other`` are objects of this one too."""
        return self.server == other.server and other.path[: len(self.path)] == self.path


def location_of(url: str, options: Mapping[str, Any], environment: Mapping[str, str]) -> Location | None:
    """Return where the store at ``url`` is; None for one that is always alone. Follows the symbolic links of directories.

    Raises ``ConfigurationError`` for an invalid URL.
    """
    plain = url.removeprefix(_FORCED)
    if "://" not in plain:
        return None  # whoever opens it tells what is wrong with it
    parts = parts_of(plain)
    scheme = _SAME_SCHEMES.get(parts.scheme, parts.scheme)
    if scheme == "file":
        return Location(("file",), _names(os.path.realpath(directory_of(f"file://{plain.partition('://')[2]}"))))
    if scheme == _OF_NOBODY_ELSE and plain == url:
        return None
    server = _server_options(scheme, options, environment)
    host = parts.netloc.rpartition("@")[2].lower().removesuffix(_USUAL_PORTS.get(scheme, "\0"))
    if scheme == "az" and "@" in parts.netloc:
        server["account"] = host.partition(".")[0]
        host = parts.netloc.partition("@")[0].lower()
    return Location((scheme, host, *(f"{key}={server[key]}" for key in sorted(server))), _names(unquote(parts.path)))


def _server_options(scheme: str, options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Return what names the server beside the URL; options go before the environment."""
    found = {
        key: next(environment[variable] for variable in variables if environment.get(variable))
        for key, variables in _SERVER_VARIABLES.get(scheme, {}).items()
        if any(environment.get(variable) for variable in variables)
    }
    for option, value in options.items():
        name = option.lower()
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        key = "endpoint" if name.startswith("endpoint") else _SERVER_OPTIONS.get(name)
        if key is not None:
            found[key] = str(value)
    plain = {key: _plain_endpoint(value) if key == "endpoint" else value.lower() for key, value in found.items()}
    return {key: value for key, value in plain.items() if value}


def _plain_endpoint(url: str) -> str:
    """Return an endpoint as it is compared: without a port that goes without saying, and empty for AWS's own."""
    scheme, separator, host = url.lower().rstrip("/").partition("://")
    host = host.removesuffix(_USUAL_PORTS.get(scheme, "\0"))
    is_of_aws = host.endswith(".amazonaws.com") and "us-gov" not in host
    return "" if is_of_aws else f"{scheme}{separator}{host}"


def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in ("", "."))
