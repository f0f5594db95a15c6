"""Checks the options of a store before any request: its library must have them, and take their values.

obstore is the authority for its own options, but its words name neither what was meant nor where to look, and one kind of
option ends it with a panic. A directory and the memory have no options at all.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from holdfast.errors import ConfigurationError, StoreOptionError

_FAMILIAR = {
    "s3": (
        "access_key_id", "secret_access_key", "session_token", "region", "endpoint", "bucket", "allow_http",
        "virtual_hosted_style_request", "skip_signature", "unsigned_payload", "imdsv1_fallback", "metadata_endpoint",
        "sse_kms_key_id", "server_side_encryption", "sse_bucket_key_enabled", "request_payer", "checksum_algorithm",
        "s3_express", "conditional_put", "copy_if_not_exists", "disable_tagging",
    ),
    "gs": ("service_account", "service_account_key", "application_credentials", "bucket", "base_url", "skip_signature"),
    "az": (
        "account_name", "account_key", "client_id", "client_secret", "tenant_id", "sas_key", "bearer_token", "endpoint",
        "container_name", "use_emulator", "use_fabric_endpoint", "use_azure_cli", "skip_signature", "msi_endpoint",
    ),
}  # fmt: skip
"""The options that are suggested in place of a misspelt one; obstore knows more."""
_OF_THE_CLIENT = dict.fromkeys(
    (
        "allow_invalid_certificates", "default_content_type", "default_headers", "http1_only", "http2_keep_alive_interval",
        "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_only", "pool_idle_timeout",
        "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "randomize_addresses", "user_agent",
    ),
    "take it out",
) | {
    "timeout": "set remote.request_timeout_seconds",
    "connect_timeout": "set remote.connect_timeout_seconds",
    "proxy_url": "set the variable HTTPS_PROXY",
}  # fmt: skip
"""obstore's options of HTTP, which are no options of a store: given as such, they end it with a panic."""
_PREFIXES = ("aws_", "azure_storage_", "azure_", "google_")
ENDPOINTS = ("endpoint", "endpoint_url", "endpoint_url_s3", "base_url")
"""The options, without prefix, with the address of a store's server."""
_NAMED = 6


def checked_options(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a store of ``kind`` (s3, gs, az) as texts, which obstore takes. Raises ``StoreOptionError``."""
    for name in options:
        if (mend := _OF_THE_CLIENT.get(plain_name(name))) is not None:
            raise StoreOptionError(name, f"{kind}:// stores have no option {name!r}; {mend}")
    return {name: _text(value) for name, value in options.items()}


def check_none(scheme: str, options: Mapping[str, Any]) -> None:
    """Raise ``StoreOptionError`` if there are options for a store that takes none."""
    for name in options:
        raise StoreOptionError(name, f"{scheme}:// stores have no options; take {name!r} out")


def check_endpoint(settings: Mapping[str, Any]) -> None:
    """Raise ``StoreOptionError`` for an endpoint to which no request can be made."""
    for name, value in settings.items():
        if value and plain_name(name) in ENDPOINTS and not _is_web_address(str(value)):
            raise StoreOptionError(
                name, f"{name}: {value!r} is no address of a server; write https://host or http://host:port"
            )


def explained(shown: str, kind: str, options: Mapping[str, Any], problem: str) -> ConfigurationError:
    """Return the error for what obstore says of a store's options; ``shown`` is the store's URL."""
    unknown = next((name for name in options if f"'{name.lower()}' is not valid" in problem.lower()), None)
    if unknown is None:
        return ConfigurationError(f"{shown}: {problem}")
    close = difflib.get_close_matches(plain_name(unknown), _FAMILIAR[kind], n=1)
    instead = f"did you mean {close[0]}?" if close else f"there are {', '.join(_FAMILIAR[kind][:_NAMED])}, and more"
    return StoreOptionError(unknown, f"{kind}:// stores have no option {unknown!r}; {instead}")


def plain_name(name: str) -> str:
    """Return the name of an option, or of a variable, without the prefixes that obstore allows."""
    plain = name.lower()
    for prefix in _PREFIXES:
        plain = plain.removeprefix(prefix)
    return plain


def _text(value: Any) -> Any:
    """Return a value of TOML as obstore takes it; a text, and what is no value of TOML, as it is."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
