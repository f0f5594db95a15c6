"""Stores of all other schemes, through fsspec (sftp, ftp, smb, …), with what each of them can promise.

fsspec has no conditional create and no object metadata. A write-once name is checked and then renamed to, which two nodes
can both do at the same moment; and only the node that wrote or fetched an object knows its digest.
``docs/configuration.md`` says so to users. The fsspec file system is made, and may connect, with the first request.

Only those methods of fsspec are used that report errors: ``exists``, ``isdir`` and ``find`` take a store that does not
answer for an empty one.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import fsspec

from holdfast.errors import (
    ConfigurationError,
    HoldfastError,
    NameNotStorableError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
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
from holdfast.remote.fsspec_ftp import FtpFiles
from holdfast.remote.fsspec_root import DIRECTORY, FILE, FsspecConnections, FsspecRoot, info_of, modified_ns
from holdfast.remote.keys import (
    PRIVATE,
    UNSTORABLE_NAME,
    NameRules,
    checked,
    checked_prefix,
    child_below,
    is_private,
    is_storable,
    is_too_long,
    storable_only,
)
from holdfast.remote.life_signs import sign_of_life
from holdfast.remote.many_deletions import delete_each
from holdfast.remote.redaction import masked, public_url, secrets_of
from holdfast.system.text import printable

_BUFFER_BYTES = 8 * 2**20  # each is opened and read separately
_SSH = ("sftp://", "ssh://")
_LONGEST_PART_BYTES = 255  # NAME_MAX of Linux
_RULES = {
    **dict.fromkeys(("file", "ftp", "sftp", "ssh"), NameRules(longest_part_bytes=_LONGEST_PART_BYTES)),
    "smb": NameRules(longest_part_bytes=_LONGEST_PART_BYTES, refused=re.compile(r'[<>:"|?*\\]|[. ](?=/|$)')),
}
"""The rules for names, by fsspec's scheme; those of SMB are Microsoft's "Naming Files, Paths, and Namespaces"."""
_REFUSED_LOGIN = re.compile("^(?:AuthenticationException|BadAuthenticationType|BadHostKey)|not found in known_hosts")
"""Classes and words of paramiko's errors that another try does not mend. An error of a file is of the one with the key."""
_REFUSED_NAME = re.compile(r"^(?:Invalid file name|Bad message$)", re.I)
"""Answers of OpenSSH's sftp for EINVAL and ENAMETOOLONG, for a name that it can't hold."""


