"""File systems that a test mounts, and takes away again whatever happens."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.mount.mountpoint import FILE_SYSTEM, detach, mounted_on


@contextmanager
def mounted(kind: str, path: Path, *options: str) -> Iterator[Path]:
    """Mount a file system of ``kind`` on ``path``, which is created if need be. Needs root."""
    path.mkdir(parents=True, exist_ok=True)
    with _mount(["mount", "-t", kind, *options, "none", str(path)], path):
        yield path


@contextmanager
def shared(path: Path) -> Iterator[Path]:
    """Let ``path`` be where namespaces share what they mount, as kubelet makes it for containers. Needs root."""
    with _mount(["mount", "--bind", str(path), str(path)], path):
        for how in ("--make-private", "--make-shared"):
            subprocess.run(["mount", how, str(path)], check=True)
        yield path


@contextmanager
def mounted_read_only(source: Path, path: Path) -> Iterator[Path]:
    """Show the directory ``source`` on ``path``, where it can't be written. Needs root."""
    path.mkdir(parents=True, exist_ok=True)
    with _mount(["mount", "--bind", "-o", "ro", str(source), str(path)], path):
        yield path


@contextmanager
def shown_in_place(source: Path, path: Path) -> Iterator[None]:
    """Show the file ``source`` where the file ``path`` is. Needs root."""
    with _mount(["mount", "--bind", str(source), str(path)], path):
        yield


@contextmanager
def mounted_image(kind: str, path: Path, size_bytes: int, *mkfs_options: str) -> Iterator[Path]:
    """Make a file system of ``kind``, as in ext4, in a file beside ``path``, and mount it there. Needs root.

    The test is skipped in a container that was given no loop devices, and where the kernel lacks the file system.
    """
    if not os.path.exists("/dev/loop-control"):
        pytest.skip("needs loop devices")
    if f"\t{kind}\n" not in Path("/proc/filesystems").read_text() or shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"needs {kind}")
    path.mkdir(parents=True, exist_ok=True)
    image = path.with_name(f"{path.name}.img")
    with image.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run([f"mkfs.{kind}", "-q", *mkfs_options, str(image)], check=True, capture_output=True)
    with _mount(["mount", "-t", kind, "-o", "loop", str(image), str(path)], path):
        yield path


@contextmanager
def unserved(path: Path, *, held: bool = True) -> Iterator[Path]:
    """Mount a Holdfast on ``path`` that no daemon serves; its descriptor is ``held``, or closed at once. Needs root."""
    path.mkdir(parents=True, exist_ok=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        kind, subtype = FILE_SYSTEM.split(".")  # mount(8) of Debian 13 does not divide them
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0,subtype={subtype}"
        command = ["mount", "-i", "-t", kind, "-o", options, "holdfast", str(path)]
        subprocess.run(command, check=True, capture_output=True, pass_fds=[device])
        if not held:
            os.close(device)
        yield path
    finally:
        if held:
            os.close(device)  # what waits ends
        if mounted_on(str(path)) is not None:
            detach(str(path))


@contextmanager
def _mount(command: list[str], path: Path) -> Iterator[None]:
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True, capture_output=True)
