"""Options that ``holdfast mount`` hands to keeper and daemon: in a descriptor, because a URL among them may have a password.

The arguments of a process can be read by everybody, for as long as it runs (proc(5)). The descriptor is a file in memory
that nobody can change any more; each daemon that a keeper starts reads it from the beginning.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping

import msgspec

from holdfast.errors import ConfigurationError

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def hand_over(options: Mapping[str, str]) -> int:
    """Return a descriptor with ``options``, dotted keys and their values. The caller closes it."""
    fd = os.memfd_create("holdfast-options", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, msgspec.json.encode(dict(options)))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def handed_over(fd: int) -> dict[str, str]:
    """Return the options in the descriptor ``fd``, which stays open. Raises ``ConfigurationError``."""
    try:
        return msgspec.json.decode(os.pread(fd, os.fstat(fd).st_size, 0), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        raise ConfigurationError(
            f"--options-fd {fd}: no options can be read from it; only holdfast mount passes this"
        ) from None