class FsspecStore(RemoteStore):
    """A directory of an fsspec file system."""

    capabilities = Capabilities(conditional_create=False, atomic=False, metadata=False, versions=False)

    def __init__(self, url: str, options: Mapping[str, Any], *, request_seconds: float, connect_seconds: float) -> None:
        self.url = public_url(url)
        self._given = (url, dict(options))
        self._request_seconds = request_seconds
        self._connect_seconds = connect_seconds
        self._secrets = secrets_of(url, options)
        scheme = url.partition("://")[0]
        self._connections = FsspecConnections(scheme, self._connect, request_seconds)
        self.name_rules = _RULES.get(scheme, NameRules())
        try:
            fsspec.get_filesystem_class(scheme)
        except ImportError as problem:
            raise ConfigurationError(f"{self.url}: {masked(str(problem), self._secrets)}") from None
        except ValueError:
            raise ConfigurationError(
                f"{self.url}: no such kind of store is known; write file:///path, s3://bucket/prefix, gs://…, az://…, or a "
                "scheme of fsspec's, as sftp://"
            ) from None

    def probe(self) -> None:
        with self._request(f"asking {self.url}") as root:
            root.make_directory(PRIVATE)

    def look(self) -> None:
        with self._request(f"asking {self.url}") as root:
            root.type_of(PRIVATE)

    def head(self, key: str) -> ObjectInfo:
        with self._request(f"stat {key}") as root:
            detail = root.files.info(root.path(checked(key)))
        if detail["type"] != FILE:
            raise ObjectMissingError(f"stat {key}: no such object")
        return info_of(key, detail)

    def list_directory(self, prefix: str) -> DirectoryListing:
        objects: dict[str, ObjectInfo] = {}
        directories: dict[str, int] = {}
        try:
            with self._request(f"list {prefix}/") as root:
                for detail in root.entries(checked_prefix(prefix)):
                    key = detail["name"][len(root.directory) :].strip("/")
                    if key == prefix:
                        if detail["type"] == FILE:
                            return DirectoryListing({}, frozenset(), exists=False)
                        continue
                    is_key = is_storable(key.rpartition("/")[2]) and not is_too_long(key)
                    name = child_below(prefix, key) if is_key else ""
                    if name and detail["type"] == FILE:
                        objects[name] = info_of(key, detail)
                    elif name and detail["type"] == DIRECTORY and key != PRIVATE:
                        directories[name] = modified_ns(detail)
        except ObjectMissingError:
            return DirectoryListing({}, frozenset(), exists=not prefix)
        changed_ns = {name: time_ns for name, time_ns in directories.items() if time_ns}
        return DirectoryListing(objects, frozenset(directories), exists=True, changed_ns=changed_ns)

    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        info = self.head(key)
        if etag and info.etag != etag:
            raise ObjectChangedError(f"read {key}: the object is another version by now")
        if end > start >= info.size_bytes:
            raise ObjectChangedError(f"read {key}: the object is shorter than it was")
        return ObjectBody(info, start, self._buffers(info, start, min(end, info.size_bytes)))

    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        return self._write(self.checked_target(key), source, create_only=create_only)

    def write_private(self, name: str, data: bytes, *, create_only: bool) -> None:
        self._write(f"{PRIVATE}/{checked(name)}", UploadSource(len(data), data=data), create_only=create_only)

    def _write(self, key: str, source: UploadSource, *, create_only: bool) -> ObjectInfo:
        what = f"write {key}"
        try:
            with self._request(what) as root:
                root.put(key, what, partial(root.stage, source), create_only=create_only)
            return self.head(key)
        except ObjectMissingError as problem:
            raise RemoteUnavailableError(f"{what}: removed meanwhile: {problem}") from None

    def copy(self, source: str, target: str) -> ObjectInfo:
        what = f"copy {checked(source)} to {self.checked_target(target)}"
        size_bytes = self.head(source).size_bytes
        with self._request(what) as root:
            root.put(target, what, partial(root.stage_copy, root.path(source), size_bytes), create_only=False)
        return self.head(target)

    def delete(self, keys: Sequence[str]) -> None:
        delete_each(storable_only(keys), self._delete)

    def _delete(self, key: str) -> None:
        with suppress(ObjectMissingError, NameNotStorableError), self._request(f"delete {key}") as root:
            if root.type_of(key) == FILE:
                root.files.rm_file(root.path(key))

    def prune(self, prefix: str) -> None:
        if not prefix or is_private(prefix):
            return
        with suppress(ObjectMissingError, NameNotStorableError), self._request(f"removing the directory {prefix}") as root:
            path = root.path(checked(prefix))
            try:
                if root.type_of(prefix) == DIRECTORY and not root.files.ls(path, detail=False):
                    root.remove_directory(path)
            except OSError as problem:
                if problem.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise

    def _buffers(self, info: ObjectInfo, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes, each buffer once it is sure to be what was asked for: some libraries return error texts."""
        what = f"read {info.key}"
        while start < end:
            expected_bytes = min(_BUFFER_BYTES, end - start)
            with self._request(what) as root:
                data = root.read(info.key, start, start + expected_bytes)
            if self.head(info.key).etag != info.etag:
                raise ObjectChangedError(f"{what}: the object is another version by now")
            if len(data) != expected_bytes:
                raise RemoteUnavailableError(f"{what}: {len(data)} bytes came in place of {expected_bytes}", of_store=False)
            start += len(data)
            yield data

    @contextmanager
    def _request(self, what: str) -> Iterator[FsspecRoot]:
        """Yield the file system, with its own cache of listings dropped, and translate what it raises."""
        sign_of_life()
        try:
            with self._connections.one() as root:
                root.files.invalidate_cache()
                yield root
        except HoldfastError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectMissingError(f"{printable(what)}: no such object") from None
        except Exception as problem:  # noqa: BLE001 the libraries behind fsspec raise what they like
            text = masked(f"{printable(what)}: {str(problem) or type(problem).__name__}", self._secrets)
            if isinstance(problem, FileExistsError):
                raise ObjectExistsError(f"{printable(what)}: the object exists already") from None
            if isinstance(problem, PermissionError):
                raise RemoteRefusedError(
                    f"{printable(what)}: the store refuses: {masked(str(problem), self._secrets)}", of_store=False
                ) from None
            if isinstance(problem, OSError) and problem.errno in UNSTORABLE_NAME:
                raise NameNotStorableError(text, UNSTORABLE_NAME[problem.errno]) from None
            if _REFUSED_NAME.search(str(problem)):
                raise NameNotStorableError(text, errno.EINVAL) from None
            raise RemoteUnavailableError(text, of_store=False) from None  # the name may be what the library can't handle

    def _connect(self) -> FsspecRoot:
        url, options = self._given
        if url.startswith(_SSH):  # paramiko itself waits for ever
            options = {**dict.fromkeys(("timeout", "banner_timeout", "auth_timeout"), self._connect_seconds), **options}
        try:
            files, directory = _opened(url, options)
        except (TypeError, ValueError) as problem:
            text = masked(str(problem), self._secrets)
            raise RemoteRefusedError(f"{self.url}: the options can't be: {text}") from None
        except HoldfastError:
            raise
        except Exception as problem:  # noqa: BLE001 the libraries behind fsspec raise what they like
            text = f"{self.url}: no connection: {masked(str(problem) or type(problem).__name__, self._secrets)}"
            if getattr(problem, "filename", None) or _REFUSED_LOGIN.search(f"{type(problem).__name__} {problem}"):
                raise RemoteRefusedError(text) from None
            raise RemoteUnavailableError(text) from None
        if url.startswith(_SSH):
            files.ftp.get_channel().settimeout(self._request_seconds)
        return FsspecRoot(files, directory.rstrip("/"))


def _opened(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return a new file system, and the directory of ``url`` in it. Jobs in this process keep fsspec's own for FTP."""
    if url.startswith("ftp://"):
        return FtpFiles.of_url(url, options)
    files, directory = fsspec.core.url_to_fs(url, skip_instance_cache=True, **options)
    return files, directory
