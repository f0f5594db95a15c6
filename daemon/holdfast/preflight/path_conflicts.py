"""Conflicts between the paths of the daemon's files, its stores and its mountpoint.

Nothing may lie in the mountpoint, where the daemon would wait for itself, and no store inside another, because its objects
would have two paths. Nothing at or below the mountpoint is accessed: that might wait for a daemon, which this process may
be about to become.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import permutations

from holdfast.config import LoadedConfig
from holdfast.errors import ConfigurationError
from holdfast.mount import mountpoint
from holdfast.remote import Location, directory_of, location_of
from holdfast.remote.redaction import public_url

_MOST_LINKS = 40
"""The kernel's limit of symbolic links on the way to a file (path_resolution(7))."""
_OPTIONS = {"store.directory": " (--store)", "control.socket": " (--socket)"}


def check(loaded: LoadedConfig, environment: Mapping[str, str]) -> None:
    """Make sure that no file of the daemon lies in the mountpoint, and no store in another.

    Raises ``ConfigurationError``, which names the key.
    """
    if loaded.config.mount.mountpoint:  # otherwise reported elsewhere
        _check_outside(loaded)
    _check_apart(loaded, environment)


def _check_outside(loaded: LoadedConfig) -> None:
    config = loaded.config
    covered = mountpoint.real_path(config.mount.mountpoint)
    for key, path in _places(loaded):
        if _leads_into(path if os.path.isabs(path) else os.path.join(os.getcwd(), path), covered):
            raise ConfigurationError(
                f"{loaded.named(key)}: {path} lies in the mountpoint {config.mount.mountpoint}, "
                f"where the daemon would wait for itself; set {key}{_OPTIONS.get(key, '')} to a place outside of it"
            )


def _check_apart(loaded: LoadedConfig, environment: Mapping[str, str]) -> None:
    stores = loaded.config.mounted_stores
    found = {name: _location(loaded, name, environment) for name in stores}
    for outer, inner in permutations(found.items(), 2):
        (one, above), (other, below) = outer, inner
        if above is not None and below is not None and above.contains(below):
            what = "is the same store as" if above == below else "lies inside"
            raise ConfigurationError(
                f"{loaded.named(f'stores.{other}.url')}: {public_url(stores[other].url)} {what} "
                f"{loaded.named(f'stores.{one}.url')}; give each store a place of its own"
            )


@contextmanager
def _naming(loaded: LoadedConfig, name: str) -> Iterator[None]:
    """Let an error in the URL of the store ``name`` say whose it is."""
    try:
        yield
    except ConfigurationError as problem:
        raise ConfigurationError(f"{loaded.named(f'stores.{name}.url')}: {problem}") from None


def _location(loaded: LoadedConfig, name: str, environment: Mapping[str, str]) -> Location | None:
    section = loaded.config.stores[name]
    with _naming(loaded, name):
        return location_of(section.url, section.options, environment)


def _places(loaded: LoadedConfig) -> Iterator[tuple[str, str]]:
    config = loaded.config
    yield "store.directory", config.store.directory
    for path in config.store.other_disks:
        yield "store.other_disks", path
    yield "control.socket", config.control.socket
    if config.control.pods_socket:
        yield "control.pods_socket", config.control.pods_socket
    if config.log.file:
        yield "log.file", config.log.file
    for name, section in config.mounted_stores.items():
        if section.url.startswith("file://"):
            with _naming(loaded, name):
                directory = directory_of(section.url)
            yield f"stores.{name}.url", str(directory)


def _leads_into(path: str, covered: str) -> bool:
    """Say whether the absolute ``path`` leads into ``covered``, following symbolic links. ``covered`` has none."""
    names, at, links = path.split("/")[::-1], "/", 0
    while names and links < _MOST_LINKS:
        name = names.pop()
        if name == "..":
            at = os.path.dirname(at)
        elif name not in ("", "."):
            at = os.path.join(at, name)
        if at == covered:
            return True
        if os.path.islink(at):
            links += 1
            target = os.readlink(at)
            at = "/" if target.startswith("/") else os.path.dirname(at)
            names += target.split("/")[::-1]
    return False
