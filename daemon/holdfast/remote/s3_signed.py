"""Requests to S3 that obstore has no call for.

obstore makes the address, so that endpoint, region and style of addressing are the store's; awscrt signs, with the store's
credentials; httpx sends. awscrt and httpx are loaded by the first request: few daemons ever send one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import obstore

from holdfast.remote.credentials import RenewedKeys

if TYPE_CHECKING:
    import httpx
    from obstore.store import S3Store

_VALID_FOR = timedelta(minutes=1)

Keys = Mapping[str, Any]
"""``access_key_id``, ``secret_access_key`` and, with some, ``session_token`` or ``token``, as obstore names them."""


class SignedRequests:
    """Requests to one store. ``keys`` returns its keys, or None if they come from where AWS's tools look by themselves."""

    def __init__(
        self,
        store: S3Store,
        keys: Callable[[], Keys | None],
        request_timeout_seconds: float,
        connect_timeout_seconds: float,
    ) -> None:
        self._store = store
        self._keys = keys
        self._request_timeout_seconds = request_timeout_seconds
        self._connect_timeout_seconds = connect_timeout_seconds

    def head(self, key: str, headers: Mapping[str, str]) -> httpx.Response:
        """Return the answer to a HEAD with more headers. Raises whatever awscrt, obstore and httpx do."""
        return self._send("HEAD", key, headers, "", None, 0)

    def put(
        self, key: str, headers: Mapping[str, str], sha256: str, size_bytes: int, buffers: Iterator[bytes]
    ) -> httpx.Response:
        """Return the answer to a PUT with more headers; of other bytes than those of ``sha256`` the store takes none.

        Raises whatever awscrt, obstore and httpx do.
        """
        return self._send("PUT", key, headers, sha256, buffers, size_bytes)

    def _send(
        self, method: Any, key: str, headers: Mapping[str, str], sha256: str, body: Iterator[bytes] | None, size_bytes: int
    ) -> httpx.Response:
        import httpx

        signed = obstore.sign(self._store, method, key, _VALID_FOR)
        _, _, region, service, _ = parse_qs(urlsplit(signed).query)["X-Amz-Credential"][0].rsplit("/", 4)
        url = httpx.URL(signed.partition("?")[0])
        all_headers = [("host", url.netloc.decode()), *headers.items()]
        sent = self._signed_headers(method, url.raw_path.decode(), all_headers, region, service, sha256)
        if body is not None:
            sent.append(("Content-Length", f"{size_bytes}"))
        timeout = httpx.Timeout(self._request_timeout_seconds, connect=self._connect_timeout_seconds)
        return httpx.request(method, url, headers=sent, content=body, timeout=timeout, verify=self._trusted)

    def _signed_headers(
        self, method: str, path: str, headers: list[tuple[str, str]], region: str, service: str, sha256: str
    ) -> list[tuple[str, str]]:
        from awscrt import auth
        from awscrt.http import HttpHeaders, HttpRequest

        request = HttpRequest(method, path, HttpHeaders(headers))
        config = auth.AwsSigningConfig(
            auth.AwsSigningAlgorithm.V4,
            credentials_provider=self._provider(),
            region=region,
            service=service,
            use_double_uri_encode=False,  # S3 alone signs paths as they are
            should_normalize_uri_path=False,
            signed_body_value=sha256 or None,
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


def keys_of(settings: Mapping[str, Any], environment: Mapping[str, str]) -> Callable[[], Keys | None]:
    """Return where a store with these settings has its keys; the settings go before the environment."""
    if "credential_provider" in settings:
        provider: Callable[[], Keys] = settings["credential_provider"]
        return provider.newest if isinstance(provider, RenewedKeys) else provider
    given = {name.lower().removeprefix("aws_"): value for name, value in (*environment.items(), *settings.items())}
    return lambda: given if {"access_key_id", "secret_access_key"} <= given.keys() else None
