"""Stores on S3, GCS, Azure and in memory, through obstore."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import obstore
from obstore.store import AzureStore, GCSStore, ObjectStore

from holdfast.digest import Checksum
from holdfast.errors import (
    ObjectChangedError,
    ObjectMissingError,
    RemoteError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote.contract import (
    Capabilities,
    DirectoryListing,
    ObjectBody,
    ObjectInfo,
    RemoteStore,
    UploadSource,
)
from holdfast.remote.credential_refusals import CredentialRefusals
from holdfast.remote.credentials import RenewedKeys
from holdfast.remote.etag_quotes import EtagQuotes
from holdfast.remote.keys import (
    PRIVATE,
    NameRules,
    checked,
    checked_prefix,
    child_below,
    is_private,
    name_below,
    storable_only,
)
from holdfast.remote.large_create import LargeCreate
from holdfast.remote.life_signs import sign_of_life
from holdfast.remote.obstore_answers import etag_of, info_of, info_with_metadata, is_of_server, of_version
from holdfast.remote.obstore_deletions import ObstoreDeletions
from holdfast.remote.obstore_errors import translated
from holdfast.remote.s3_checksums import S3Checksums
from holdfast.remote.s3_whole import WholePuts

_BUFFER_BYTES = 2**20
_SMALLEST_PART_BYTES = 16 * 2**20
_MOST_PARTS = 10_000  # S3's own limit
_PARALLEL_PARTS = 4
_PAGE = 1000


class ObstoreStore(RemoteStore):
    """A store behind obstore. The caller retries: obstore's own retries are off, so that every request is counted."""

    capabilities = Capabilities(conditional_create=True, atomic=True, metadata=True, versions=True)
    requests_in_a_call = 20  # obstore limits the time of each request, but a long listing takes many

    def __init__(
        self,
        url: str,
        store: ObjectStore,
        secrets: Iterable[str] = (),
        *,
        hyphen: str = "-",
        checksums: S3Checksums | None = None,
        whole_puts: WholePuts | None = None,
        name_rules: NameRules | None = None,
        without_bulk: Callable[[], ObjectStore] | None = None,
        renews_credentials: bool = False,
        renewed_keys: RenewedKeys | None = None,
    ) -> None:
        """``hyphen`` replaces hyphens in the names of metadata: Azure only takes names that are C# identifiers.

        ``whole_puts`` creates large objects where the server does not keep the condition of a copy.
        ``without_bulk`` makes the same store anew, so that it deletes each object by a request of its own. With
        ``renews_credentials`` others come by themselves when they have expired, from ``renewed_keys`` or from where obstore
        gets them, so it is worth while to try again.
        """
        self.url = url
        self._store = store
        self._hyphen = hyphen
        self.name_rules = name_rules or NameRules()
        self._refusals = CredentialRefusals(renewed_keys, self._takes_credentials, are_renewed=renews_credentials)
        self._whole_puts = whole_puts
        self._checksums = checksums
        self.has_checksums = checksums is not None
        self._secrets = frozenset(secrets)
        self._large_create = LargeCreate(self, None if whole_puts is None else self._put_whole)
        self._deletions = ObstoreDeletions(store, self._request, without_bulk)
        self._etags = EtagQuotes(self)
        self._is_authorized = False
        """True if, by the last answer, the bucket exists and takes our credentials."""

    def probe(self) -> None:
        with self._list_request(f"asking {self.url}"):
            self._ask()

    def _ask(self) -> None:
        """Ask for a listing that is always empty: the smallest answer."""
        obstore.list_with_delimiter(self._store, f"{PRIVATE}/probe")

    def _takes_credentials(self) -> bool:
        """Say whether the store takes our credentials for anything. Raises ``RemoteUnavailableError``."""
        try:
            with translated(f"asking {self.url}", self._secrets):
                self._ask()
        except RemoteRefusedError:
            return False
        return True

    def head(self, key: str) -> ObjectInfo:
        return self._head(self._existing(key), "")

    def checksum(self, info: ObjectInfo) -> Checksum | None:
        return self._checksums.of(info) if self._checksums is not None else None

    def list_directory(self, prefix: str) -> DirectoryListing:
        if not self.name_rules.can_exist(prefix):
            return DirectoryListing({}, frozenset(), exists=False)
        with self._list_request(f"LIST {prefix}/"):
            result = obstore.list_with_delimiter(self._store, checked_prefix(prefix) or None)
        found = {meta["path"]: info_of(meta) for meta in result["objects"]}
        marker = found.pop(prefix, None)  # "prefix/", a marker for an empty directory: obstore drops the slash
        objects = {child_below(prefix, path): info for path, info in found.items()}
        directories = {child_below(prefix, path.rstrip("/")) for path in result["common_prefixes"]}
        if not prefix:
            directories.discard(PRIVATE)
        exists = bool(objects or directories or marker or not prefix) or self._is_listed_above(prefix)
        return DirectoryListing(objects, frozenset(directories), exists)

    def _is_listed_above(self, prefix: str) -> bool:
        """Say whether a directory without objects is there: obstore leaves Azure's markers out of their own listings."""
        if not isinstance(self._store, AzureStore):
            return False
        parent = prefix.rpartition("/")[0]
        with self._list_request(f"LIST {parent}/"):
            above = obstore.list_with_delimiter(self._store, parent or None)["common_prefixes"]
        return prefix in (path.rstrip("/") for path in above)

    def list_tree(self, prefix: str) -> Iterator[ObjectInfo]:
        hidden = not is_private(prefix)
        return (info for info in self.list_all(prefix) if not (hidden and is_private(info.key)))

    def list_all(self, prefix: str) -> Iterator[ObjectInfo]:
        if not self.name_rules.can_exist(prefix):
            return
        parent, siblings = "", None
        with self._list_request(f"LIST {prefix}/**"):
            first = None
            for page in obstore.list(self._store, checked_prefix(prefix) or None, chunk_size=_PAGE):
                sign_of_life()
                if page[0]["path"] == first:
                    raise RemoteError(f"LIST {prefix}/**: the store answers with the same page again and again")
                first = page[0]["path"]
                for info in map(info_of, page):
                    if info.key == prefix:
                        continue
                    name_below(prefix, info.key)
                    if not info.size_bytes:  # maybe a marker "dir/": obstore drops its slash, but a listing tells them apart
                        directory, _, name = info.key.rpartition("/")
                        if siblings is None or directory != parent:
                            parent, siblings = directory, self.list_directory(directory).objects
                        if name not in siblings:
                            continue
                    yield info

    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        if end <= start:
            return ObjectBody(of_version(self._head(self._existing(key), etag), etag), start, iter(()))
        options: Any = {"range": (start, end), **_condition(etag)}
        with self._request(f"GET {key}"):
            result = obstore.get(self._store, self._existing(key), options=options)
            info = of_version(info_with_metadata(result, self._hyphen), etag)
        return ObjectBody(info, start, self._buffers(result, key, min(end, info.size_bytes) - start))

    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        self.checked_target(key)
        try:
            if create_only and source.data is None:
                return self._large_create.create(key, source, metadata)
            return self._put(key, source, metadata, "create" if create_only else "overwrite")
        except ObjectMissingError as problem:
            raise RemoteUnavailableError(f"{problem}: an unexpected answer to a write") from None

    def replace(self, key: str, version: str, source: UploadSource, metadata: dict[str, str]) -> ObjectInfo:
        # There is no such request in parts, nor by etag on GCS.
        if source.data is None or isinstance(self._store, GCSStore) or not is_of_server(version):
            return super().replace(key, version, source, metadata)
        try:
            return self._put_in_place(self.checked_target(key), version, source, metadata)
        except (ObjectChangedError, ObjectMissingError):  # there is another version, or none
            return self.write(key, source, metadata, create_only=True)
        except RemoteRefusedError:  # some servers know If-None-Match but not If-Match
            return super().replace(key, version, source, metadata)

    def _put_whole(self, key: str, source: UploadSource, metadata: dict[str, str]) -> ObjectInfo:
        assert self._whole_puts is not None
        with self._judged():
            return self._whole_puts.create(key, source, metadata)

    def _put_in_place(self, key: str, version: str, source: UploadSource, metadata: dict[str, str]) -> ObjectInfo:
        """Send a PUT on condition that the object is this version. Raises ``ObjectChangedError``, ``ObjectMissingError``."""
        sent = self._etags.sent(version)
        try:
            return self._put(key, source, metadata, {"e_tag": sent})
        except ObjectChangedError:
            is_told = self._etags.are_known and self._etags.sent(version) == sent  # not by another thread, since it was sent
            if is_told or self._head(key, "").etag != version:
                raise
        self._etags.find_out()
        if self._etags.sent(version) == sent:
            raise ObjectChangedError(f"PUT {key}: the object is another version by now")
        return self._put(key, source, metadata, {"e_tag": self._etags.sent(version)})

    def write_private(self, name: str, data: bytes, *, create_only: bool) -> None:
        mode = "create" if create_only else "overwrite"
        self._put(f"{PRIVATE}/{checked(name)}", UploadSource(len(data), data=data), {}, mode)

    def copy(self, source: str, target: str) -> ObjectInfo:
        self.copy_object(self._existing(source), self.checked_target(target), overwrite=True)
        return self.head(target)

    def delete(self, keys: Sequence[str]) -> None:
        self._deletions.delete(self._deletable(keys))

    def delete_at_once(self, keys: Sequence[str]) -> None:
        self._deletions.delete_at_once(self._deletable(keys))

    def _deletable(self, keys: Sequence[str]) -> list[str]:
        return [key for key in storable_only(keys) if self.name_rules.can_exist(key)]

    def prune(self, prefix: str) -> None:
        return

    @contextmanager
    def _request(self, what: str, bytes_ahead: int = 0) -> Iterator[None]:
        sign_of_life(bytes_ahead)
        with self._judged(), translated(what, self._secrets):
            yield

    @contextmanager
    def _list_request(self, what: str) -> Iterator[None]:
        with self._request(what):
            yield
        self._refusals.listed()

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """Tell refusals that pass by themselves from those that do not."""
        token = self._refusals.token
        try:
            yield
        except RemoteRefusedError as problem:
            self._is_authorized = False
            raise self._refusals.judged(problem, token) from None
        self._is_authorized = True
        self._refusals.worked(token)

    def _existing(self, key: str) -> str:
        """Return the key of an object to be read. Raises ``ObjectMissingError`` if there can be none of this name."""
        if not self.name_rules.can_exist(checked(key)):
            raise ObjectMissingError(f"{key}: the store has no such names")
        return key

    def _head(self, key: str, etag: str) -> ObjectInfo:
        """Send a HEAD. Its errors have no body to tell what is missing or why it is refused, so another request asks."""
        condition = _condition(etag)
        whole: Any = {**condition, "head": True}
        first_byte: Any = {**condition, "range": (0, 1)}
        try:
            with self._request(f"HEAD {key}"):
                result = obstore.get(self._store, key, options=whole)
        except ObjectMissingError:
            if not self._is_authorized:
                self.probe()
            raise
        except RemoteRefusedError:
            with self._request(f"HEAD {key}"):
                result = obstore.get(self._store, key, options=first_byte)
        return info_with_metadata(result, self._hyphen)

    def _put(self, key: str, source: UploadSource, metadata: dict[str, str], mode: Any) -> ObjectInfo:
        with self._request(f"PUT {key}", source.size_bytes):
            body: Any = source.body(f"PUT {key}")
            result = obstore.put(
                self._store,
                key,
                body,
                attributes={name.replace("-", self._hyphen): value for name, value in metadata.items()} or None,
                mode=mode,
                use_multipart=source.data is None,
                chunk_size=upload_part_bytes(source.size_bytes),
                max_concurrency=_PARALLEL_PARTS,
            )
        info = ObjectInfo(key, source.size_bytes, etag_of(result), 0, metadata)
        return info if info.etag else self._with_etag(info)

    def _with_etag(self, stored: ObjectInfo) -> ObjectInfo:
        """Return the info of what was stored with its etag, which Ceph's answer to the end of an upload in parts leaves out.

        It has none if there is another writer's object by now.
        """
        try:
            there = self._head(stored.key, "")
        except ObjectMissingError:
            return stored
        is_ours = (there.size_bytes, there.metadata) == (stored.size_bytes, stored.metadata)
        return replace(stored, etag=there.etag) if is_ours else stored

    def put_parts(self, key: str, source: UploadSource, metadata: dict[str, str]) -> None:
        """Upload a file in parts (``large_create.Requests``)."""
        self._put(key, source, metadata, "overwrite")

    def put_small(self, key: str, data: bytes, etag: str = "") -> str:
        """Store a small object, if ``etag`` is given only over that version; return its etag (``etag_quotes.Requests``)."""
        return self._put(key, UploadSource(len(data), data=data), {}, {"e_tag": etag} if etag else "overwrite").etag

    def copy_object(self, source: str, target: str, *, overwrite: bool) -> None:
        """Copy within the store in one step (``large_create.Requests``)."""
        with self._request(f"COPY {source} to {target}"):
            obstore.copy(self._store, source, target, overwrite=overwrite)

    def delete_staged(self, key: str) -> None:
        """Delete a staged object (``large_create.Requests``, ``etag_quotes.Requests``)."""
        self.delete([key])

    def _buffers(self, result: Any, key: str, expected_bytes: int) -> Iterator[bytes]:
        with self._request(f"GET {key}"):
            for buffer in result.stream(min_chunk_size=_BUFFER_BYTES):
                sign_of_life()
                expected_bytes -= len(buffer)
                if expected_bytes < 0:
                    raise RemoteUnavailableError(f"GET {key}: the store sends more bytes than it was asked for")
                yield buffer
        if expected_bytes:
            raise RemoteUnavailableError(f"GET {key}: the body ended {expected_bytes} bytes early")


def _condition(etag: str) -> dict[str, str]:
    """Return the condition of a read. Where the server does not know the etag, its answer tells the version."""
    return {"if_match": etag} if is_of_server(etag) else {}


def upload_part_bytes(size_bytes: int) -> int:
    """Return the size of the parts in which a file of ``size_bytes`` is sent."""
    return max(_SMALLEST_PART_BYTES, -(-size_bytes // _MOST_PARTS))
