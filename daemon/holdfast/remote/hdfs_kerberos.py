"""Kerberos for WebHDFS: SPNEGO (RFC 4559), which a namenode asks for now and then; its cookie stands for it in between.

The tickets come from where Kerberos' own library looks: ``KRB5CCNAME``, or the keytab that ``KRB5_CLIENT_KTNAME`` names.
"""

from __future__ import annotations

import base64
from collections.abc import Generator
from http import HTTPStatus

import httpx

from holdfast.errors import RemoteUnavailableError


class Negotiate(httpx.Auth):
    """Answers the challenge of a server."""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        import gssapi  # few stores need it, and so the package does not

        response = yield request
        if (
            response.status_code == HTTPStatus.UNAUTHORIZED
            and "negotiate" in response.headers.get("www-authenticate", "").lower()
        ):
            name = gssapi.Name(f"HTTP@{request.url.host}", gssapi.NameType.hostbased_service)
            try:
                token = gssapi.SecurityContext(name=name, usage="initiate").step()
            except gssapi.exceptions.GSSError as problem:  # a ticket may be renewed meanwhile
                raise RemoteUnavailableError(f"Kerberos gives no ticket for HTTP@{request.url.host}: {problem}") from None
            request.headers["Authorization"] = f"Negotiate {base64.b64encode(token or b'').decode()}"
            yield request
