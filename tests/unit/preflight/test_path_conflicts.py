"""Nothing of the daemon's own may lie where it mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import load
from holdfast.errors import ConfigurationError
from holdfast.preflight import path_conflicts
from tests.support.disks.mounts import unserved
from tests.support.users.privileges import needs_root


def check(tmp_path: Path, **settings: str) -> None:
    options: dict[str, str | None] = {
        "mount.mountpoint": f"{tmp_path}/mount",
        "store.directory": f"{tmp_path}/mounts",
        "control.socket": f"{tmp_path}/run/control.sock",
        "stores.checkpoints.url": f"file://{tmp_path}/remote/checkpoints",
        "stores.blobs.url": "s3://bucket/blobs",
        **{key.replace("__", "."): value for key, value in settings.items()},
    }
    path_conflicts.check(load(None, {}, options), {})


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


@pytest.mark.parametrize(
    "key", ["store.directory", "control.socket", "log.file", "stores.checkpoints.url", "stores.blobs.url"]
)
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


# --- stores in one another --------------------------------------------------------------------------------------------


def refused(*urls: str, environment: dict[str, str] | None = None, **options: str) -> str:
    """What is said of the stores ``one``, ``two``, …; "" when they are apart. ``options`` are keys below ``stores``."""
    names = ("one", "two", "three")
    settings = {f"stores.{name}.url": url for name, url in zip(names, urls, strict=False)}
    settings |= {f"stores.{key.replace('__', '.')}": value for key, value in options.items()}
    loaded = load(None, {}, settings)
    try:
        path_conflicts.check(loaded, environment or {})
    except ConfigurationError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("s3://bucket/a", "s3://bucket/a"),
        ("s3://bucket/a", "s3://bucket/a/"),
        ("s3://bucket/a", "s3a://bucket//a"),
        ("s3://bucket/a%20b", "s3://bucket/a b"),
        ("gs://bucket", "gs://bucket/"),
        ("az://container/a", "az://container/a/."),
        ("abfss://box@account.dfs.core.windows.net/a", "abfs://box@account.blob.core.windows.net/a"),
        ("sftp://me@host/srv", "sftp://you:secret@HOST/srv"),
        ("hdfs://node:8020/x", "fsspec+hdfs://node:8020/x"),
        ("sftp://host/x", "sftp://host:22/x"),
    ],
)
def test_one_place_has_one_store(one: str, two: str) -> None:
    said = refused(one, two)
    assert said.startswith("stores.two.url (option): ")
    assert " is the same store as stores.one.url (option); give each store a place of its own" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("s3://bucket", "s3://bucket/a/b"), ("s3://bucket/a/", "s3a://bucket/a/b"), ("hdfs://node/x", "hdfs://node/x/y")],
)
def test_no_store_lies_in_another(outer: str, inner: str) -> None:
    assert refused(outer, inner) == (
        f"stores.two.url (option): {inner} lies inside stores.one.url (option); give each store a place of its own"
    )
    assert refused(inner, outer).startswith(f"stores.one.url (option): {inner} lies inside stores.two.url (option)")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("s3://bucket/a", "s3://bucket/b"),
        ("s3://bucket/a", "s3://bucket/ab"),
        ("s3://bucket/a", "s3://other/a"),
        ("s3://bucket/a", "gs://bucket/a"),
        ("az://box/a", "abfss://box@account.dfs.core.windows.net/a"),
        ("hdfs://one/x", "hdfs://two/x"),
        ("sftp://host:22/x", "sftp://host:23/x"),
        ("memory://", "memory://"),
    ],
)
def test_stores_side_by_side_are_apart(one: str, two: str) -> None:
    assert refused(one, two) == ""


def test_another_endpoint_is_another_server() -> None:
    urls = ("s3://bucket/a", "s3://bucket/a")
    assert refused(*urls, two__options__endpoint="http://minio:9000") == ""
    assert refused(*urls, one__options__aws_endpoint_url="http://minio:9000/", two__options__endpoint="http://MINIO:9000")
    assert refused(*urls, one__options__access_key_id="one", two__options__access_key_id="two", two__options__region="eu-1")
    assert refused(*urls, two__options__endpoint="http://here", environment={"AWS_ENDPOINT_URL": "http://here"})
    assert refused(*urls, two__options__endpoint="http://here", environment={"AWS_ENDPOINT_URL": "http://there"}) == ""
    assert refused(*urls, one__options__endpoint="https://minio", two__options__endpoint="https://minio:443/")
    assert refused(*urls, one__options__endpoint="", two__options__endpoint="https://s3.eu-central-1.amazonaws.com")
    assert refused(*urls, two__options__endpoint="https://s3.us-gov-west-1.amazonaws.com") == ""
    azure = ("az://box/a", "az://box/a")
    assert refused(*azure, one__options__account_name="one", two__options__azure_storage_account_name="two") == ""
    assert refused(*azure, one__options__account_name="one", environment={"AZURE_STORAGE_ACCOUNT_NAME": "one"})


def test_links_and_slashes_don_t_make_another_directory(tmp_path: Path) -> None:
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    real, link = f"file://{tmp_path}/real", f"file://{tmp_path}/link"
    for same in (f"{real}/", f"{link}//", f"{real}/../link", f"{real}/%69nner/..", f"fsspec+file://{tmp_path}/real"):
        assert "is the same store as" in refused(real, same), same
    assert "lies inside" in refused(real, f"{link}/inner/new")
    assert refused(real, f"file://{tmp_path}/reality") == ""


def test_a_store_that_is_left_out_is_in_nobody_s_way() -> None:
    assert refused("", "") == ""
    assert "stores.three.url" in refused("s3://a", "", "s3://a/x")


@pytest.mark.parametrize("url", ["s3://[::1/x", "file://relative/x", "file:///a%00b", "file:///a?b", "gs://[x]/y"])
def test_a_url_that_can_t_be_is_told_with_its_key(url: str, tmp_path: Path) -> None:
    assert refused("memory://", url).startswith(f"stores.two.url (option): {url.partition('?')[0]}")
    with pytest.raises(ConfigurationError, match=r"^stores\.blobs\.url \(option\): "):
        check(tmp_path, stores__blobs__url=url)


def test_the_default_stores_count_too() -> None:
    said = refused("file:///var/lib/holdfast/remote/blobs/")
    assert "/var/lib/holdfast/remote/blobs" in said
    assert "stores.blobs.url (default)" in said


@needs_root
def test_a_mount_that_waits_for_its_daemon_is_not_asked(tmp_path: Path) -> None:
    with unserved(tmp_path / "mount") as path:
        (tmp_path / "link").symlink_to("mount/store")
        for place in (path, path / "store", tmp_path / "link"):
            with pytest.raises(ConfigurationError):
                check(tmp_path, store__directory=str(place))
