"""Finds out if this machine supports passthrough and takeover; if not, gives the reason in words, for status and doctor.

There are two answers: a forecast before the mount, from facts about the machine, and an outcome after it, from the answers
of libfuse and the kernel. All of these functions are pure.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from holdfast.kernel.native_module import MISSING
from holdfast.kernel.protocol import InitFlag

PASSTHROUGH = "passthrough"
TAKEOVER = "takeover"
_KERNEL = (6, 9)
"""The first Linux with FUSE_PASSTHROUGH and FUSE_NOTIFY_RESEND."""
_PRUNING_KERNEL = (6, 18)
"""The first Linux with FUSE_NOTIFY_PRUNE."""
_CAP_SYS_ADMIN = 21


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts behind a forecast. ``missing`` says why there is no C module; empty when there is."""

    kernel: tuple[int, int]
    capabilities: int
    missing: str

    @classmethod
    def this(cls) -> Machine:
        """Read the facts of this process."""
        status = Path("/proc/self/status").read_text()
        effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
        return cls(kernel_version(os.uname().release), int(effective[1], 16) if effective else 0, MISSING)


def kernel_version(release: str) -> tuple[int, int]:
    """Return major and minor of a release such as ``6.1.0-13-amd64``; (0, 0) when it can't be parsed."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def forecast(machine: Machine, *, wanted: bool) -> str:
    """Say how data will be read and written: ``passthrough``, or ``daemon-io:`` and the reason."""
    if not wanted:
        return "daemon-io: switched off by setting"
    reason = _common(machine)
    if not reason and not machine.capabilities >> _CAP_SYS_ADMIN & 1:
        reason = "no CAP_SYS_ADMIN"
    return f"daemon-io: {reason}" if reason else PASSTHROUGH


def takeover_forecast(machine: Machine) -> str:
    """Say whether another daemon can take the mount over: ``takeover``, or ``no takeover:`` and the reason."""
    reason = _common(machine)
    return f"no takeover: {reason}" if reason else TAKEOVER


def has_passthrough(kernel: tuple[int, int]) -> bool:
    """Say whether this version of Linux can have passthrough and takeover."""
    return kernel >= _KERNEL


def can_prune(machine: Machine) -> bool:
    """Say whether the kernel can be asked to forget nodes that nobody uses."""
    return machine.kernel >= _PRUNING_KERNEL


def _common(machine: Machine) -> str:
    if machine.missing:
        return f"the C module is not there ({machine.missing})"
    if not has_passthrough(machine.kernel):
        return "kernel {}.{} < {}.{}".format(*machine.kernel, *_KERNEL)
    return ""


class Mounted(IntEnum):
    """The result of a mount (``enum mounting_state`` in native/mounting.h)."""

    NONE = 0
    PLAIN = 1
    FULL = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answers of libfuse and the kernel. ``agreed`` is None until the kernel has its reply to INIT."""

    mounted: Mounted
    error: int
    libfuse: str
    offered: InitFlag
    agreed: InitFlag | None
    keep_error: int


def outcome(found: Outcome) -> str:
    """Say why the mount has no passthrough; empty when it has, or while the INIT exchange is not complete."""
    reason = _not_attached(found)
    if reason or found.agreed is None or InitFlag.PASSTHROUGH in found.agreed:
        return reason
    if InitFlag.PASSTHROUGH not in found.offered:
        return "the kernel was built without FUSE_PASSTHROUGH"
    return "the mount was made without it"


def takeover_outcome(found: Outcome) -> str:
    """Say why the mount can't be taken over; empty when it can, or while the INIT exchange is not complete."""
    reason = _not_attached(found)
    if reason or found.agreed is None:
        return reason
    if InitFlag.RESEND not in found.offered:
        return "the kernel does not send requests again"
    return f"its start could not be kept: {os.strerror(found.keep_error)}" if found.keep_error else ""


def _not_attached(found: Outcome) -> str:
    match found.mounted:
        case Mounted.NONE:
            return "pyfuse3 does not call through the C module"
        case Mounted.PLAIN:
            return f"libfuse {found.libfuse or '?'} < 3.13"
        case Mounted.FAILED:
            return f"libfuse {found.libfuse or '?'}: {os.strerror(found.error)}"
        case Mounted.FULL:
            return ""
