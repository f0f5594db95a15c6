"""Removing credentials from everything that is shown: messages, logs, status, a store's URL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

CONTAINER_FIRST = {"abfs", "abfss"}
"""Schemes with a container where others have a user, as Hadoop does: abfss://container@account.dfs.core.windows.net/path"""

_HIDDEN = "***"
_TELLING_NAME = re.compile(
    r"secret|token|passw|credential|signature|access_?key|account_?key|(?:^|_)(?:key|sas|auth|pwd)(?:_|$)", re.I
)
_IN_QUERY = re.compile(r"(X-Amz-(?:Signature|Credential|Security-Token)|sig|se|AWSAccessKeyId|delegation)=[^&\s]+")
_SHORTEST_SECRET = 4


def public_url(url: str) -> str:
    """Return ``url`` without user, password, query and fragment."""
    scheme, user_info, rest = _parts(re.split(r"[?#]", url, maxsplit=1)[0])
    return f"{scheme}{_HIDDEN}@{rest}" if "/" in user_info else f"{scheme}{rest}"


def secrets_of(url: str, options: Mapping[str, Any]) -> frozenset[str]:
    """Return the strings that must not be shown: the password in ``url``, and values of options with telling names."""
    secrets = {str(value) for name, value in options.items() if _TELLING_NAME.search(name)}
    password = _parts(url)[1].partition(":")[2]
    return frozenset(secret for secret in {password, unquote(password), *secrets} if len(secret) >= _SHORTEST_SECRET)


def _parts(url: str) -> tuple[str, str, str]:
    """Return scheme, user with password, and the rest. A password may have an unescaped slash, which ends the authority."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if "@" in authority and not (scheme in CONTAINER_FIRST and ":" not in authority):
        user_info, _, host = authority.rpartition("@")
        return scheme + separator, user_info, f"{host}{slash}{path}"
    if ":" in authority and "@" in path:
        user_info, _, remainder = rest.rpartition("@")
        return scheme + separator, user_info, remainder
    return scheme + separator, "", rest


def masked(text: str, secrets: Iterable[str] = ()) -> str:
    """Return ``text`` without ``secrets`` and without the parameters that sign a URL."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _IN_QUERY.sub(rf"\1={_HIDDEN}", text)
