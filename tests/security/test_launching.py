"""What root starts takes nothing from the directory in which it is started, nor from files that others may write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.users.privileges import MALLORY

_HOLDFAST = [sys.executable, "-P", "-m", "holdfast"]
"""Like the installed command: Python puts the directory of a script on its path, not the current one."""
_LURES = ("_holdfast_kernel", "argparse", "ctypes", "holdfast", "json", "lmdb", "msgspec", "pyfuse3", "socket", "trio")
"""Names of modules that the programs import."""


@pytest.fixture
def lures(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of Mallory's, the current one, with modules that tell who has run them. Returns where they tell it."""
    directory, told = workspace / "mallory", workspace / "told"
    directory.mkdir()
    os.chown(directory, MALLORY.uid, MALLORY.gid)

    def lays_out() -> None:
        for name in _LURES:
            text = f"import os\nos.close(os.open({str(told / name)!r}, os.O_CREAT))\n"
            (directory / f"{name}.py").write_text(text)

    told.mkdir()
    MALLORY.do(lays_out)
    monkeypatch.chdir(directory)
    return told


@pytest.fixture
def holdfast(workspace: Path) -> Callable[..., None]:
    """Runs the command as root, with a configuration of its own."""
    directory = workspace / "node"
    (directory / "mount").mkdir(parents=True)
    config = directory / "holdfast.toml"
    config.write_text(
        f"""
        mount.mountpoint = "{directory}/mount"
        store.directory = "{directory}/store"
        control.socket = "{workspace}/run/control.sock"
        stores.checkpoints.url = "file://{workspace}/checkpoints"
        stores.blobs.url = "file://{workspace}/blobs"
        """
    )

    def run(*arguments: str) -> None:
        environment = {**os.environ, "HOLDFAST_CONFIG": str(config), "HOLDFAST_SOCKET": f"{workspace}/run/control.sock"}
        ran = subprocess.run([*_HOLDFAST, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    return run


@pytest.mark.parametrize("supervise", [[], ["--supervise"]], ids=["alone", "kept"])
def test_root_mounts_anywhere(lures: Path, holdfast: Callable[..., None], workspace: Path, supervise: list[str]) -> None:
    """Mallory would be root as soon as root mounts or restarts while it looks around in her directory."""
    holdfast("mount", *supervise)
    try:
        holdfast("restart")
    finally:
        holdfast("umount", str(workspace / "node/mount"))
    assert os.listdir(lures) == []
