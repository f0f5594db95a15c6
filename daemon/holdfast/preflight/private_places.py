"""Checks that no other user can change the directories of the daemon's own files, or the sources of root's configuration.

Whoever may write into a directory on the way to a socket, a store or a log can put another in its place, or a symbolic
link. So every directory on the way must belong to root or to this user, and be writable for its owner alone; above the last
one the sticky bit will do, as /tmp has it. These are the rules of sshd's StrictModes. On the way to a log its group may
write as well: some systems ship /var/log so, for a group of their own. The same is required of root's configuration,
which names places that root writes; what is mounted read-only, as Kubernetes does it, may have any mode.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Iterator
from pathlib import Path

from holdfast.config import LoadedConfig
from holdfast.errors import ConfigurationError

_GROUP_OR_OTHERS = 0o022
_OTHERS = 0o002
_EVERYBODY = "0 0 4294967295"
"""The fields of /proc/self/uid_map outside of user namespaces."""
_UNKNOWN_OWNER = 65534
"""The uid by which a user namespace shows owners that it does not have, often those of the directories that it was given."""


def check(loaded: LoadedConfig) -> None:
    """Make sure of the directories of store, control socket and log. Raises ``ConfigurationError``, which names the key.

    Call it after ``path_conflicts.check``: it looks at every directory on the way.
    """
    check_configuration(loaded)
    for key, directory in _directories(loaded):
        absolute = Path(os.path.abspath(directory))
        ways = dict.fromkeys((absolute, Path(os.path.realpath(absolute))))
        for way in ways:
            for at in (way, *way.parents):
                problem = _problem(at, _OTHERS if key == "log.file" else _GROUP_OR_OTHERS, is_last=at == way)
                if problem:
                    raise ConfigurationError(
                        f"{loaded.named(key)}: {at} {problem}, who could put something else in the place of the daemon's "
                        f"files; mend it (chmod go-w, chown root), or set {key} to a directory in another place"
                    )


def check_configuration(loaded: LoadedConfig) -> None:
    """Make sure that no other user may change what root's daemon is told. Raises ``ConfigurationError``."""
    file = loaded.file
    if file is None or os.geteuid() != 0:
        return
    absolute = Path(os.path.abspath(file))
    for way in dict.fromkeys((absolute, Path(os.path.realpath(absolute)))):
        for at in (way, *way.parents):
            if not at.exists() or os.statvfs(at).f_flag & os.ST_RDONLY:
                continue
            problem = _problem_of(at.stat(), _GROUP_OR_OTHERS, is_last=at in (way, way.parent))
            if problem:
                raise ConfigurationError(
                    f"the configuration file {file}: {at} {problem}, who could tell root's daemon what to do; "
                    "mend it (chmod go-w, chown root), or give --config another file"
                )


def _directories(loaded: LoadedConfig) -> Iterator[tuple[str, Path]]:
    config = loaded.config
    yield "store.directory", Path(config.store.directory)
    for path in config.store.other_disks:
        yield "store.other_disks", Path(path)
    yield "control.socket", Path(config.control.socket).parent
    if config.control.pods_socket:
        yield "control.pods_socket", Path(config.control.pods_socket).parent
    if config.log.file:  # otherwise it is beside the store's directory, and no other user's file is taken for it
        yield "log.file", Path(config.log.file).parent


def _problem(directory: Path, forbidden: int, *, is_last: bool) -> str:
    """Return what is wrong with an existing directory, as a mode with ``forbidden`` bits; empty if nothing is."""
    try:
        stat = directory.stat()
    except OSError:
        return ""  # it is made, or reported, when it is used
    return _problem_of(stat, forbidden, is_last=is_last) if stat_module.S_ISDIR(stat.st_mode) else ""


def _problem_of(stat: os.stat_result, forbidden: int, *, is_last: bool) -> str:
    if stat.st_uid not in (0, os.geteuid()) and not (stat.st_uid == _UNKNOWN_OWNER and _is_in_user_namespace()):
        return f"belongs to the user {stat.st_uid}"
    if stat.st_mode & forbidden and (is_last or not stat.st_mode & stat_module.S_ISVTX):
        return "may be written by other users"
    return ""


def _is_in_user_namespace() -> bool:
    return " ".join(Path("/proc/self/uid_map").read_text().split()) != _EVERYBODY
