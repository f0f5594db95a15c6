"""Where the daemon's own files may lie: not in its mountpoint, where it would wait for itself.

Nothing at or below the mountpoint is looked at: it might wait for a daemon, which this process may be about to become.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from holdfast import mountpoint
from holdfast.config import Config, LoadedConfig
from holdfast.errors import ConfigurationError
from holdfast.remote import directory_of

_MOST_LINKS = 40
"""As many as the kernel follows (path_resolution(7))."""
_OPTIONS = {
    "store.directory": " (--store)",
    "checkpoints.url": " (--checkpoints)",
    "blobs.url": " (--blobs)",
    "control.socket": " (--socket)",
}


def check(loaded: LoadedConfig) -> None:
    """Make sure that nothing of the daemon's lies in the mountpoint. Raises ``ConfigurationError``, which names the key."""
    config = loaded.config
    if not config.mount.mountpoint:
        return  # which is told elsewhere
    covered = mountpoint.real_path(config.mount.mountpoint)
    for key, path in _places(config):
        if _leads_into(path if os.path.isabs(path) else os.path.join(os.getcwd(), path), covered):
            raise ConfigurationError(
                f"{key} ({loaded.sources.get(key, 'default')}): {path} lies in the mountpoint {config.mount.mountpoint}, "
                f"where the daemon would wait for itself; set {key}{_OPTIONS.get(key, '')} to a place outside of it"
            )


def _places(config: Config) -> Iterator[tuple[str, str]]:
    yield "store.directory", config.store.directory
    yield "control.socket", config.control.socket
    if config.log.file:
        yield "log.file", config.log.file
    for key, url in (("checkpoints.url", config.checkpoints.url), ("blobs.url", config.blobs.url)):
        if url.startswith("file://"):
            yield key, str(directory_of(url))


def _leads_into(path: str, covered: str) -> bool:
    """Say whether the way along the absolute ``path`` leads into ``covered``, which has no symbolic links."""
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
