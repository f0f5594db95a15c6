"""The version of the Debian package: a later build is an upgrade, also from an archive without git."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast import __version__
from systemd.debian import __main__ as building

EARLIER, COMMIT, LATER = 1_790_000_000, 1_795_000_000, 1_796_000_000


def is_below(one: str, other: str) -> bool:
    return subprocess.run(["dpkg", "--compare-versions", one, "lt", other], check=False).returncode == 0


def in_git(*arguments: str) -> str:
    return str(COMMIT) if arguments[0] == "show" else "28f6a70b5e"


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="needs dpkg")
def test_a_build_without_git_sorts_by_the_time_of_its_newest_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "daemon").mkdir()
    for name in ("CHANGELOG.md", "pyproject.toml", "daemon/module.py"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (EARLIER, EARLIER))
    monkeypatch.setattr(building, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(building, "_git", in_git)
    of_commit = building._package_version()
    assert "+git20261118110640.28f6a70b5e~deb" in of_commit
    monkeypatch.setattr(building, "_git", lambda *_: "")
    before = building._package_version()
    assert is_below(before, of_commit)
    os.utime(tmp_path / "daemon/module.py", (LATER, LATER))
    after = building._package_version()
    assert is_below(of_commit, after)
    assert is_below(__version__, before)
