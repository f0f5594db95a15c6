"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

from holdfast.mount import mountpoint

_PACKAGES = ("lmdb", "obstore", "pyfuse3", "trio")
_TOOLS = {
    "bindfs": ["bindfs", "--version"],
    "fio": ["fio", "--version"],
    "libfuse": ["fusermount3", "--version"],
    "rclone": ["rclone", "version"],
    "rocksdb": ["ldb", "--version"],
}


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has taken, in user and in kernel mode. Raises ``OSError`` if it has ended."""
    return time.clock_gettime(~pid << 3 | 2)  # the number of a process's clock, as clock_getcpuclockid makes it


def describe(directory: Path) -> dict[str, str]:
    """Return what matters of the machine, and of the disk that ``directory`` is on."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "processors": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_bytes / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(directory),
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
        **{tool: _first_line(command) for tool, command in _TOOLS.items() if shutil.which(tool)},
        "idle memory": _idle_memory(),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def _processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _idle_memory() -> str:
    """Say whether the kernel takes back what nobody has used for a while: a cache does not stay warm then (DAMON)."""
    reclaims = Path("/sys/module/damon_reclaim/parameters/enabled")
    try:
        if reclaims.exists() and reclaims.read_text().strip() == "Y":
            return "taken back by DAMON"
        for daemon in Path("/sys/kernel/mm/damon/admin/kdamonds").glob("[0-9]*"):
            actions = [path.read_text().strip() for path in daemon.glob("contexts/*/schemes/*/action")]
            if (daemon / "state").read_text().strip() == "on" and "pageout" in actions:
                return "taken back by DAMON"
    except OSError:
        return "unknown"
    return "kept"


def _file_system(directory: Path) -> str:
    device = directory.stat().st_dev
    kinds = [mount.file_system for mount in mountpoint.mounts() if mount.device == device]
    return kinds[-1] if kinds else "unknown"


def _first_line(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return (result.stdout or result.stderr).partition("\n")[0].strip()
