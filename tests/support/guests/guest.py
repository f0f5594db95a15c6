"""A guest: user-mode Linux whose root is this machine's, read-only, with a disk of its own on ``/var/tmp``.

So it has this machine's programs, Python packages and checkout at the same paths, and only the kernel is another. It has one
processor and no network but its own ``lo``, and it is several times slower than the host.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.guests.kernels import kernel
from tests.support.tools.cache import cache_directory

_CHECKOUT = Path(__file__).parents[3]
_DISK_BYTES = 16 << 30
_MEMORY = "3G"
_HANDED_ON = ("HOLDFAST_", "PATH", "PYTHON", "VIRTUAL_ENV", "JAVA_HOME", "CI")
DISKS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-O", "project,quota"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
"""The commands that make a guest's disk, by the kind of its file system."""


@dataclass(frozen=True)
class Outcome:
    """The result of a command in a guest. ``status`` is None if the guest ended before it did."""

    status: int | None
    output: str


def run_in_guest(
    version: str, command: Sequence[str], *, disk: str = "ext4", options: str = "", seconds: float, echo: bool = False
) -> Outcome:
    """Boot the kernel ``version``, run ``command`` there in the checkout, and power it off.

    ``disk`` is the kind of file system on ``/var/tmp`` there, ``options`` are those of its mount. ``echo`` prints what the
    guest prints, as it comes. Raises ``NoKernelError`` where there is no such kernel.
    """
    root = kernel(version)
    with _directory() as run:
        (run / "environment").write_text(_environment(root))
        (run / "command").write_text(shlex.join(command) + "\n")
        image = run / "disk"
        with image.open("wb") as file:
            file.truncate(_DISK_BYTES)
        subprocess.run([*DISKS[disk], image], check=True, capture_output=True)
        words = [f"ubd0=/host{image}", f"run={run}", f"disk={disk}", f"options={options}"]
        output = _boot(root, run, words, seconds, echo=echo)
        status = run / "status"
        return Outcome(int(status.read_text()) if status.exists() else None, output)


def _boot(root: Path, run: Path, words: Sequence[str], seconds: float, *, echo: bool) -> str:
    """Run the kernel to its end, with all that is its own in name spaces that end with it; return what it prints."""
    own_root = 'mount --rbind / "$0/host"; mount --rbind /dev "$0/dev"; mount --rbind /proc "$0/proc"; exec chroot "$0" "$@"'
    first = Path(__file__).with_name("first_process.sh")
    command = [
        *(
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
        ),
        *(
            "sh",
            "-ec",
            own_root,
            str(root),
            "/usr/bin/linux.uml",
            f"mem={_MEMORY}",
            f"umid={run.name}",
            "uml_dir=/host" + str(run),
        ),
        *("rootfstype=hostfs", "rootflags=/host", "ro", "host=/host", f"init={first}", *words),
        *("con0=null,fd:1", "con=null", "ssl=null", "panic=1", "quiet"),
    ]
    printed = run / "printed"
    with printed.open("wb") as file:
        out = None if echo else file
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=seconds,
                check=False,
                env=_own_environment(),
            )
        except subprocess.TimeoutExpired:
            file.write(f"\nended after {seconds} s\n".encode())
    return printed.read_text(errors="replace")


def _own_environment() -> dict[str, str]:
    """The guest's memory is a file in TMPDIR, which should be memory too."""
    return {**os.environ, "TMPDIR": "/dev/shm"}


def _environment(root: Path) -> str:
    handed_on = {name: value for name, value in os.environ.items() if name.startswith(_HANDED_ON)}
    own = {
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
        "HOLDFAST_CACHE": str(cache_directory()),
        "KERNEL_DIRECTORY": str(root),
        "CHECKOUT": str(_CHECKOUT),
        "HOST_DIRECTORIES": shlex.join([str(_CHECKOUT), str(cache_directory()), sys.prefix]),
    }
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in {**handed_on, **own}.items())


@contextmanager
def _directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="holdfast-guest-", dir="/var/tmp"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
