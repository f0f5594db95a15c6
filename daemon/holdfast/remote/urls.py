"""Opening the store that a URL names, or checking that it could be opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from obstore.store import MemoryStore, S3Store, from_url

from holdfast.errors import ConfigurationError
from holdfast.remote.contract import RemoteStore
from holdfast.remote.credentials import ProfileKeys, RenewedKeys, are_fixed, s3_profile_options
from holdfast.remote.file_store import FileStore
from holdfast.remote.hdfs_options import HDFS_SCHEMES
from holdfast.remote.keys import NOT_IN_XML, NameRules
from holdfast.remote.obstore_errors import brief, is_panic
from holdfast.remote.obstore_store import ObstoreStore
from holdfast.remote.redaction import CONTAINER_FIRST, public_url, secrets_of
from holdfast.remote.s3_checksums import S3Checksums
from holdfast.remote.s3_signed import SignedRequests, keys_of
from holdfast.remote.s3_whole import WholePuts
from holdfast.remote.store_options import check_endpoint, check_none, checked_options, explained

_CLOUDS = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "abfs", "abfss": "abfss"}
_AZURE = {"az", "abfs", "abfss"}
_LONGEST_CLOUD_KEY_BYTES = 1024
"""The limit of S3 and Google. Azure takes 1024 characters, of any length, but other tools that share the store may not."""
_NOT_IN_AZURE = re.compile("[\\\\\ufffe\uffff]")
_ALTERED_BY_AZURE = re.compile(r"\\")
"""The character that Azure does not keep: it takes a backslash for a slash, which is another name."""
_CLOUD_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")
_FORCED = "fsspec+"
_NO_RETRIES: Any = {"max_retries": 0}
_CREDENTIAL_OPTIONS = {"access_key_id", "secret_access_key", "session_token", "token", "skip_signature"}
_KEY_PAIR = {"access_key_id", "secret_access_key"}
_TOKENS = {"session_token", "token", "credential_provider"}
_ANONYMOUS: Any = {"token": "", "expires_at": None}
_PLAIN_ACCOUNT = re.compile(r'"gcs_base_url"\s*:\s*"http://', re.IGNORECASE)
_TRUE = {"1", "on", "t", "true", "y", "yes"}
_PROFILE_CREDENTIALS = {"access_key_id", "secret_access_key", "session_token", "credential_provider"}


def open_store(
    url: str,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    request_timeout_seconds: float,
    connect_timeout_seconds: float,
) -> RemoteStore:
    """Return the store at ``url``, before any request to it.

    ``options`` are passed to the library behind the scheme (obstore's store configuration, or the fsspec file system's). A
    scheme with the prefix ``fsspec+`` is opened through fsspec even if obstore knows it. Raises ``ConfigurationError`` for
    an invalid URL or option, and ``RemoteRefusedError`` for a directory that can't be a store.
    """
    scheme = scheme_of(url)
    if scheme == "file":
        directory = directory_of(url)
        check_none(scheme, options)
        return FileStore(directory)
    if scheme == "memory":
        check_none(scheme, options)
        return ObstoreStore(public_url(url), MemoryStore())
    if scheme in _CLOUDS:
        return _cloud_store(url, scheme, options, environment, request_timeout_seconds, connect_timeout_seconds)
    if scheme.removeprefix(_FORCED) in HDFS_SCHEMES:
        from holdfast.remote.hdfs_store import open_hdfs  # as below

        return open_hdfs(url.removeprefix(_FORCED), options, environment, request_timeout_seconds, connect_timeout_seconds)
    if scheme:
        from holdfast.remote.fsspec_store import FsspecStore  # fsspec takes a while to import, and few stores need it

        return FsspecStore(
            url.removeprefix(_FORCED),
            options,
            request_seconds=request_timeout_seconds,
            connect_seconds=connect_timeout_seconds,
        )
    raise ConfigurationError(
        f"{public_url(url)!r} is not a URL of a store: write file:///path, s3://bucket/prefix, gs://…, az://…"
    )


def checked_store(
    url: str,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    request_timeout_seconds: float,
    connect_timeout_seconds: float,
) -> RemoteStore | None:
    """Return the store at ``url``, before any request to it; None for a directory, which is checked here and not opened.

    Raises as ``open_store`` does.
    """
    scheme = scheme_of(url)
    if scheme == "file":
        directory = directory_of(url)
        check_none(scheme, options)
        FileStore.check(directory)
        return None
    return open_store(
        url,
        options,
        environment,
        request_timeout_seconds=request_timeout_seconds,
        connect_timeout_seconds=connect_timeout_seconds,
    )


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, with the prefix ``fsspec+`` if it has that; empty if there is none."""
    return url.partition("://")[0] if "://" in url else ""


