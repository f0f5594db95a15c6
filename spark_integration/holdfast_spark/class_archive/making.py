"""Makes an archive of classes: ``python -m holdfast_spark.class_archive.making LIST ARCHIVE JAVA OPTIONS…``.

It takes a core for half a minute, at a low priority, and 600 MB of memory; where there is less than twice that, nothing is
made. The archive, of 200 MB, gets its name when it is whole and on the disk: a JVM trusts what it maps.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from holdfast_spark.class_archive import CHECKED

_HEAP_MIB = 256
_ROOM_BYTES = 1_200 * 2**20
_NICE = 10
_SECONDS = 1_800.0


def main(arguments: list[str]) -> int:
    """Make the archive; return the exit status: 0 if it is there."""
    listed, archive = Path(arguments[0]), Path(arguments[1])
    java, *options = arguments[2:]
    if free_memory(Path("/proc/self/cgroup").read_text()) < _ROOM_BYTES:
        return 1
    give_way()
    made = archive.with_name(f".{archive.name}.{os.getpid()}")
    flags = ["-Xshare:dump", CHECKED, f"-Xmx{_HEAP_MIB}m"]
    flags += [f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={made}"]
    try:
        subprocess.run([java, *flags, *options], check=True, timeout=_SECONDS)
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.rename(archive)
    except (OSError, subprocess.SubprocessError):
        return 1
    finally:
        made.unlink(missing_ok=True)
    return 0


def give_way() -> None:
    """Let every other process have the processor first, and be the first that ends where memory is short."""
    os.nice(_NICE)
    Path("/proc/self/oom_score_adj").write_text("1000")


def free_memory(cgroups: str, base: Path = Path("/sys/fs/cgroup"), meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return how many bytes of memory this process may take: the least that the machine and each of its cgroups has left.

    ``cgroups`` is the text of ``/proc/self/cgroup``. Only version 2 of cgroups is known.
    """
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    path = next((line[3:] for line in cgroups.splitlines() if line.startswith("0::")), "/")
    directory = base / path.lstrip("/")
    for each in (directory, *directory.parents):
        if not each.is_relative_to(base):
            break
        try:
            limit = (each / "memory.max").read_text().strip()
            used = int((each / "memory.current").read_text())
            inactive = dict(line.split() for line in (each / "memory.stat").read_text().splitlines())
        except OSError:
            continue
        if limit != "max":
            free = min(free, int(limit) - used + int(inactive["inactive_file"]))
    return free


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
