"""From a URL to a store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from obstore.store import MemoryStore, from_url

from holdfast.errors import ConfigurationError
from holdfast.remote.contract import RemoteStore
from holdfast.remote.credentials import s3_profile_options
from holdfast.remote.files import DirectoryStore
from holdfast.remote.filesystems import FsspecStore
from holdfast.remote.objects import ObstoreStore
from holdfast.remote.translation import brief

_CLOUDS = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "abfs", "abfss": "abfss"}
_FORCED = "fsspec+"
_NO_RETRIES: Any = {"max_retries": 0}


def open_store(
    url: str,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    request_timeout_seconds: float,
    connect_timeout_seconds: float,
) -> RemoteStore:
    """Return the store at ``url``; nothing is asked of it yet.

    ``options`` go to the library behind the scheme (obstore's store configuration, or the fsspec file system's).
    A scheme with the prefix ``fsspec+`` is opened through fsspec even where obstore knows it. Raises
    ``ConfigurationError`` for a URL or option that can't be, ``RemoteRefusedError`` for a directory that can't serve.
    """
    parts = urlsplit(url)
    scheme = parts.scheme
    if scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise ConfigurationError(f"{url}: a file URL has three slashes and an absolute path, as in file:///srv/store")
        return DirectoryStore(Path(unquote(parts.path)))
    if scheme == "memory":
        return ObstoreStore(url, MemoryStore())
    if scheme in _CLOUDS:
        return _cloud_store(url, scheme, options, environment, request_timeout_seconds, connect_timeout_seconds)
    if scheme.startswith(_FORCED) or scheme:
        return FsspecStore(url.removeprefix(_FORCED), dict(options))
    raise ConfigurationError(f"{url!r} is not a URL of a store: write file:///path, s3://bucket/prefix, gs://…, az://…")


def _cloud_store(
    url: str,
    scheme: str,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    request_timeout_seconds: float,
    connect_timeout_seconds: float,
) -> RemoteStore:
    parts = urlsplit(url)
    if not parts.netloc:
        raise ConfigurationError(f"{url}: the bucket is missing, as in {scheme}://bucket/prefix")
    if parts.username or parts.password:
        raise ConfigurationError(
            f"{scheme}://…@{parts.hostname}: credentials don't belong into a URL; see docs/configuration.md"
        )
    settings: dict[str, Any] = s3_profile_options(environment) if _CLOUDS[scheme] == "s3" else {}
    settings.update(options)
    client: Any = {
        "timeout": timedelta(seconds=request_timeout_seconds),
        "connect_timeout": timedelta(seconds=connect_timeout_seconds),
    }
    endpoint = str(settings.get("endpoint") or environment.get("AWS_ENDPOINT_URL") or "")
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    config: Any = settings
    try:
        store: Any = from_url(
            f"{_CLOUDS[scheme]}://{parts.netloc}{parts.path}",
            config=config,
            client_options=client,
            retry_config=_NO_RETRIES,
        )
    except Exception as problem:  # noqa: BLE001 obstore raises many kinds for a bad option
        raise ConfigurationError(f"{url}: {brief(problem)}") from None
    return ObstoreStore(url, store)
