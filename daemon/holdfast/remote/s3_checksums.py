"""S3's own checksums of objects (``x-amz-checksum-…``), which obstore neither asks for nor passes on.

They come with a HEAD that has one more header, and the signature must cover it (``s3_signed``). Whatever goes wrong, the
answer is that there is no checksum.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Iterable, Mapping

from holdfast.digest import CHECKSUM_ALGORITHMS, Checksum
from holdfast.remote.contract import ObjectInfo
from holdfast.remote.obstore_errors import brief, is_panic
from holdfast.remote.s3_signed import SignedRequests

_log = logging.getLogger("holdfast.remote")
_PREFIX = "x-amz-checksum-"
_ASKED = {"x-amz-checksum-mode": "ENABLED"}


class S3Checksums:
    """Asks one store."""

    def __init__(self, requests: SignedRequests, secrets: Iterable[str]) -> None:
        self._requests = requests
        self._secrets = frozenset(secrets)

    def of(self, info: ObjectInfo) -> Checksum | None:
        """Return the checksum of all bytes of the version ``info``; None if the store has none, or does not tell."""
        try:
            answer = self._requests.head(info.key, _ASKED)
        except BaseException as problem:
            if not isinstance(problem, Exception) and not is_panic(problem):
                raise
            _log.info("no checksum of %r: %s", info.key, brief(problem, self._secrets))
            return None
        is_version = answer.headers.get("etag") == info.etag and answer.headers.get("content-length") == str(info.size_bytes)
        return checksum_in(answer.headers) if answer.status_code == 200 and is_version else None


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
