"""Checks that a store could be opened, and makes nothing: neither directories nor objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.remote.contract import RemoteStore
from holdfast.remote.file_store import FileStore
from holdfast.remote.store_options import check_none
from holdfast.remote.urls import directory_of, open_store, scheme_of


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