def directory_of(url: str) -> Path:
    """Return the directory that a ``file`` URL names. Raises ``ConfigurationError``."""
    parts = parts_of(url)
    if parts.netloc or not parts.path.startswith("/"):
        raise ConfigurationError(
            f"{public_url(url)}: a file URL has three slashes and an absolute path, as in file:///srv/store"
        )
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ConfigurationError(f"{url}: in a file URL write %3F for ? and %23 for #")
    path = unquote(parts.path)
    if "\0" in path:
        raise ConfigurationError(f"{url}: no directory's name has %00 in it")
    return Path(path)


def parts_of(url: str) -> SplitResult:
    """Return the parts of a URL. Raises ``ConfigurationError`` where it can't be one."""
    try:
        return urlsplit(url)
    except ValueError as problem:
        raise ConfigurationError(f"{public_url(url)}: this is no URL: {problem}") from None


def _cloud_store(
    url: str,
    scheme: str,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    request_timeout_seconds: float,
    connect_timeout_seconds: float,
) -> RemoteStore:
    parts = _bucket_of(url, scheme)
    shown = public_url(url)
    variables = {name: value for name, value in environment.items() if name.startswith(_CLOUD_VARIABLES)}
    options = checked_options(_CLOUDS[scheme], options)
    settings = _s3_settings(options, environment) if _CLOUDS[scheme] == "s3" else dict(options)
    check_endpoint({**variables, **settings})
    keys = keys_of(settings, variables)
    keywords: dict[str, Any] = {}
    if "credential_provider" in settings:
        keywords["credential_provider"] = settings.pop("credential_provider")
    elif _CLOUDS[scheme] == "gs" and _is_anonymous({**variables, **settings}):
        keywords["credential_provider"] = lambda: _ANONYMOUS  # obstore would ask the machine for them, to write
    client: Any = {
        "timeout": timedelta(seconds=request_timeout_seconds),
        "connect_timeout": timedelta(seconds=connect_timeout_seconds),
        **_plain_http(settings, variables),
    }
    provider = keywords.get("credential_provider")
    read = provider.newest() if isinstance(provider, ProfileKeys) else {}
    secrets = secrets_of(url, {**variables, **options, **settings, **read})

    def made(**more: str) -> Any:
        config: Any = {**settings, **more}
        return from_url(
            f"{_CLOUDS[scheme]}://{parts.netloc}{parts.path}",
            config=config,
            client_options=client,
            retry_config=_NO_RETRIES,
            **keywords,
        )

    try:
        store = made()
    except BaseException as problem:  # obstore raises many kinds for a bad option
        if not isinstance(problem, Exception) and not is_panic(problem):
            raise
        raise explained(shown, _CLOUDS[scheme], options, brief(problem, secrets)) from None
    checksums = whole_puts = None
    if isinstance(store, S3Store) and store.config.get("skip_signature") is None:
        requests = SignedRequests(store, keys, request_timeout_seconds, connect_timeout_seconds)
        checksums, whole_puts = S3Checksums(requests, secrets), WholePuts(requests, secrets)
    return ObstoreStore(
        shown,
        store,
        secrets,
        hyphen="_" if scheme in _AZURE else "-",
        checksums=checksums,
        whole_puts=whole_puts,
        name_rules=_name_rules(scheme, parts.path.strip("/")),
        without_bulk=partial(made, disable_bulk_delete="true") if isinstance(store, S3Store) else None,
        renews_credentials=not are_fixed(_CLOUDS[scheme], {**variables, **options, **settings}),
        renewed_keys=provider if isinstance(provider, RenewedKeys) else None,
    )


