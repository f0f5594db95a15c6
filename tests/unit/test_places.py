"""Nothing of the daemon's own may lie where it mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import places
from holdfast.config import load
from holdfast.errors import ConfigurationError
from tests.support.mounts import unserved
from tests.support.privileges import needs_root


def check(tmp_path: Path, **settings: str) -> None:
    options: dict[str, str | None] = {
        "mount.mountpoint": f"{tmp_path}/mount",
        "store.directory": f"{tmp_path}/mounts",
        "control.socket": f"{tmp_path}/run/control.sock",
        "checkpoints.url": f"file://{tmp_path}/remote/checkpoints",
        "blobs.url": "s3://bucket/blobs",
        **{key.replace("__", "."): value for key, value in settings.items()},
    }
    places.check(load(None, {}, options))


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    (tmp_path / "mount").mkdir()
    return tmp_path / "mount"


def test_beside_the_mountpoint_all_is_well(mount: Path, tmp_path: Path) -> None:
    check(tmp_path)
    check(tmp_path, log__file=f"{tmp_path}/mount.log", store__directory=f"{tmp_path}/run/../store")


def test_where_it_was_started_may_be_gone(mount: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    check(tmp_path)


@pytest.mark.parametrize("below", ["", "/", "/store", "/a/../b", "/../mount/x", "/../store"])
def test_the_mountpoint_and_what_is_below_it_is_refused(below: str, mount: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^store\.directory \(option\): .* lies in the mountpoint .*\(--store\) to"
    ):
        check(tmp_path, store__directory=f"{mount}{below}")


@pytest.mark.parametrize("key", ["store.directory", "control.socket", "log.file", "checkpoints.url", "blobs.url"])
def test_each_place_is_named_by_its_key(key: str, mount: Path, tmp_path: Path) -> None:
    value = f"{'file://' if key.endswith('url') else ''}{mount}/x%20y"
    with pytest.raises(ConfigurationError, match=rf"^{key} \(option\): .*set {key}"):
        check(tmp_path, **{key.replace(".", "__"): value})


@pytest.mark.parametrize("target", ["mount", "mount/below", "../{name}/mount", "{path}/mount", "other"])
def test_links_are_followed(target: str, mount: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to("mount/other")
    (tmp_path / "link").symlink_to(target.format(name=tmp_path.name, path=tmp_path))
    with pytest.raises(ConfigurationError, match=r"store\.directory"):
        check(tmp_path, store__directory=f"{tmp_path}/link/store")
    (tmp_path / "way").symlink_to("mount")
    with pytest.raises(ConfigurationError, match=r"store\.directory"):
        check(tmp_path, mount__mountpoint=f"{tmp_path}/way", store__directory=f"{mount}/store")


def test_links_that_lead_nowhere_are_left_to_whoever_opens_them(mount: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    check(tmp_path, store__directory=f"{tmp_path}/loop/store")


@needs_root
def test_a_mount_that_waits_for_its_daemon_is_not_asked(tmp_path: Path) -> None:
    with unserved(tmp_path / "mount") as path:
        (tmp_path / "link").symlink_to("mount/store")
        for place in (path, path / "store", tmp_path / "link"):
            with pytest.raises(ConfigurationError):
                check(tmp_path, store__directory=str(place))
