"""S3's own checksums of objects (``x-amz-checksum-…``), which obstore neither asks for nor passes on.

They come with a HEAD that has one more header, and the signature must cover it. obstore makes the address, so that endpoint,
region and style of addressing are the store's. awscrt signs, with the store's credentials. Whatever goes wrong, the answer
is that there is no checksum. awscrt and httpx are loaded by the first question, which few daemons ever ask.
"""

from __future__ import annotations

import base64
import binascii
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import obstore

from holdfast.digest import CHECKSUM_ALGORITHMS, Checksum
from holdfast.remote.contract import ObjectInfo
from holdfast.remote.obstore_errors import brief, is_panic

if TYPE_CHECKING:
    import httpx
    from obstore.store import S3Store

_log = logging.getLogger("holdfast.remote")
_PREFIX = "x-amz-checksum-"
_VALID_FOR = timedelta(minutes=1)

Keys = Mapping[str, Any]
"""``access_key_id``, ``secret_access_key`` and, with some, ``session_token`` or ``token``, as obstore names them."""


class S3Checksums:
    """Asks one store. ``keys`` returns its keys, or None if they come from where AWS's tools look by themselves."""

    def __init__(
        self,
        store: S3Store,
        keys: Callable[[], Keys | None],
        secrets: Iterable[str],
        request_timeout_seconds: float,
        connect_timeout_seconds: float,
    ) -> None:
        self._store = store
        self._keys = keys
        self._secrets = frozenset(secrets)
        self._request_timeout_seconds = request_timeout_seconds
        self._connect_timeout_seconds = connect_timeout_seconds

    def of(self, info: ObjectInfo) -> Checksum | None:
        """Return the checksum of all bytes of the version ``info``; None if the store has none, or does not tell."""
        try:
            answer = self._ask(info.key)
        except BaseException as problem:
            if not isinstance(problem, Exception) and not is_panic(problem):
                raise
            _log.info("no checksum of %r: %s", info.key, brief(problem, self._secrets))
            return None
        is_version = answer.headers.get("etag") == info.etag and answer.headers.get("content-length") == str(info.size_bytes)
        return checksum_in(answer.headers) if answer.status_code == 200 and is_version else None

    def _ask(self, key: str) -> httpx.Response:
        import httpx

        signed = obstore.sign(self._store, "HEAD", key, _VALID_FOR)
        _, _, region, service, _ = parse_qs(urlsplit(signed).query)["X-Amz-Credential"][0].rsplit("/", 4)
        url = httpx.URL(signed.partition("?")[0])
        headers = self._signed_headers(url.netloc.decode(), url.raw_path.decode(), region, service)
        timeout = httpx.Timeout(self._request_timeout_seconds, connect=self._connect_timeout_seconds)
        return httpx.head(url, headers=headers, timeout=timeout, verify=self._trusted)

    def _signed_headers(self, host: str, path: str, region: str, service: str) -> list[tuple[str, str]]:
        from awscrt import auth
        from awscrt.http import HttpHeaders, HttpRequest

        request = HttpRequest("HEAD", path, HttpHeaders([("host", host), ("x-amz-checksum-mode", "ENABLED")]))
        config = auth.AwsSigningConfig(
            auth.AwsSigningAlgorithm.V4,
            credentials_provider=self._provider(),
            region=region,
            service=service,
            use_double_uri_encode=False,  # S3 alone signs paths as they are
            should_normalize_uri_path=False,
            signed_body_header_type=auth.AwsSignedBodyHeaderType.X_AMZ_CONTENT_SHA_256,
        )
        auth.aws_sign_request(request, config).result(self._request_timeout_seconds)
        return list(request.headers)

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context()  # the system's certificates, as obstore

    def _provider(self) -> Any:
        from awscrt.auth import AwsCredentialsProvider

        keys = self._keys()
        if keys is None:
            return self._default_provider
        token = keys.get("session_token") or keys.get("token")
        return AwsCredentialsProvider.new_static(keys["access_key_id"], keys["secret_access_key"], token)

    @cached_property
    def _default_provider(self) -> Any:
        from awscrt.auth import AwsCredentialsProvider

        return AwsCredentialsProvider.new_default_chain()


def checksum_in(headers: Mapping[str, str]) -> Checksum | None:
    """Return the strongest checksum of a whole object among the headers of an answer, whose names are lower case.

    One that was put together from the checksums of parts says nothing of the bytes without the boundaries of the parts.
    """
    if headers.get(f"{_PREFIX}type", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    for algorithm in CHECKSUM_ALGORITHMS:
        text = headers.get(f"{_PREFIX}{algorithm}")
        if text is not None:
            try:
                return Checksum(algorithm, base64.b64decode(text, validate=True))
            except (binascii.Error, ValueError):  # of parts too: they end with "-" and their number
                return None
    return None


def keys_of(settings: Mapping[str, Any], environment: Mapping[str, str]) -> Callable[[], Keys | None]:
    """Return where a store with these settings has its keys; the settings go before the environment."""
    if "credential_provider" in settings:
        provider: Callable[[], Keys] = settings["credential_provider"]
        return provider
    given = {name.lower().removeprefix("aws_"): value for name, value in (*environment.items(), *settings.items())}
    return lambda: given if {"access_key_id", "secret_access_key"} <= given.keys() else None
