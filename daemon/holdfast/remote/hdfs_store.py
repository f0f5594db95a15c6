"""A directory of an HDFS as a store (``hdfs://``, ``webhdfs://``, ``swebhdfs://``), through WebHDFS.

An object is stored below ``.holdfast/`` and renamed to its name, which HDFS does in one step: over the object that is there,
or only if there is none. The metadata is an extended attribute, and moves with it. HDFS gives each file a number of its own,
which is never used again: an object is read and deleted by that, so that it is the version which was asked for, or none.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import msgspec

from holdfast.errors import (
    ConfigurationError,
    HoldfastError,
    NameNotStorableError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteRefusedError,
    RemoteUnavailableError,
    StoreOptionError,
)
from holdfast.remote.contract import (
    Capabilities,
    DirectoryListing,
    ObjectBody,
    ObjectInfo,
    RemoteStore,
    UploadSource,
    storable_size_bytes,
    storable_time_ns,
)
from holdfast.remote.hdfs_client import DeniedError, HdfsClient, HdfsIOError, NotDirectoryError
from holdfast.remote.hdfs_namenodes import Namenodes
from holdfast.remote.hdfs_options import hdfs_access
from holdfast.remote.keys import (
    PRIVATE,
    NameRules,
    checked,
    checked_prefix,
    is_private,
    is_storable,
    key_below,
    staged_key,
    storable_only,
)
from holdfast.remote.many_deletions import delete_each
from holdfast.remote.redaction import public_url, secrets_of

_RULES = NameRules(longest_part_bytes=255, refused=re.compile("[:\ufffe\uffff]|(?:^|/)\\.snapshot(?:/|$)"))
"""Hadoop's DFSUtil.isValidName, and dfs.namenode.fs-limits.max-component-length."""
_ATTRIBUTE = "user.holdfast.metadata"
_ATTEMPTS = 3
_DELETIONS_AT_ONCE = 8
"""HDFS deletes one file with each request."""
_LARGEST = 2**63 - 1


class _Status(msgspec.Struct, rename="camel"):
    type: str
    length: int
    modification_time: int
    file_id: int = 0
    path_suffix: str = ""

    @property
    def etag(self) -> str:
        return f"{self.file_id:x}-{self.modification_time:x}-{self.length:x}"

    @property
    def path(self) -> str:
        """The path of the file by its number, wherever it is by now."""
        if not self.file_id:
            raise RemoteRefusedError("the server gives no numbers of files: it is a gateway (HttpFS), and no namenode")
        return f"/.reserved/.inodes/{self.file_id}"

    @property
    def modified_ns(self) -> int:
        return storable_time_ns(self.modification_time * 10**6)

    def info(self, key: str, metadata: dict[str, str] | None = None) -> ObjectInfo:
        return ObjectInfo(key, storable_size_bytes(self.length, key), self.etag, self.modified_ns, metadata or {})


class _OneStatus(msgspec.Struct, rename="pascal"):
    file_status: _Status


class _Statuses(msgspec.Struct, rename="pascal"):
    file_status: list[_Status]


class _Listing(msgspec.Struct, rename="pascal"):
    file_statuses: _Statuses


class _Attribute(msgspec.Struct):
    name: str
    value: str = ""


class _Attributes(msgspec.Struct, rename="pascal"):
    x_attrs: list[_Attribute]


class _Boolean(msgspec.Struct):
    boolean: bool


