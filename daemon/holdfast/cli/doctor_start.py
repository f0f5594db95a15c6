"""doctor: checks of the configuration that the next daemon would start with, and of what it would find."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from holdfast.capacity import Limits
from holdfast.cli.finding import Check, Finding
from holdfast.cli.output import size
from holdfast.config import Config, LoadedConfig, ZoneSection, is_secret, load
from holdfast.control.messages import Status
from holdfast.errors import ConfigurationError, HoldfastError, MountpointError
from holdfast.mount import fuse_device, mountpoint
from holdfast.preflight import start_checks
from holdfast.problems import is_clearly_below
from holdfast.remote import RemoteStore, directory_of
from holdfast.remote.redaction import public_url
from holdfast.remote.store_options import ENDPOINTS, plain_name
from holdfast.store import disk_space

_ADDRESSES = {*ENDPOINTS, "config_dir", "host", "hostname", "namenodes", "port"}
"""The options of a store, without prefix, that say where it is."""


def checks(
    config: Path | None, socket: Path, status: Status | None, *, tells_of_mounts: bool
) -> Iterator[tuple[str, Check]]:
    """Yield the checks of the configuration that a daemon would start with."""
    try:
        loaded = load(config, os.environ)
    except ConfigurationError as problem:
        finding = Finding("configuration", "fail", str(problem))
        yield "configuration", lambda: iter([finding])
        return
    settings = loaded.config
    if config is None and "HOLDFAST_CONFIG" not in os.environ and not _is_of(settings, socket):
        yield "configuration", partial(_of_another, loaded, socket)
        if tells_of_mounts:
            yield "daemon", lambda: _daemon(socket, "")
        return
    stores = {name: _opened(loaded, name) for name in settings.mounted_stores}
    yield "configuration", lambda: _start(loaded, has_stores=not any(isinstance(s, HoldfastError) for s in stores.values()))
    yield "rights", lambda: _rights(settings)
    yield "store", lambda: _disks(settings)
    for name, store in stores.items():
        yield name, partial(_remote, name, store, settings, status)
    if status is None:
        yield "zones", lambda: _not_configured(settings)
    if tells_of_mounts:
        yield "daemon", lambda: _daemon(socket, settings.mount.mountpoint)


def _is_of(settings: Config, socket: Path) -> bool:
    """Say whether a daemon with these settings would listen on ``socket``, or on the other one beside it."""
    return Path(settings.control.socket).parent == socket.absolute().parent


def _of_another(loaded: LoadedConfig, socket: Path) -> Iterator[Finding]:
    """Report that the configuration found here is not that of the daemon which is asked about: its store is another."""
    own = loaded.config.control.socket
    found = (
        f"{loaded.file or 'the defaults'}: control.socket is {own}; not checked, because the daemon at {socket} has another "
        "configuration, and another store"
    )
    yield Finding(
        "configuration", "warn", found, f"holdfast doctor --socket {socket} --config FILE, with that daemon's file"
    )


def _start(loaded: LoadedConfig, *, has_stores: bool) -> Iterator[Finding]:
    """Report what a start would refuse, but for mistakes in stores, which have findings of their own."""
    start_checks.check_node(loaded, os.environ)
    if loaded.config.mount.mountpoint:  # otherwise 'holdfast mount' says it
        start_checks.check_mountpoint(loaded.config)
    if has_stores:
        yield Finding("configuration", "ok", f"{loaded.file or 'the defaults'}: a daemon could start with it")


def _rights(settings: Config) -> Iterator[Finding]:
    if os.geteuid() == 0:
        yield Finding("rights", "ok", "root")
        return
    if shutil.which("fusermount3") is None:
        yield Finding("rights", "fail", "not root, and fusermount3 is missing", "apt-get install fuse3, or run as root")
        return
    if settings.mount.allow_other and not fuse_device.lets_others_in():
        mend = "add user_allow_other to /etc/fuse.conf, or set mount.allow_other = false"
        yield Finding("rights", "fail", "not root, and other users may not be let in", mend)
    else:
        yield Finding("rights", "warn", "not root: owners of files can't be kept apart", "run the daemon as root")


def _disks(settings: Config) -> Iterator[Finding]:
    directory, limits = Path(settings.store.directory), Limits.configured(settings.cache)
    if directory.exists():
        yield from _disk(directory, limits)
    else:
        yield Finding("store", "ok", f"{directory} does not exist yet; mount creates it")
    for other in map(Path, settings.store.other_disks):
        with suppress(OSError):  # the start says what is wrong with it
            yield from _disk(other, limits)


def _disk(directory: Path, limits: Limits) -> Iterator[Finding]:
    disk = disk_space(directory)
    reserve = limits.reserve(disk)
    if is_clearly_below(disk.free_bytes, reserve.size_bytes):
        mend = "free some disk, or lower the reserve (cache.min_free_share, cache.min_free_bytes)"
        yield Finding("store", "fail", f"{size(disk.free_bytes)} free in {directory}, less than the reserve", mend)
        return
    yield Finding("store", "ok", f"{size(disk.free_bytes)} free in {directory}")
    if is_clearly_below(disk.free_files, reserve.files):
        found = f"{disk.free_files} of {disk.files} inodes free in {directory}, less than the reserve"
        yield Finding("store", "fail", found, "delete files, or use a file system with more inodes (mkfs.ext4 -N)")


def _opened(loaded: LoadedConfig, name: str) -> RemoteStore | HoldfastError | None:
    """Return a store, None if it is a directory, or what is wrong with its settings."""
    try:
        return start_checks.store(loaded, name, os.environ)
    except HoldfastError as problem:
        return problem


def _remote(
    name: str, store: RemoteStore | HoldfastError | None, settings: Config, status: Status | None
) -> Iterator[Finding]:
    section = settings.stores[name]
    if store is None:
        yield _of_directory(name, directory_of(section.url), settings)
        return
    if isinstance(store, HoldfastError):
        yield Finding(name, "fail", str(store))
        return
    try:
        store.look()
    except HoldfastError as problem:
        seen = status.remotes.get(name) if status else None
        if seen is not None and seen.up and seen.url == public_url(section.url) and _leaves_to_environment(section):
            mend = f"nothing is wrong if only the daemon's environment has credentials or address of stores.{name}"
            yield Finding(name, "warn", f"{problem}; the daemon that runs reaches it", mend)
            return
        yield Finding(
            name, "fail", str(problem), f"check stores.{name}.url, the network and the credentials (docs/stores.md)"
        )
        return
    if not store.capabilities.conditional_create:
        mend = "use S3, GCS, Azure or file:// if several nodes write"
        yield Finding(name, "warn", f"{store.url} answers, but can't keep two writers apart", mend)
    else:
        yield Finding(name, "ok", f"{store.url} answers")


def _leaves_to_environment(section: ZoneSection) -> bool:
    """Say whether address and credentials of a store come from variables, which a daemon may have and a shell not."""
    given = {plain_name(option) for option in section.options}
    if given & _ADDRESSES or public_url(section.url) != section.url:
        return False
    return not any(is_secret((option,)) for option in section.options)


def _not_configured(settings: Config) -> Iterator[Finding]:
    """Report zones with files that are no longer configured."""
    known = {*settings.mounted_stores, *(section.base for section in settings.every_role())}
    for directory in sorted(_directories(Path(settings.store.directory) / "tree")):
        if directory.name not in known and any(files for _, _, files in os.walk(directory)):
            mend = f"set stores.{directory.name}.url again, or workdirs.base; or see to what is in {directory}"
            yield Finding(directory.name, "warn", f"{directory} has files, and is not configured as a zone", mend)


def _directories(parent: Path) -> list[Path]:
    try:
        return [each for each in parent.iterdir() if each.is_dir() and not each.is_symlink()]
    except OSError:
        return []


def _of_directory(name: str, directory: Path, settings: Config) -> Finding:
    if directory.exists():
        return Finding(name, "ok", f"file://{directory} can be used")
    if not Path(settings.store.directory).exists():
        return Finding(name, "ok", f"{directory} does not exist yet; mount creates it")
    mend = "mount what belongs there before the daemon starts; it would begin an empty store"
    return Finding(name, "fail", f"{directory} does not exist, though this node has run before", mend)


def _daemon(socket: Path, configured: str) -> Iterator[Finding]:
    dead = [path for path in _mountpoints() if _is_dead(path)]
    for path in dead:
        asked_about = not configured or path == mountpoint.real_path(configured)
        level = "fail" if asked_about else "warn"
        mend = f"holdfast mount {path} takes it away and mounts afresh"
        yield Finding("daemon", level, f"the mount at {path} has no daemon any more", mend)
    if not dead:
        yield Finding("daemon", "warn", f"none answers on {socket}", "holdfast mount, or systemctl start holdfastd")


def _mountpoints() -> list[str]:
    return [mount.mountpoint for mount in mountpoint.mounts() if mount.file_system == mountpoint.FILE_SYSTEM]


def _is_dead(path: str) -> bool:
    try:
        return not mountpoint.is_alive(path)
    except MountpointError:  # another user's, and not visible to this one
        return False
