"""The image of applications' pods in tests: without a program but the one that keeps a pod's namespaces.

Such pods have programs, Python and this checkout as volumes.
"""

from __future__ import annotations

import subprocess
import tempfile
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
    with tempfile.TemporaryDirectory(dir=file.parent) as directory:
        root = Path(directory)
        root.chmod(0o755)
        for name in _DIRECTORIES:
            (root / name).mkdir(mode=0o755)
        (root / "tmp").chmod(0o1777)
        for name in _LINKS:
            (root / name).symlink_to(f"usr/{name}")
        for name, text in _FILES.items():
            (root / name).write_text(text)
        compiler = ["gcc", "-static", "-Os", "-x", "c", "-", "-o", str(root / "pause")]
        subprocess.run(compiler, input=_PAUSE, text=True, check=True)
        write_image(root, file, APPLICATION_IMAGE, ["/pause"])
