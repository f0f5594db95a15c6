"""Any other scheme through fsspec (hdfs, webhdfs, sftp, smb, …), with what each of them can promise.

fsspec has no conditional creation and no object metadata: a write-once name is checked, then renamed to, which two nodes
can both do at the same moment; and digests are known only to the node that wrote or fetched. ``docs/configuration.md``
says so to users. The file system behind it is made, and may connect, when it is first asked.

Only those of fsspec's methods are used that tell what went wrong: ``exists``, ``isdir`` and ``find`` take a store that does
not answer for one that has nothing.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
    DirectoryInfo,
    DirectoryListing,
    ObjectBody,
    ObjectInfo,
    RemoteStore,
    UploadSource,
    delete_each,
)
from holdfast.remote.fsspec_root import DIRECTORY, FILE, FsspecRoot, info_of, modified_ns
from holdfast.remote.keys import (
    PRIVATE,
    checked,
    checked_prefix,
    checked_target,
    is_private,
    is_storable,
    staged_key,
    storable_only,
)
from holdfast.remote.obstore_errors import printable
from holdfast.remote.redaction import masked, public_url, secrets_of
from holdfast.remote.tree_walk import everything_below, objects_below

_BUFFER_BYTES = 8 * 2**20  # each is an open of its own
_NAME_CAN_NOT_BE = {errno.ENAMETOOLONG, errno.EILSEQ, errno.ENOTDIR, errno.EISDIR}


class FsspecStore(RemoteStore):
    """A directory of an fsspec file system."""

    capabilities = Capabilities(conditional_create=False, atomic=False, metadata=False, versions=False)

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.url = public_url(url)
        self._given = (url, dict(options))
        self._secrets = secrets_of(url, options)
        self._opening = threading.Lock()
        self._place: FsspecRoot | None = None
        try:
            fsspec.get_filesystem_class(url.partition("://")[0])
        except ImportError as problem:
            raise ConfigurationError(f"{self.url}: {masked(str(problem), self._secrets)}") from None
        except ValueError:
            raise ConfigurationError(
                f"{self.url}: no such kind of store is known; write file:///path, s3://bucket/prefix, gs://…, az://…, or a "
                "scheme of fsspec's, as hdfs:// and sftp://"
            ) from None

    def probe(self) -> None:
        with self._asking(f"asking {self.url}") as place:
            place.files.makedirs(place.path(PRIVATE), exist_ok=True)

    def head(self, key: str) -> ObjectInfo:
        with self._asking(f"stat {key}") as place:
            detail = place.files.info(place.path(checked(key)))
        if detail["type"] != FILE:
            raise ObjectMissingError(f"stat {key}: no such object")
        return info_of(key, detail)

    def list_directory(self, prefix: str) -> DirectoryListing:
        objects: dict[str, ObjectInfo] = {}
        directories: dict[str, int] = {}
        try:
            with self._asking(f"list {prefix}/") as place:
                details = place.files.ls(place.path(checked_prefix(prefix)), detail=True)
        except ObjectMissingError:
            return DirectoryListing({}, frozenset(), exists=not prefix)
        for detail in details:
            key = detail["name"][len(place.root) :].strip("/")
            name = key.rpartition("/")[2]
            if key == prefix:
                if detail["type"] == FILE:
                    return DirectoryListing({}, frozenset(), exists=False)
            elif is_storable(name) and detail["type"] == FILE:
                objects[name] = info_of(key, detail)
            elif is_storable(name) and detail["type"] == DIRECTORY and key != PRIVATE:
                directories[name] = modified_ns(detail)
        changed_ns = {name: time_ns for name, time_ns in directories.items() if time_ns}
        return DirectoryListing(objects, frozenset(directories), exists=True, changed_ns=changed_ns)

    def list_tree(self, prefix: str) -> Iterator[ObjectInfo]:
        return objects_below(self.list_directory, prefix)

    def survey(self, prefix: str) -> Iterator[ObjectInfo | DirectoryInfo]:
        return everything_below(self.list_directory, prefix)

    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        info = self.head(key)
        if etag and info.etag != etag:
            raise ObjectChangedError(f"read {key}: the object is another version by now")
        if end > start >= info.size_bytes:
            raise ObjectChangedError(f"read {key}: the object is shorter than it was")
        return ObjectBody(info, start, self._buffers(key, start, min(end, info.size_bytes)))

    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        return self._write(checked_target(key), source, create_only=create_only)

    def write_private(self, name: str, data: bytes, *, create_only: bool) -> None:
        self._write(f"{PRIVATE}/{checked(name)}", UploadSource(len(data), data=data), create_only=create_only)

    def _write(self, key: str, source: UploadSource, *, create_only: bool) -> ObjectInfo:
        what = f"write {key}"
        try:
            with self._asking(what) as place:
                place.check_free(key, what, create_only=create_only)
                place.make_parent(key)
                staged = place.path(staged_key())
                try:
                    place.stage(source, staged)
                    if place.check_free(key, what, create_only=create_only):
                        with suppress(FileNotFoundError):  # not every file system renames onto a name that is taken
                            place.files.rm_file(place.path(key))
                    place.files.mv(staged, place.path(key))
                except BaseException:
                    with suppress(Exception):  # what made that fail may make this fail too, or nothing is there yet
                        place.files.rm_file(staged)
                    raise
            return self.head(key)
        except ObjectMissingError as problem:
            raise RemoteUnavailableError(f"{what}: removed meanwhile: {problem}") from None

    def copy(self, source: str, target: str) -> ObjectInfo:
        what = f"copy {checked(source)} to {checked_target(target)}"
        self.head(source)
        with self._asking(what) as place:
            place.check_free(target, what, create_only=False)
            place.make_parent(target)
            place.files.cp_file(place.path(source), place.path(target))
        return self.head(target)

    def delete(self, keys: Sequence[str]) -> None:
        delete_each(storable_only(keys), self._delete)

    def _delete(self, key: str) -> None:
        with suppress(ObjectMissingError, NameNotStorableError), self._asking(f"delete {key}") as place:
            if place.type_of(key) == FILE:
                place.files.rm_file(place.path(key))

    def prune(self, prefix: str) -> None:
        if not prefix or is_private(prefix):
            return
        with suppress(ObjectMissingError, NameNotStorableError), self._asking(f"removing the directory {prefix}") as place:
            path = place.path(checked(prefix))
            try:
                if place.type_of(prefix) == DIRECTORY and not place.files.ls(path, detail=False):
                    place.files.rmdir(path)
            except OSError as problem:
                if problem.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise

    def _buffers(self, key: str, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            with self._asking(f"read {key}") as place:
                data: bytes = place.files.cat_file(place.path(key), start=start, end=min(start + _BUFFER_BYTES, end))
            if not data:
                raise ObjectChangedError(f"read {key}: the object is shorter than it was")
            start += len(data)
            yield data

    @contextmanager
    def _asking(self, what: str) -> Iterator[FsspecRoot]:
        """Give the file system, without what it remembers of other nodes' objects, and translate what it raises."""
        try:
            place = self._open()
            place.files.invalidate_cache()
            yield place
        except HoldfastError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectMissingError(f"{printable(what)}: no such object") from None
        except Exception as problem:  # noqa: BLE001 the libraries behind fsspec raise what they like
            text = masked(f"{printable(what)}: {problem}", self._secrets)
            if isinstance(problem, FileExistsError):
                raise ObjectExistsError(f"{printable(what)}: the object exists already") from None
            if isinstance(problem, PermissionError):
                raise RemoteRefusedError(
                    f"{printable(what)}: the store refuses: {masked(str(problem), self._secrets)}"
                ) from None
            if isinstance(problem, OSError) and problem.errno in _NAME_CAN_NOT_BE:
                raise NameNotStorableError(text) from None
            raise RemoteUnavailableError(text) from None

    def _open(self) -> FsspecRoot:
        with self._opening:
            if self._place is None:
                url, options = self._given
                try:
                    files, root = fsspec.core.url_to_fs(url, **options)
                except (TypeError, ValueError) as problem:
                    text = masked(str(problem), self._secrets)
                    raise RemoteRefusedError(f"{self.url}: the options can't be: {text}") from None
                self._place = FsspecRoot(files, root.rstrip("/"))
            return self._place
