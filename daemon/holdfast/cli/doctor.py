"""doctor: checks of the machine, the stores and the daemon, with a remedy for each fault."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import typer

from holdfast import mountpoint, path_conflicts, private_places
from holdfast.cli.options import DEFAULT_SOCKET, ConfigFile, Json, Socket, asking_client
from holdfast.cli.output import counted, print_json, say, say_marked, size
from holdfast.config import Config, LoadedConfig, ZoneSection, load
from holdfast.control.messages import Status
from holdfast.errors import ConfigurationError, DaemonUnreachableError, HoldfastError, MountpointError, StoreInUseError
from holdfast.remote import directory_of, open_store
from holdfast.remote.redaction import public_url
from holdfast.store import StoreDirectory

_OLDEST_KERNEL = (5, 4)


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. ``level`` is ok, warn or fail; ``mend`` says what to do."""

    check: str
    level: str
    found: str
    mend: str = ""


def doctor(
    config: ConfigFile = None,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Check machine, stores and daemon; say how to mend faults. Exits with 1 when something failed."""
    loaded = load(config, os.environ)
    findings = [finding for check in _checks(loaded, socket) for finding in check()]
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        for finding in findings:
            say_marked(f"{finding.level:>4}", colours[finding.level], f"  {finding.check:<12} {finding.found}")
            if finding.mend:
                say(f"      {'':<12} → {finding.mend}")
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(1)


def _checks(loaded: LoadedConfig, socket: Path) -> list[Callable[[], Iterator[Finding]]]:
    settings, status = loaded.config, _status_of(socket)
    return [
        lambda: _places(loaded),
        _kernel,
        _fuse,
        lambda: _rights(settings),
        lambda: _disk(settings),
        *(partial(_remote, name, section, settings, status) for name, section in settings.mounted_stores.items()),
        lambda: _not_configured(settings, status),
        lambda: _daemon(socket, status, settings.mount.mountpoint),
    ]


def _status_of(socket: Path) -> Status | None:
    try:
        with asking_client(socket) as client:
            return client.status()
    except DaemonUnreachableError:
        return None


def _places(loaded: LoadedConfig) -> Iterator[Finding]:
    try:
        path_conflicts.check(loaded, os.environ)
        private_places.check(loaded)
    except ConfigurationError as problem:
        yield Finding("places", "fail", str(problem))


def _kernel() -> Iterator[Finding]:
    release = platform.release()
    version = tuple(int(part) for part in release.split("-")[0].split(".")[:2])
    if version < _OLDEST_KERNEL:
        yield Finding("kernel", "fail", release, "install a kernel of 5.4 or newer (rename flags and pidfds are needed)")
    else:
        yield Finding("kernel", "ok", release)


def _fuse() -> Iterator[Finding]:
    device = Path("/dev/fuse")
    if not device.exists():
        yield Finding("fuse", "fail", "/dev/fuse is missing", "modprobe fuse; in a container pass --device /dev/fuse")
        return
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError as problem:
        yield Finding("fuse", "fail", f"/dev/fuse: {problem.strerror}", "run as root, or chmod 666 /dev/fuse")
        return
    yield Finding("fuse", "ok", "/dev/fuse can be opened")


def _rights(settings: Config) -> Iterator[Finding]:
    if os.geteuid() == 0:
        yield Finding("rights", "ok", "root")
        return
    if shutil.which("fusermount3") is None:
        yield Finding("rights", "fail", "not root, and fusermount3 is missing", "apt-get install fuse3, or run as root")
        return
    allowed = any(line.strip() == "user_allow_other" for line in _lines(Path("/etc/fuse.conf")))
    if settings.mount.allow_other and not allowed:
        mend = "add user_allow_other to /etc/fuse.conf, or set mount.allow_other = false"
        yield Finding("rights", "fail", "not root, and other users may not be let in", mend)
    else:
        yield Finding("rights", "warn", "not root: owners of files can't be kept apart", "run the daemon as root")


def _disk(settings: Config) -> Iterator[Finding]:
    directory = Path(settings.store.directory)
    if not directory.exists():
        yield Finding("store", "ok", f"{directory} does not exist yet; mount creates it")
        return
    try:
        store = StoreDirectory.open(directory)
    except StoreInUseError:
        yield Finding("store", "ok", f"{directory} is in use by a daemon")
        return
    except HoldfastError as problem:
        yield Finding("store", "fail", str(problem))
        return
    store.close()
    free = shutil.disk_usage(directory).free
    if free < settings.cache.min_free_bytes:
        mend = "free some disk, or lower cache.min_free_bytes"
        yield Finding("store", "fail", f"{size(free)} free in {directory}, less than the reserve", mend)
    else:
        yield Finding("store", "ok", f"{size(free)} free in {directory}")


def _remote(name: str, section: ZoneSection, settings: Config, status: Status | None) -> Iterator[Finding]:
    try:
        if section.url.startswith("file://") and not (directory := directory_of(section.url)).exists():
            yield _missing_directory(name, directory, settings)  # opening it would create it
            return
        store = open_store(
            section.url,
            section.options,
            os.environ,
            request_timeout_seconds=settings.remote.request_timeout_seconds,
            connect_timeout_seconds=settings.remote.connect_timeout_seconds,
        )
        store.probe()
    except HoldfastError as problem:
        seen = status.remotes.get(name) if status else None
        if seen is not None and seen.up and seen.url == public_url(section.url):
            mend = "the daemon has credentials of its own, /etc/holdfast/environment perhaps: nothing is wrong"
            yield Finding(name, "warn", f"{seen.url} answers the daemon, but not this shell", mend)
            return
        mend = f"check stores.{name}.url, the network and the credentials (docs/configuration.md)"
        yield Finding(name, "fail", str(problem), mend)
        return
    if not store.capabilities.conditional_create:
        mend = "use S3, GCS, Azure or file:// if several nodes write"
        yield Finding(name, "warn", f"{store.url} answers, but can't keep two writers apart", mend)
    else:
        yield Finding(name, "ok", f"{store.url} answers")


def _not_configured(settings: Config, status: Status | None) -> Iterator[Finding]:
    """Report zones that are no longer configured; a running daemon knows which of their files are unsent."""
    mend = (
        "set stores.{0}.url again, or workdirs.base if working directories were in it: what was not sent is sent then; "
        "or see to what is in {1}"
    )
    tree = Path(settings.store.directory) / "tree"
    if status is not None:
        for name, files in status.not_configured.items():
            found = f"this zone is not configured any more, and {counted(files, 'file')} of it never sent"
            yield Finding(name, "fail", found, mend.format(name, Path(status.store) / "tree" / name))
        return
    known = {*settings.mounted_stores, *(section.base for section in settings.every_role())}
    for directory in sorted(_directories(tree)):
        if directory.name not in known and any(files for _, _, files in os.walk(directory)):
            found = f"{directory} has files, and is not configured as a zone"
            yield Finding(directory.name, "warn", found, mend.format(directory.name, directory))


def _directories(parent: Path) -> list[Path]:
    try:
        return [each for each in parent.iterdir() if each.is_dir() and not each.is_symlink()]
    except OSError:
        return []


def _missing_directory(name: str, directory: Path, settings: Config) -> Finding:
    if not Path(settings.store.directory).exists():
        return Finding(name, "ok", f"{directory} does not exist yet; mount creates it")
    mend = "mount what belongs there before the daemon starts; it would begin an empty store"
    return Finding(name, "fail", f"{directory} does not exist, though this node has run before", mend)


def _daemon(socket: Path, status: Status | None, configured: str) -> Iterator[Finding]:
    if status is not None:
        yield Finding("daemon", "ok", f"{status.pid} serves {status.mountpoint}, data {status.data_mode}")
        return
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


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
