"""Makes an archive of classes: ``python -m holdfast_spark.class_archive.making LIST ARCHIVE JAVA OPTIONS…``.

It takes a core for half a minute, at a low priority, and 600 MB of memory. Nothing is made where there is less than twice
that, where a lack of memory ends the whole container, or on a disk with less than 600 MB. The archive, of 200 MB, gets its
name when it is whole and on the disk: a JVM trusts what it maps.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from holdfast_spark.class_archive import CHECKED

_HEAP_MIB = 256
_ROOM_BYTES = 1_200 * 2**20
_DISK_BYTES = 600 * 2**20
_NICE = 10
_CGROUPS = Path("/sys/fs/cgroup")


def main(arguments: list[str], driver: IO[bytes]) -> int:
    """Make the archive; return the exit status: 0 if it is there. ``driver`` is a pipe that ends with the driver."""
    listed, archive = Path(arguments[0]), Path(arguments[1])
    java, *options = arguments[2:]
    cgroups = Path("/proc/self/cgroup").read_text()
    if free_memory(cgroups) < _ROOM_BYTES or ends_together(cgroups) or shutil.disk_usage(listed.parent).free < _DISK_BYTES:
        return 1
    give_way()
    made = listed.with_name(f"{archive.name}.{os.getpid()}")  # which the next driver finds removed, if this is killed
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-classes-") as scratch:
            copied = shutil.copy(listed, scratch)  # nobody who reads for a minute keeps the mount busy
            flags = ["-Xshare:dump", CHECKED, f"-Xmx{_HEAP_MIB}m"]
            flags += [f"-XX:SharedClassListFile={copied}", f"-XX:SharedArchiveFile={made}"]
            process = subprocess.Popen([java, *flags, *options], stdin=subprocess.DEVNULL)
            threading.Thread(target=_end_with, args=(driver, process), daemon=True).start()
            if process.wait():
                return 1
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.rename(archive)
    except OSError:
        return 1
    finally:
        with suppress(OSError):  # the mount may have gone with the driver
            made.unlink(missing_ok=True)
    return 0


def _end_with(driver: IO[bytes], process: subprocess.Popen[bytes]) -> None:
    """Kill the process when the driver has ended: nothing that it has started keeps its mount busy."""
    driver.read()
    process.kill()


def give_way() -> None:
    """Let every other process have the processor first, and be the first that ends where memory is short."""
    os.nice(_NICE)
    Path("/proc/self/oom_score_adj").write_text("1000")


def ends_together(cgroups: str, base: Path = _CGROUPS) -> bool:
    """Say whether a lack of memory ends all processes of this one's cgroup, as kubelet has it for containers."""
    for each in _own(cgroups, base):
        with suppress(OSError):
            if (each / "memory.oom.group").read_text().strip() == "1":
                return True
    return False


def free_memory(cgroups: str, base: Path = _CGROUPS, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return how many bytes of memory this process may take: the least that the machine and each of its cgroups has left.

    ``cgroups`` is the text of ``/proc/self/cgroup``. Only version 2 of cgroups is known.
    """
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    for each in _own(cgroups, base):
        try:
            limit = (each / "memory.max").read_text().strip()
            used = int((each / "memory.current").read_text())
            inactive = dict(line.split() for line in (each / "memory.stat").read_text().splitlines())
        except OSError:
            continue
        if limit != "max":
            free = min(free, int(limit) - used + int(inactive["inactive_file"]))
    return free


def _own(cgroups: str, base: Path) -> list[Path]:
    """Return the directories of this process's cgroup and of those above it."""
    path = next((line[3:] for line in cgroups.splitlines() if line.startswith("0::")), "/")
    directory = base / path.lstrip("/")
    return [each for each in (directory, *directory.parents) if each.is_relative_to(base)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdin.buffer))
