"""Kerberos for WebHDFS: SPNEGO (RFC 4559), which a namenode asks for now and then; its cookie stands for it in between.

The tickets come from where Kerberos' own library looks: ``KRB5CCNAME``, or the keytab that ``KRB5_CLIENT_KTNAME`` names.
"""

from __future__ import annotations

import base64
from collections.abc import Generator
from http import HTTPStatus
from typing import Any

import httpx

from holdfast.errors import HoldfastError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote.hdfs_namenodes import NoPrincipalError
from holdfast.system.text import printable

_FIRST_CODE = -1765328384 % 2**32
"""The first of Kerberos' own codes (``ERROR_TABLE_BASE_krb5``), as an unsigned number like all of GSSAPI's."""
_NO_SUCH_SERVICE = 7
"""KDC_ERR_S_PRINCIPAL_UNKNOWN: the other namenode may have a principal."""
_FINAL = {
    "KDC_ERR_C_PRINCIPAL_UNKNOWN": 6,
    "KDC_ERR_CLIENT_REVOKED": 18,
    "KDC_ERR_KEY_EXPIRED": 23,
    "KDC_ERR_PREAUTH_FAILED": 24,
    "KRB_AP_ERR_BAD_INTEGRITY": 31,
    "KT_NOTFOUND": 181,
}
"""A wrong user or a wrong key, by their place among the codes. To ask again helps nobody, and a KDC may lock the account."""


class Negotiate(httpx.Auth):
    """Answers the challenge of a server."""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        import gssapi  # few stores need it, and so the package does not

        response = yield request
        if (
            response.status_code == HTTPStatus.UNAUTHORIZED
            and "negotiate" in response.headers.get("www-authenticate", "").lower()
        ):
            service = f"HTTP@{request.url.host}"
            try:
                name = gssapi.Name(service, gssapi.NameType.hostbased_service)
                token = gssapi.SecurityContext(name=name, usage="initiate").step()
            except gssapi.exceptions.GSSError as problem:
                raise _refusal(service, problem) from None
            request.headers["Authorization"] = f"Negotiate {base64.b64encode(token or b'').decode()}"
            yield request


def _refusal(service: str, problem: Any) -> HoldfastError:
    """Return the error for a ticket that could not be had. Most reasons pass: a ticket is renewed, a KDC comes back."""
    said = problem.get_all_statuses(problem.min_code, False) or problem.get_all_statuses(problem.maj_code, True)
    text = printable(f"Kerberos gives no ticket for {service}: {'; '.join(said)}")
    if problem.min_code - _FIRST_CODE == _NO_SUCH_SERVICE:
        return NoPrincipalError(text)
    is_final = problem.min_code - _FIRST_CODE in _FINAL.values()
    return RemoteRefusedError(text) if is_final else RemoteUnavailableError(text)
