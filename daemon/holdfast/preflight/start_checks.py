"""Checks whether a daemon could start with a configuration.

The start itself, ``--check``, mount, restart, reload and doctor ask this. All of them refuse the same values with the same
words, before anything is opened, ended or put in force. Nothing is changed: what only opening a thing can tell, as a second
daemon in the store directory, the start alone finds.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.checkpoints.configured import name_table, sweep_roots
from holdfast.config import Config, LoadedConfig
from holdfast.errors import ConfigurationError, HoldfastError, RemoteUnavailableError, StoreOptionError
from holdfast.mount import covered_directory, mountpoint
from holdfast.preflight import path_conflicts, private_places
from holdfast.remote import RemoteStore, checked_store
from holdfast.store import StoreDirectory

_ANSWER_SECONDS = 10.0
"""The time that a store has to answer. One that does not may answer later, and is no reason to refuse."""
_LONGEST_SOCKET_BYTES = 107
"""The length of sun_path (unix(7)) without the null character."""


def check(loaded: LoadedConfig, environment: Mapping[str, str]) -> None:
    """Check all that can be checked without asking a store. Raises ``HoldfastError``, which names the key where it can."""
    check_node(loaded, environment)
    check_mountpoint(loaded.config)
    for name in loaded.config.mounted_stores:
        store(loaded, name, environment)


def check_node(loaded: LoadedConfig, environment: Mapping[str, str]) -> None:
    """Check what does not concern one store, or the mountpoint, which ``holdfast mount`` may name. Raises as ``check``."""
    config = loaded.config
    path_conflicts.check(loaded, environment)
    private_places.check(loaded)
    _check_socket(config.control.socket)
    _check_log(loaded)
    StoreDirectory.check(Path(config.store.directory), [Path(disk) for disk in config.store.other_disks])
    name_table(config)
    sweep_roots(config)


def check_mountpoint(config: Config) -> None:
    """Check a directory that nothing is mounted on: what is mounted concerns the start alone. Raises ``MountpointError``.

    A node's first mount hides nothing. A later one may: the node worked so before, and the daemon reports it.
    """
    path = config.mount.mountpoint
    if not path or mountpoint.mount_at(path) is None:
        mountpoint.check(path)
    if not StoreDirectory.is_at(Path(config.store.directory)):
        covered_directory.check_empty(mountpoint.real_path(path))


def ask_stores(loaded: LoadedConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Ask every store once, all at the same time. Return by name why some don't answer, or not in time.

    Blocks for 10 s at most. Raises ``HoldfastError`` if one refuses. Call it after ``check``.
    """
    found: dict[str, HoldfastError | None] = {}

    def ask(name: str, asked: RemoteStore) -> None:
        try:
            asked.look()
        except HoldfastError as problem:
            found[name] = problem
        else:
            found[name] = None

    threads = {
        name: threading.Thread(target=ask, args=(name, asked), daemon=True)
        for name in loaded.config.mounted_stores
        if (asked := store(loaded, name, environment)) is not None
    }
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(_ANSWER_SECONDS)
    silent = {}
    for name in threads:
        problem = found.get(name, RemoteUnavailableError(f"no answer within {_ANSWER_SECONDS:.0f} s"))
        if isinstance(problem, RemoteUnavailableError):
            silent[name] = str(problem)
        elif problem is not None:
            raise type(problem)(f"stores.{name}: {problem}")
    return silent


def store(loaded: LoadedConfig, name: str, environment: Mapping[str, str]) -> RemoteStore | None:
    """Return a store that answers, or is given up, soon; None for a directory, which is checked here. Makes nothing.

    Raises ``HoldfastError``, which names the key that is at fault.
    """
    section, remote = loaded.config.stores[name], loaded.config.remote
    with _naming(loaded, name):
        return checked_store(
            section.url,
            section.options,
            environment,
            request_timeout_seconds=min(remote.request_timeout_seconds, _ANSWER_SECONDS),
            connect_timeout_seconds=min(remote.connect_timeout_seconds, _ANSWER_SECONDS),
        )


def unwritable_log(loaded: LoadedConfig, file: Path, reason: str) -> ConfigurationError:
    """Return an error that names the key to change: without ``log.file`` the log is beside the store directory."""
    if loaded.config.log.file:
        return ConfigurationError(f"log.file: can't write {file}: {reason}")
    directory = Path(loaded.config.store.directory)
    source = loaded.sources.get("store.directory", "default")
    if not os.path.lexists(directory):
        return ConfigurationError(
            f"store.directory ({source}): can't make {directory} and the log {file} beside it: {reason}; "
            "set store.directory (--store) to a directory that this user may make"
        )
    return ConfigurationError(
        f"log.file is not set, and {file}, beside store.directory ({source}), can't be written: {reason}; set log.file"
    )


def _check_socket(path: str) -> None:
    reason = ""
    if len(os.fsencode(path)) > _LONGEST_SOCKET_BYTES:
        reason = f"the path is too long for a socket; {_LONGEST_SOCKET_BYTES} bytes will do"
    elif os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        reason = "something else stands there"
    if reason:
        raise ConfigurationError(f"control.socket: can't listen on {path}: {reason}; set control.socket (--socket)")


def _check_log(loaded: LoadedConfig) -> None:
    if not loaded.config.log.file:
        return
    file = Path(loaded.config.log.file)
    try:
        if os.path.lexists(file):
            os.close(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK))
            return
        nearest = next(each for each in file.absolute().parents if os.path.lexists(each))
        os.close(os.open(nearest, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as problem:
        raise unwritable_log(loaded, file, str(problem.strerror)) from None
    if not os.access(nearest, os.W_OK | os.X_OK):
        is_read_only = os.statvfs(nearest).f_flag & os.ST_RDONLY
        raise unwritable_log(loaded, file, os.strerror(errno.EROFS if is_read_only else errno.EACCES))


@contextmanager
def _naming(loaded: LoadedConfig, name: str) -> Iterator[None]:
    """Let an error name the key of the store ``name`` that is at fault, and where it was given."""
    try:
        yield
    except StoreOptionError as problem:
        key = f"stores.{name}.options.{problem.option}"
        if key in loaded.written:
            raise StoreOptionError(problem.option, f"{loaded.named(key)}: {problem}") from None
        raise StoreOptionError(problem.option, f"stores.{name}: {problem}") from None
    except ConfigurationError as problem:
        raise ConfigurationError(f"{loaded.named(f'stores.{name}.url')}: {problem}") from None
    except HoldfastError as problem:
        raise type(problem)(f"stores.{name}: {problem}") from None
