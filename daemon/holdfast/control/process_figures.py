"""The kernel's figures about this process: memory, processor time, descriptors."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_STATM = Path("/proc/self/statm")
_STAT = Path("/proc/self/stat")
_BOOT = Path("/proc/stat")
_DESCRIPTORS = Path("/proc/self/fd")
_START_FIELD = 19  # starttime of proc_pid_stat(5), counted from the field after the name


def resident_bytes() -> int:
    """Return the memory that is resident."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds() -> float:
    """Return the processor time taken, in user and system mode."""
    times = os.times()
    return times.user + times.system


def started() -> float:
    """Return when the process started, in seconds since the epoch."""
    ticks = int(_STAT.read_text().rpartition(")")[2].split()[_START_FIELD])
    booted = next(line.split()[1] for line in _BOOT.read_text().splitlines() if line.startswith("btime "))
    return int(booted) + ticks / os.sysconf("SC_CLK_TCK")


def open_descriptors() -> int:
    """Return how many descriptors are open."""
    return _DESCRIPTORS.stat().st_size or len(os.listdir(_DESCRIPTORS))  # 0 before Linux 6.2


def most_descriptors() -> int:
    """Return how many descriptors may be open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