class HdfsStore(RemoteStore):
    """A directory of an HDFS."""

    capabilities = Capabilities(conditional_create=True, atomic=True, metadata=True, versions=True, cheap_head=True)
    parallel_reads = 4
    longest_read_bytes = 64 * 2**20  # to look a file up and open it costs the servers as much as to send several MiB
    name_rules = _RULES

    def __init__(self, shown_url: str, client: HdfsClient, directory: str) -> None:
        self.url = shown_url
        self._client = client
        self._directory = directory.rstrip("/")

    def probe(self) -> None:
        self._make_directory(f"asking {self.url}", PRIVATE)

    def look(self) -> None:
        with suppress(ObjectMissingError):
            self._status(f"asking {self.url}", "")

    def head(self, key: str) -> ObjectInfo:
        what = f"stat {key}"
        for _ in range(_ATTEMPTS):
            status = self._object(what, checked(key))
            with suppress(ObjectMissingError):  # this version, but there may be the next one
                return status.info(key, self._metadata(what, status))
        raise RemoteUnavailableError(f"{what}: the object is replaced again and again", of_store=False)

    def list_directory(self, prefix: str) -> DirectoryListing:
        what = f"list {prefix}/"
        path = self._path(checked_prefix(prefix))
        try:
            listed = self._client.ask(what, "GET", path, "LISTSTATUS", _Listing)
        except (ObjectMissingError, NotDirectoryError):
            return DirectoryListing({}, frozenset(), exists=not prefix)
        except DeniedError:
            if self._is_below_file(path):
                return DirectoryListing({}, frozenset(), exists=False)
            raise
        found = listed.file_statuses.file_status
        if any(not each.path_suffix for each in found):
            return DirectoryListing({}, frozenset(), exists=False)  # it is an object
        objects: dict[str, ObjectInfo] = {}
        changed_ns: dict[str, int] = {}
        for each in found:
            key = key_below(prefix, each.path_suffix)
            if not is_storable(each.path_suffix) or key == PRIVATE:
                continue
            if each.type == "FILE":
                objects[each.path_suffix] = each.info(key)
            elif each.type == "DIRECTORY":
                changed_ns[each.path_suffix] = each.modified_ns
        return DirectoryListing(objects, frozenset(changed_ns), exists=True, changed_ns=changed_ns)

    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        what = f"read {key}"
        seen: set[str] = set()
        for _ in range(_ATTEMPTS):
            status = self._object(what, checked(key))
            seen.add(status.etag)
            if etag and status.etag != etag:
                raise ObjectChangedError(f"{what}: the object is another version by now")
            if end > start >= status.length:
                raise ObjectChangedError(f"{what}: the object is shorter than it was")
            size_bytes = min(end, status.length) - start
            with suppress(ObjectMissingError):  # as above
                info = status.info(key, self._metadata(what, status))
                sent = self._client.read(what, status.path, start, start + size_bytes) if size_bytes > 0 else iter(())
                return ObjectBody(info, start, self._checked(what, status, sent))
        if len(seen) == 1:  # a datanode asks a namenode of its own choice, as an observer
            told = f"{what}: the namenode has the object, and the datanode does not find it yet"
            raise RemoteUnavailableError(told, of_store=False)
        raise ObjectChangedError(f"{what}: the object is replaced again and again")

    def _checked(self, what: str, status: _Status, sent: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the bytes that are sent of a file. Raises ``ObjectChangedError`` if somebody wrote to it meanwhile.

        We never do. A file that is gone by now was replaced as a whole.
        """
        yield from sent
        with suppress(ObjectMissingError):
            if self._status_at(what, status.path).etag != status.etag:
                raise ObjectChangedError(f"{what}: the object is another version by now")

    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        return self._store(self.checked_target(key), source, metadata, overwrite=not create_only)

    def replace(self, key: str, version: str, source: UploadSource, metadata: dict[str, str]) -> ObjectInfo:
        """Delete the version by its number, and create. Of all who do so, one succeeds; a reader may find none meanwhile."""
        return self._store(self.checked_target(key), source, metadata, overwrite=False, replaced=version)

    def write_private(self, name: str, data: bytes, *, create_only: bool) -> None:
        self._store(f"{PRIVATE}/{checked(name)}", UploadSource(len(data), data=data), {}, overwrite=not create_only)

    def copy(self, source: str, target: str) -> ObjectInfo:
        body = self.read(source, 0, _LARGEST, "")
        copied = UploadSource(body.info.size_bytes)
        return self._store(self.checked_target(target), copied, body.info.metadata, overwrite=True, buffers=body.buffers)

    def delete(self, keys: Sequence[str]) -> None:
        delete_each(storable_only(keys), self._delete, _DELETIONS_AT_ONCE)

    def prune(self, prefix: str) -> None:
        if not prefix or is_private(prefix):
            return
        what = f"removing the directory {prefix}"
        with suppress(ObjectMissingError, ObjectExistsError):  # there is something in it
            status = self._status(what, checked(prefix))
            if status.type == "DIRECTORY":
                self._remove(what, status)

    def _delete(self, key: str) -> None:
        with suppress(ObjectMissingError):
            self._remove(f"delete {key}", self._object(f"delete {key}", key))

    def _store(
        self,
        key: str,
        source: UploadSource,
        metadata: dict[str, str],
        *,
        overwrite: bool,
        replaced: str = "",
        buffers: Iterable[bytes] | None = None,
    ) -> ObjectInfo:
        """Store an object, in place of the version ``replaced`` if that is there. ``buffers`` replace ``source``."""
        what = f"write {key}"
        staged = self._path(staged_key())
        try:
            self._client.create(what, staged, source.buffers(what) if buffers is None else buffers, source.size_bytes)
            if metadata:
                value = f"0x{msgspec.json.encode(metadata).hex()}"
                attribute = {"xattr.name": _ATTRIBUTE, "xattr.value": value, "flag": "CREATE"}
                self._client.ask(what, "PUT", staged, "SETXATTR", None, **attribute)
            status = self._status_at(what, staged)
            if status.length != source.size_bytes:
                raise RemoteUnavailableError(f"{what}: {status.length} bytes were stored in place of {source.size_bytes}")
            if not source.is_unchanged():  # its digest is of other bytes, and nobody could tell later which are right
                raise ObjectChangedError(f"{what}: the file was written to while it was sent")
            if replaced:
                self._remove_version(what, key, replaced)
            self._rename(what, staged, key, overwrite=overwrite)
        except BaseException as problem:
            if not (isinstance(problem, HoldfastError) and problem.transient):
                with suppress(HoldfastError):
                    self._client.ask(what, "DELETE", staged, "DELETE", _Boolean)
            raise
        return status.info(key, metadata)

    def _rename(self, what: str, staged: str, key: str, *, overwrite: bool) -> None:
        """Give the staged object its name. Raises ``NameNotStorableError`` if a directory has it."""
        target = {"destination": self._path(key), "renameoptions": "OVERWRITE" if overwrite else "NONE"}
        for _ in range(_ATTEMPTS):
            try:
                self._client.ask(what, "PUT", staged, "RENAME", None, **target)
            except ObjectMissingError:  # the directory above; another node may remove it again
                self._make_directory(what, key.rpartition("/")[0])
            except (ObjectExistsError, HdfsIOError):
                if self._is_directory(what, key):
                    raise NameNotStorableError(f"{what}: a directory has this name") from None
                raise
            else:
                return
        raise RemoteUnavailableError(f"{what}: the directory above, or what was staged, was removed meanwhile")

    def _make_directory(self, what: str, key: str) -> None:
        try:
            self._client.ask(what, "PUT", self._path(key), "MKDIRS", _Boolean)
        except ObjectExistsError:
            raise NotDirectoryError(f"{what}: there is an object among the directories above") from None

    def _remove_version(self, what: str, key: str, etag: str) -> None:
        with suppress(ObjectMissingError):
            status = self._object(what, key)
            if status.etag == etag:
                self._remove(what, status)

    def _remove(self, what: str, status: _Status) -> None:
        """Delete a file or an empty directory. Raises ``ObjectMissingError``; ``ObjectExistsError`` if it is not empty."""
        self._client.ask(what, "DELETE", status.path, "DELETE", _Boolean, recursive="false")

    def _path(self, key: str) -> str:
        return f"{self._directory}/{key}".rstrip("/") or "/"

    def _object(self, what: str, key: str) -> _Status:
        """Return the status of an object. Raises ``ObjectMissingError``, also for a directory."""
        status = self._status(what, key)
        if status.type != "FILE":
            raise ObjectMissingError(f"{what}: no such object")
        return status

    def _is_directory(self, what: str, key: str) -> bool:
        with suppress(ObjectMissingError):
            return self._status(what, key).type == "DIRECTORY"
        return False

    def _status(self, what: str, key: str) -> _Status:
        path = self._path(key)
        try:
            return self._status_at(what, path)
        except NotDirectoryError:
            raise ObjectMissingError(f"{what}: no such object") from None
        except DeniedError:
            if self._is_below_file(path):
                raise ObjectMissingError(f"{what}: no such object") from None
        return self._status_at(what, path)  # a file above may have gone just now, and been the reason

    def _status_at(self, what: str, path: str) -> _Status:
        return self._client.ask(what, "GET", path, "GETFILESTATUS", _OneStatus).file_status

    def _is_below_file(self, path: str) -> bool:
        """Say whether there is a file among the directories above: HDFS may say of all below that access is denied."""
        while path := path.rpartition("/")[0]:
            with suppress(DeniedError, ObjectMissingError, NotDirectoryError):
                return self._status_at(f"stat {path}", path).type == "FILE"
        return False

    def _metadata(self, what: str, status: _Status) -> dict[str, str]:
        found = self._client.ask(what, "GET", status.path, "GETXATTRS", _Attributes, encoding="hex").x_attrs
        for each in found:
            if each.name == _ATTRIBUTE:
                with suppress(ValueError, msgspec.DecodeError):  # somebody else's
                    return msgspec.json.decode(bytes.fromhex(each.value.removeprefix("0x")), type=dict[str, str])
        return {}


def open_hdfs(
    url: str,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    request_timeout_seconds: float,
    connect_timeout_seconds: float,
) -> HdfsStore:
    """Return the store at ``url``, before any request to it. Raises ``ConfigurationError``."""
    access = hdfs_access(url, options, environment)
    if access.kerberos and not (access.token or access.token_file) and find_spec("gssapi") is None:
        raise ConfigurationError(
            f"{public_url(url)}: Kerberos needs the package gssapi beside Holdfast (pip install gssapi)"
        )
    try:
        if access.ca_file:
            ssl.create_default_context(cafile=access.ca_file)
    except OSError as problem:
        raise StoreOptionError("ca_file", f"ca_file: {access.ca_file}: {problem}") from None
    client = HdfsClient(Namenodes(access, secrets_of(url, options), request_timeout_seconds, connect_timeout_seconds))
    return HdfsStore(public_url(url), client, access.directory)
