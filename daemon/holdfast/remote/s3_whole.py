"""Creating an object from a large file by one conditional PUT.

This is for S3 servers that don't mind the condition of a copy (``large_create``), as the radosgw of Ceph 16: of two nodes
that create one name, both would succeed. obstore would read the file into memory for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from holdfast.errors import ObjectChangedError, ObjectExistsError, RemoteUnavailableError
from holdfast.remote.contract import ObjectInfo, UploadSource
from holdfast.remote.obstore_errors import answered, brief, is_panic
from holdfast.remote.s3_signed import SignedRequests
from holdfast.system.text import printable


class WholePuts:
    """Conditional PUTs of files to one store."""

    def __init__(self, requests: SignedRequests, secrets: Iterable[str]) -> None:
        self._requests = requests
        self._secrets = frozenset(secrets)

    def create(self, key: str, source: UploadSource, metadata: Mapping[str, str]) -> ObjectInfo:
        """Create ``key``. Raises the errors of ``RemoteStore.write``.

        The file is read twice: what has changed since it was read first, and since its digest was made, is not stored.
        """
        what = f"PUT {printable(key)}"
        sha256 = hashlib.sha256()
        for buffer in source.buffers(what):
            sha256.update(buffer)
        if not source.is_unchanged():
            raise ObjectChangedError(f"{what}: the file was written to while it was sent")
        headers = {"If-None-Match": "*", **{f"x-amz-meta-{name}": value for name, value in metadata.items()}}
        try:
            body = source.buffers(what)
            answer = self._requests.put(key, headers, sha256.hexdigest(), source.size_bytes, body)
        except (ObjectChangedError, RemoteUnavailableError):
            raise
        except BaseException as problem:
            if not isinstance(problem, Exception) and not is_panic(problem):
                raise
            raise RemoteUnavailableError(f"{what}: {brief(problem, self._secrets)}") from None
        if answer.status_code == HTTPStatus.PRECONDITION_FAILED:
            raise ObjectExistsError(f"{what}: the object exists already")
        if not answer.is_success:  # a redirection is not followed: nothing was stored
            raise answered(what, answer.status_code, answer.text, self._secrets)
        return ObjectInfo(key, source.size_bytes, answer.headers.get("etag", ""), 0, dict(metadata))
