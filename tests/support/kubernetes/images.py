"""The images of tests. That of applications' pods has no program but the one that keeps a pod's namespaces.

Such pods have programs, Python and this checkout as volumes.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from systemd.kubernetes.image import write_image

APPLICATION_IMAGE = "localhost/holdfast-tests:1"
_PAUSE = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\n",
}
_DIRECTORIES = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var")
_LINKS = ("bin", "lib", "lib64", "sbin")


def write_application_image(file: Path) -> None:
    """Write an image whose program keeps the namespaces of a pod."""
    with _root(file.parent) as root:
        compiler = ["gcc", "-static", "-Os", "-x", "c", "-", "-o", str(root / "pause")]
        subprocess.run(compiler, input=_PAUSE, text=True, check=True)
        write_image(root, file, APPLICATION_IMAGE, ["/pause"])


def write_program_image(file: Path, program: Path, name: str) -> None:
    """Write an image with a program of this machine, which gets a container's arguments."""
    with _root(file.parent) as root:
        shutil.copy(program, root / program.name)
        write_image(root, file, name, [], entrypoint=[f"/{program.name}"])


@contextmanager
def _root(base: Path) -> Iterator[Path]:
    """Make the files that all images have, in a directory that ends with the block."""
    with tempfile.TemporaryDirectory(dir=base) as directory:
        root = Path(directory)
        root.chmod(0o755)
        for at in _DIRECTORIES:
            (root / at).mkdir(mode=0o755)
        (root / "tmp").chmod(0o1777)
        for at in _LINKS:
            (root / at).symlink_to(f"usr/{at}")
        for at, text in _FILES.items():
            (root / at).write_text(text)
        yield root
