"""A local or shared directory as a store (``file://``): objects are the regular files in it.

An object is written under ``.holdfast/``, gets its metadata as an extended attribute, is synced, and is then renamed or, for
a conditional create, hard-linked to its name. That is atomic on this machine and on an NFS mount. Links, devices and files
whose names can't be keys are not objects and are left alone, and no link is followed (``file_directories``). A store always
has its ``.holdfast/``: without it no object counts as missing and nothing is written, because the disk that belongs here may
not be mounted. A change is confirmed only if the root is then the directory that it was made in (``file_directories``).

The system calls are used directly. obstore's local store hides their errors, keeps no metadata, does not sync, can't store
names that end in ``#`` and digits, and can't list a directory if a single file in it has a name that is no key.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.errors import ObjectChangedError, ObjectMissingError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote.contract import (
    Capabilities,
    DirectoryListing,
    ObjectBody,
    ObjectInfo,
    RemoteStore,
    UploadSource,
    storable_time_ns,
)
from holdfast.remote.file_directories import (
    check_is_in_place,
    directory_below,
    make_directories,
    open_root,
    opened_root,
    sync_directories,
)
from holdfast.remote.file_syscalls import (
    ATTRIBUTE,
    OpenObject,
    Place,
    info_of,
    link,
    move_to_key,
    translated_errors,
    write_file,
)
from holdfast.remote.keys import (
    PRIVATE,
    UNSTORABLE_NAME,
    NameRules,
    checked,
    checked_prefix,
    is_private,
    is_storable,
    is_too_long,
    key_below,
    staged_key,
    storable_only,
)
from holdfast.remote.many_deletions import delete_each

_NO_SUCH_OBJECT = {errno.ENOENT, *UNSTORABLE_NAME}


@contextmanager
def _deleting(what: str) -> Iterator[None]:
    """Ignore that there is no such object, and raise every other ``OSError`` as ``HoldfastError``."""
    with translated_errors(f"DELETE {what}"):
        try:
            yield
        except OSError as problem:
            if problem.errno not in _NO_SUCH_OBJECT:
                raise


@dataclass(slots=True)
class _Staged:
    """A staged name in the root of a store. ``is_left``: it may still be there."""

    root_fd: int
    place: Place
    is_left: bool = True


class FileStore(RemoteStore):
    """Objects as files below ``root``. Deleting an object leaves its directories; ``prune`` removes them."""

    capabilities = Capabilities(conditional_create=True, atomic=True, metadata=True, versions=True, cheap_head=True)
    name_rules = NameRules(longest_part_bytes=255)  # NAME_MAX of Linux

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self.url = f"file://{root}"
        with _explained(root):
            root.mkdir(mode=0o700, parents=True, exist_ok=True)  # past the mount, objects have no owners
            with opened_root(self._root) as root_fd:
                make_directories(root_fd, PRIVATE)
                with _place(root_fd, staged_key()) as trial:
                    _try(trial)

    @staticmethod
    def check(root: Path) -> None:
        """Check that ``root`` is, or could be made, the directory of a store. Changes nothing.

        Raises ``RemoteRefusedError``, as making the store does.
        """
        with _explained(root):
            nearest = next(path for path in (root, *root.parents) if os.path.lexists(path))
            try:
                fd = os.open(nearest, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC)
            except OSError as problem:
                if problem.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
                    raise
                return  # only making the store tells more, as on NFS
            try:
                os.setxattr(fd, ATTRIBUTE, b"{}")
            finally:
                os.close(fd)

    def probe(self) -> None:
        try:
            with opened_root(self._root) as root_fd:
                self._check_is_store(root_fd)
        except OSError:
            raise self._has_gone() from None

    def head(self, key: str) -> ObjectInfo:
        return self._open(checked(key), "HEAD").info

    def find(self, key: str) -> ObjectInfo | bool:
        found = self._object_or_directory(checked(key), "HEAD")
        return found.info if isinstance(found, OpenObject) else found

    def list_directory(self, prefix: str) -> DirectoryListing:
        objects: dict[str, ObjectInfo] = {}
        directories: dict[str, int] = {}
        with translated_errors(f"LIST {prefix}/"), self._opened() as root_fd:
            try:
                for name, stat in _entries(root_fd, checked_prefix(prefix)):
                    if stat_module.S_ISDIR(stat.st_mode):
                        directories[name] = storable_time_ns(stat.st_mtime_ns)
                    else:
                        objects[name] = info_of(key_below(prefix, name), stat, {})
            except OSError as problem:
                if problem.errno not in _NO_SUCH_OBJECT:
                    raise
                self._check_is_store(root_fd)
                return DirectoryListing({}, frozenset(), exists=False)
            if not prefix and directories.pop(PRIVATE, None) is None:
                self._check_is_store(root_fd)
        return DirectoryListing(objects, frozenset(directories), exists=True, changed_ns=directories)

    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        file = self._open(checked(key), "GET")
        if etag and file.info.etag != etag:
            file.close()  # otherwise the error's traceback keeps the file open for as long as the error is kept
            raise ObjectChangedError(f"GET {key}: the object is another version by now")
        if end > start >= file.info.size_bytes:
            file.close()
            raise ObjectChangedError(f"GET {key}: the object is shorter than it was")
        return ObjectBody(file.info, start, file.buffers(start, min(end, file.info.size_bytes)))

    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        self.checked_target(key)
        return info_of(key, self._write(key, source, metadata, create_only=create_only), metadata)

    def write_private(self, name: str, data: bytes, *, create_only: bool) -> None:
        self._write(f"{PRIVATE}/{checked(name)}", UploadSource(len(data), data=data), {}, create_only=create_only)

    def _write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> os.stat_result:
        with self._staged(f"PUT {key}") as staged:
            stat = write_file(staged.place, source, metadata)
            move_to_key(staged.place, staged.root_fd, key, create_only=create_only)
            staged.is_left = create_only  # nothing is left of a rename
        return stat

    def copy(self, source: str, target: str) -> ObjectInfo:
        self.head(source)
        self.checked_target(target)
        with self._staged(f"COPY {source} to {target}") as staged:
            with _place(staged.root_fd, source) as original:
                link(original, staged.place)  # objects are never modified, so a link is a copy
            move_to_key(staged.place, staged.root_fd, target, create_only=False)  # nothing, if that is the same file
        return self.head(target)

    def delete(self, keys: Sequence[str]) -> None:
        by_directory: dict[str, list[str]] = {}
        for key in storable_only(keys):
            by_directory.setdefault(key.rpartition("/")[0], []).append(key)
        changed: set[str] = set()

        def delete_in(root_fd: int, directory: str) -> None:
            """Delete keys of one directory, which is opened once."""
            with _deleting(f"objects in {directory}"), directory_below(root_fd, directory) as directory_fd:
                delete_each(by_directory[directory], partial(delete, directory_fd))

        def delete(directory_fd: int, key: str) -> None:
            directory, _, name = key.rpartition("/")
            with _deleting(key):
                os.unlink(name, dir_fd=directory_fd)
                changed.add(directory)

        with translated_errors(f"DELETE of {len(keys)} objects"), self._changing() as root_fd:
            try:
                delete_each(list(by_directory), partial(delete_in, root_fd))
            finally:
                sync_directories(root_fd, changed)

    def prune(self, prefix: str) -> None:
        if not prefix or is_private(prefix):
            return
        with translated_errors(f"removing the directory {prefix}"), self._changing() as root_fd:
            try:
                with _place(root_fd, checked(prefix)) as place:
                    os.rmdir(place.name, dir_fd=place.directory_fd)
            except OSError as problem:
                if problem.errno not in {errno.ENOTEMPTY, errno.EEXIST, *_NO_SUCH_OBJECT}:
                    raise

    def _has_gone(self) -> RemoteUnavailableError:
        return RemoteUnavailableError(f"{self._root}/{PRIVATE} has gone: is the store's disk mounted?")

    def _check_is_store(self, root_fd: int) -> None:
        """Raise ``RemoteUnavailableError`` if the open root is no store's: what is not in it, the store may have."""
        try:
            with directory_below(root_fd, PRIVATE):
                return
        except OSError:
            raise self._has_gone() from None

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Yield a descriptor of the root, in which a whole request stays. Raises ``OSError``."""
        try:
            root_fd = open_root(self._root)
        except (FileNotFoundError, NotADirectoryError):
            raise self._has_gone() from None
        try:
            yield root_fd
        finally:
            os.close(root_fd)

    @contextmanager
    def _changing(self) -> Iterator[int]:
        """Yield the root of a store for a change, which ends with an error if the root was replaced. Raises ``OSError``."""
        with self._opened() as root_fd:
            self._check_is_store(root_fd)
            try:
                yield root_fd
            finally:
                check_is_in_place(root_fd, self._root)  # or that one part was refused would say that the others were not

    def _open(self, key: str, what: str) -> OpenObject:
        found = self._object_or_directory(key, what)
        if isinstance(found, OpenObject):
            return found
        raise ObjectMissingError(f"{what} {key}: no such object")

    def _object_or_directory(self, key: str, what: str) -> OpenObject | bool:
        """Return the object ``key`` or, if there is none, whether there is a directory of this name."""
        with translated_errors(f"{what} {key}"), self._opened() as root_fd:
            try:
                return OpenObject(root_fd, key)
            except IsADirectoryError:
                is_directory = True
            except OSError as problem:
                if problem.errno not in {errno.ELOOP, errno.ENXIO, *_NO_SUCH_OBJECT}:
                    raise
                is_directory = False
            self._check_is_store(root_fd)
        return is_directory

    @contextmanager
    def _staged(self, what: str) -> Iterator[_Staged]:
        """Yield a staged name to write to. Its directory exists as long as the store does."""
        with translated_errors(what), self._opened() as root_fd:
            try:
                with _place(root_fd, staged_key()) as place:
                    staged = _Staged(root_fd, place)
                    try:
                        yield staged
                    finally:
                        if staged.is_left:
                            with suppress(OSError):  # or it is left to the sweep of old staged files
                                os.unlink(place.name, dir_fd=place.directory_fd)
            except (FileNotFoundError, NotADirectoryError):
                self._check_is_store(root_fd)
                raise
            check_is_in_place(root_fd, self._root)


@contextmanager
def _place(root_fd: int, key: str) -> Iterator[Place]:
    directory, _, name = key.rpartition("/")
    with directory_below(root_fd, directory) as directory_fd:
        yield Place(directory_fd, name)


def _entries(root_fd: int, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    with directory_below(root_fd, prefix, readable=True) as directory_fd, os.scandir(directory_fd) as entries:
        for entry in entries:
            try:
                stat = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if is_too_long(key_below(prefix, entry.name)):
                continue
            if is_storable(entry.name) and (stat_module.S_ISREG(stat.st_mode) or stat_module.S_ISDIR(stat.st_mode)):
                yield entry.name, stat


def _try(trial: Place) -> None:
    """Make and remove a file with an attribute. Raises ``OSError``."""
    fd = os.open(trial.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, dir_fd=trial.directory_fd)
    try:
        os.setxattr(fd, ATTRIBUTE, b"{}")
    finally:
        os.close(fd)
        os.unlink(trial.name, dir_fd=trial.directory_fd)


@contextmanager
def _explained(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise RemoteRefusedError(
            f"the directory {root} can't be a remote store: {problem.strerror}; "
            "it must be writable, on a file system with extended attributes"
        ) from None