def _bucket_of(url: str, scheme: str) -> SplitResult:
    """Return the parts of a URL in a cloud: bucket and prefix. Raises ``ConfigurationError``."""
    parts = parts_of(url)
    shown = public_url(url)
    if not parts.netloc:
        raise ConfigurationError(f"{url}: the bucket is missing, as in {scheme}://bucket/prefix")
    if parts.password or (parts.username and scheme not in CONTAINER_FIRST):
        raise ConfigurationError(f"{shown}: credentials don't belong into a URL; see docs/configuration.md")
    if parts.query or parts.fragment:
        raise ConfigurationError(f"{shown}: nothing can follow a ? or # in this URL; options have a section of their own")
    return parts


def _name_rules(scheme: str, prefix: str) -> NameRules:
    """Return the rules for keys below ``prefix``, which counts among the bytes of a name."""
    left = _LONGEST_CLOUD_KEY_BYTES - (len(unquote(prefix).encode()) + 1 if prefix else 0)
    if scheme in _AZURE:
        return NameRules(longest_key_bytes=left, refused=_NOT_IN_AZURE, altered=_ALTERED_BY_AZURE)
    return NameRules(longest_key_bytes=left, refused=NOT_IN_XML)


def _s3_settings(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return obstore's settings: ``options``, then the profile's. Of the profile, all credentials are taken or none."""
    given = {name.lower().removeprefix("aws_") for name in options}
    profile = s3_profile_options(environment)
    if given & _CREDENTIAL_OPTIONS or "credential_provider" in given:
        profile = {name: value for name, value in profile.items() if name not in _PROFILE_CREDENTIALS}
    settings = {name: value for name, value in profile.items() if name not in given and f"{name}_url" not in given}
    if "copy_if_not_exists" not in given and not environment.get("AWS_COPY_IF_NOT_EXISTS"):
        settings["copy_if_not_exists"] = "multipart"
    settings.update(options)
    if given >= _KEY_PAIR and not _TOKENS & given and environment.get("AWS_SESSION_TOKEN"):
        return _with_keys_alone(settings)
    return settings


def _with_keys_alone(settings: dict[str, Any]) -> dict[str, Any]:
    """Let the keys in ``settings`` be used without the session token of the environment, which obstore would add.

    That token belongs to the environment's own keys; the server refuses it with any others.
    """
    keys = {short: settings[name] for name in settings if (short := name.lower().removeprefix("aws_")) in _KEY_PAIR}
    rest = {name: value for name, value in settings.items() if name.lower().removeprefix("aws_") not in _KEY_PAIR}
    return {**rest, "credential_provider": lambda: {**keys, "expires_at": None}}


def _is_anonymous(settings: Mapping[str, Any]) -> bool:
    plain = {name.lower().removeprefix("google_"): str(value).lower() for name, value in settings.items()}
    return plain.get("skip_signature") in _TRUE


def _plain_http(settings: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, bool]:
    """Take ``allow_http`` out of the settings; return it if they, or an endpoint, say so."""
    says_so = str(settings.pop("allow_http", "")).lower() in _TRUE
    return {"allow_http": True} if says_so or _has_plain_endpoint({**variables, **settings}) else {}


def _has_plain_endpoint(settings: Mapping[str, Any]) -> bool:
    """Say whether an endpoint among the settings, or in the account of a service that they name, begins with ``http://``."""
    return any(
        _PLAIN_ACCOUNT.search(_account(value))
        if "service_account" in (plain := name.lower())
        else ("endpoint" in plain or plain.endswith("base_url")) and str(value).lower().startswith("http://")
        for name, value in settings.items()
    )


def _account(text: Any) -> str:
    """Return the JSON of Google's account of a service, which is given itself or by its file."""
    if str(text).lstrip().startswith("{"):
        return str(text)
    with suppress(OSError, UnicodeDecodeError):  # obstore tells what is wrong with it
        return Path(str(text)).read_text("utf-8")
    return ""
