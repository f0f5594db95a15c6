"""Stores beside the two that are always there, by configuration alone: of files and on S3, with rights and credentials of
their own.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.control.messages import SweepRequest
from holdfast.errors import ConfigurationError
from holdfast_spark import checkpoint_location
from tests.conftest import NodeFactory
from tests.mount.conftest import keys
from tests.support.checkpoints.checkpoint_roots import JOB, below, job
from tests.support.daemons.node import Node, StartError, settle, wait_until
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server, Versitygw
from tests.support.users.privileges import as_nobody

TEAM, GROUP = 4711, 4712
TeamNode = Callable[..., Node]


@pytest.fixture
def team_files(workspace: Path) -> Path:
    """Where the objects of the store ``team-files`` stand."""
    return workspace / "remote" / "team-files"


@pytest.fixture
def configuration(workspace: Path, team_files: Path, counted: Versitygw) -> Path:
    """Two stores more, both for one team alone, and a role that falls back to them."""
    file = workspace / "holdfast.toml"
    rights = f'uid = {TEAM}\ngid = {GROUP}\nfile_mode = "0640"\ndirectory_mode = "0750"'
    options = ", ".join(f'{name} = "{value}"' for name, value in counted.options.items())
    file.write_text(
        f"""
        [stores.team-files]
        url = "file://{team_files}"
        {rights}

        [stores.team_s3]
        url = "{counted.url}"
        {rights}
        options = {{ {options} }}

        [roles.team]
        base = "team-work"
        local_state = "team-files"
        blob_storage = "team_s3"
        """
    )
    return file


@pytest.fixture
def make_team_node(make_node: NodeFactory, configuration: Path, place: S3Server) -> TeamNode:
    """A factory of nodes whose own two stores are on another server, with other credentials, from the environment."""

    def make(name: str = "a", **settings: object) -> Node:
        urls = {zone: place.below(zone).url for zone in ("checkpoints", "blobs")}
        node = make_node(name, **urls, **settings)
        node.environment.update(place.environment, HOLDFAST_CONFIG=str(configuration))
        return node

    return make


def doctor_on(node: Node) -> dict[str, dict[str, str]]:
    """What ``holdfast doctor`` finds with the configuration of ``node``, by the name of the check."""
    settings = {f"HOLDFAST_{key.replace('.', '__').upper()}": str(value) for key, value in node.settings.items()}
    command = [sys.executable, "-m", "holdfast", "doctor", "--json", "--socket", str(node.socket)]
    environment = {**os.environ, **settings, **node.environment}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return {found["check"]: found for found in json.loads(result.stdout)}


def rights(path: Path) -> tuple[int, int, str]:
    found = path.stat()
    return found.st_uid, found.st_gid, stat.filemode(found.st_mode)


@pytest.mark.promise("store-zones")
@pytest.mark.parametrize("zone", ["team-files", "team_s3", "checkpoints"])
def test_a_store_is_a_zone_like_any_other(make_team_node: TeamNode, zone: str) -> None:
    first, second = make_team_node("a").start(), make_team_node("b").start()
    directory = first.mountpoint / zone / "job"
    directory.mkdir()
    (directory / "one").write_bytes(b"one")
    (directory / ".two.tmp").write_bytes(b"two")
    (directory / ".two.tmp").rename(directory / "two")
    (directory / "three").write_bytes(b"three")
    (directory / "three").unlink()
    settle(directory)
    elsewhere = second.mountpoint / zone / "job"
    assert sorted(os.listdir(elsewhere)) == ["one", "two"]
    assert [(elsewhere / name).read_bytes() for name in ("one", "two")] == [b"one", b"two"]
    (directory / "offsets").mkdir()
    (directory / "offsets/7").write_bytes(b"{}")
    (elsewhere / "offsets").mkdir(exist_ok=True)
    with pytest.raises(FileExistsError):
        (elsewhere / "offsets/7").open("xb")
    (elsewhere / "one").unlink()
    settle(elsewhere)
    wait_until(lambda: not (directory / "one").exists())


@pytest.mark.promise("store-zones")
def test_objects_go_to_their_store_and_to_no_other(
    make_team_node: TeamNode, team_files: Path, counted: Versitygw, place: S3Server
) -> None:
    node = make_team_node().start()
    for zone in ("team-files", "team_s3", "checkpoints", "blobs"):
        (node.mountpoint / zone / f"of {zone}").write_bytes(zone.encode())
    assert (team_files / "of team-files").read_bytes() == b"team-files"
    assert keys(counted) == {"of team_s3"}
    assert keys(place) == {"checkpoints/of checkpoints", "blobs/of blobs"}


@pytest.mark.promise("store-zones")
def test_a_team_has_its_owner_and_modes(make_team_node: TeamNode, team_files: Path, counted: Versitygw) -> None:
    (team_files / "job").mkdir(parents=True)
    (team_files / "job/state").write_bytes(b"state")
    counted.client().put_object(Bucket=counted.bucket, Key=counted.key("job/state"), Body=b"state")
    node = make_team_node().start()
    for zone in ("team-files", "team_s3"):
        root = node.mountpoint / zone
        assert rights(root) == (TEAM, GROUP, "drwxr-x---")
        assert rights(root / "job") == (TEAM, GROUP, "drwxr-x---")
        assert rights(root / "job/state") == (TEAM, GROUP, "-rw-r-----")
    assert rights(node.checkpoints) == (0, 0, "drwxr-xr-x")

    def look() -> None:
        assert os.listdir(node.checkpoints) == []
        for zone in ("team-files", "team_s3"):
            with pytest.raises(PermissionError):
                os.listdir(node.mountpoint / zone)

    as_nobody(look)


def test_status_and_commands_know_each_store_by_its_zone(make_team_node: TeamNode, team_files: Path) -> None:
    team_files.mkdir(parents=True)
    node = make_team_node().start()
    assert list(node.status().remotes) == ["checkpoints", "blobs", "team-files", "team_s3"]
    assert node.status().remotes["team-files"].url == f"file://{team_files}"
    for zone in ("team-files", "team_s3"):
        path = node.mountpoint / zone / "file"
        path.write_bytes(b"bytes")
        with node.client() as client:
            assert client.entry(str(path)).zone == zone
            client.pin(str(path))
            assert client.entry(str(path)).pinned
            client.unpin(str(path))
            list(client.evict(str(path)))
            assert client.entry(str(path)).state == "remote"
            assert list(client.prefetch(str(path.parent)))[-1].done
            assert client.entry(str(path)).state == "cached"
            assert f"zone {zone}" in client.why(str(path)).reasons[0]


@pytest.mark.promise("store-zones")
def test_a_secret_of_one_store_is_for_no_other_client(
    make_team_node: TeamNode, counted: Versitygw, configuration: Path
) -> None:
    """The server of ``team_s3`` refuses the token that goes with the keys in the environment, and all keys but its own."""
    node = make_team_node()
    node.environment["AWS_SESSION_TOKEN"] = "of-the-default-stores"
    node.start()
    (node.mountpoint / "team_s3/file").write_bytes(b"signed")
    assert keys(counted) == {"file"}
    node.stop()
    configuration.write_text(configuration.read_text().replace(counted.secret_access_key, "SecretOfAnotherStore"))
    with pytest.raises(StartError, match=r"^stores\.team_s3: .*the store refuses the credentials"):
        node.start()
    assert "SecretOfAnotherStore" not in node.log.read_text()


# --- working directories ----------------------------------------------------------------------------------------------


@pytest.mark.promise("store-zones")
def test_a_role_falls_back_to_the_stores_of_its_team(
    make_team_node: TeamNode, team_files: Path, counted: Versitygw, place: S3Server
) -> None:
    (team_files / "job/chk-7").mkdir(parents=True)
    (team_files / "job/chk-7/state").write_bytes(b"of the team")
    place.client().put_object(Bucket=place.bucket, Key=place.key("checkpoints/job/chk-7/state"), Body=b"of all others")
    first, second = make_team_node("a").start(), make_team_node("b").start()
    workdir, other = first.mountpoint / "team-work/team_1", first.work / "worker_1"
    workdir.mkdir()
    other.mkdir()
    assert (workdir / "localState/job/chk-7/state").read_bytes() == b"of the team"
    assert (other / "localState/job/chk-7/state").read_bytes() == b"of all others"
    (workdir / "blobStorage/jar").write_bytes(b"jar")
    assert keys(counted) == {"jar"}
    assert (second.mountpoint / "team_s3/jar").read_bytes() == b"jar"
    (second.mountpoint / "team-work/team_2").mkdir()
    assert (second.mountpoint / "team-work/team_2/blobStorage/jar").read_bytes() == b"jar"
    (workdir / "localState/new").write_bytes(b"the second copy")
    assert not (team_files / "new").exists()


@pytest.mark.promise("store-zones")
def test_a_role_may_fall_back_to_no_store(make_node: NodeFactory, remote_files: Path, workspace: Path) -> None:
    for zone in ("checkpoints", "blobs"):
        (workspace / "remote" / zone).mkdir(parents=True)
        (workspace / "remote" / zone / "there").write_bytes(b"there")
    node = make_node(roles__alone__local_state="", roles__alone__blob_storage="").start()
    workdir = node.work / "alone_1"
    workdir.mkdir()
    for name in ("localState", "blobStorage"):
        directory = workdir / name
        assert not (directory / "there").exists()
        assert os.listdir(directory) == []
        (directory / "mine").write_bytes(b"mine")
        (directory / "mine").rename(directory / "other")
        os.link(directory / "other", workdir / "rocksdb" / name)
        (directory / "deep").mkdir()
        (directory / "deep/file").write_bytes(b"deep")
        assert sorted(os.listdir(directory)) == ["deep", "other"]
    assert (node.backing(workdir / "blobStorage/other")).read_bytes() == b"mine"
    node.stop()
    node.start()
    assert (workdir / "blobStorage/other").read_bytes() == b"mine"
    (workdir / "blobStorage/other").unlink()
    assert node.status().unsent_files == 0
    assert [path.name for path in (workspace / "remote/blobs").iterdir() if path.name != ".holdfast"] == ["there"]


# --- what is done by zone ---------------------------------------------------------------------------------------------


def test_a_sweep_of_a_team_store_takes_its_garbage_alone(make_team_node: TeamNode, team_files: Path) -> None:
    job(team_files / JOB)
    node = make_team_node().start()
    root = node.mountpoint / "team-files" / JOB
    with node.client() as client:
        plan = client.plan_sweep(SweepRequest(path=str(root)))
        assert plan.count
        assert all(item.path.startswith(str(root)) for item in plan.items or ())
        assert list(client.execute(plan.id))[-1].removed == plan.count


def test_regular_sweeps_are_of_the_stores_that_hold_state(make_team_node: TeamNode, team_files: Path) -> None:
    job(team_files / JOB)
    before = below(team_files / JOB)
    node = make_team_node(sweep__every_seconds=3600).start()
    wait_until(lambda: below(team_files / JOB) < before)
    swept = node.wait_event("swept", zone="team-files")
    assert swept["removed"]


def test_doctor_asks_each_store(make_team_node: TeamNode, team_files: Path) -> None:
    node = make_team_node().start()
    found = doctor_on(node)
    assert found["team-files"] == {
        "check": "team-files",
        "level": "ok",
        "found": f"file://{team_files} can be used",
        "mend": "",
        "about": "start",
    }
    assert found["team_s3"]["level"] == "ok"
    node.stop()
    shutil.rmtree(team_files)
    node.environment["HOLDFAST_STORES__TEAM_S3__OPTIONS__SECRET_ACCESS_KEY"] = "AnotherOne"
    found = doctor_on(node)
    assert found["team-files"]["level"] == "fail"
    assert found["team_s3"]["level"] == "fail"
    assert found["team_s3"]["mend"].startswith("check stores.team_s3.url")


def test_events_name_the_store(make_node: NodeFactory, counted: Versitygw) -> None:
    with FaultProxy(counted.endpoint) as proxy:
        through = counted.through(proxy.endpoint)
        options = {f"stores__team__options__{name}": value for name, value in through.options.items()}
        node = make_node(stores__team__url=through.url, remote__retry_deadline_seconds=0.3, **options).start()
        proxy.down()
        with pytest.raises(OSError, match="Input/output"):
            (node.mountpoint / "team/file").write_bytes(b"x")
        assert node.wait_event("remote-down")["store"] == "team"
        assert [name for name, remote in node.status().remotes.items() if not remote.up] == ["team"]
        proxy.up()


def test_a_query_can_have_its_checkpoints_in_any_store(make_team_node: TeamNode) -> None:
    node = make_team_node().start()
    socket = str(node.socket)
    assert checkpoint_location("flights", socket) == f"file://{node.checkpoints}/flights"
    assert checkpoint_location("flights", socket, store="team_s3") == f"file://{node.mountpoint}/team_s3/flights"
    with pytest.raises(ConfigurationError, match=r"no store 'team'; there are checkpoints, blobs, team-files, team_s3"):
        checkpoint_location("flights", socket, store="team")


# --- takeover, and stores that come and go ----------------------------------------------------------------------------


def test_the_stores_go_on_when_the_daemon_is_replaced(make_team_node: TeamNode, counted: Versitygw) -> None:
    node = make_team_node()
    node.supervised = True
    node.start()
    first = node.pid
    paths = [node.mountpoint / "team-files/file", node.mountpoint / "team_s3/file"]
    files = [path.open("w+b", buffering=0) for path in paths]
    for file in files:
        file.write(b"before ")
    with node.client() as client:
        client.restart()
    wait_until(lambda: node.answers() and node.pid != first)
    for file in files:
        file.write(b"and after")
        file.close()
    assert [path.read_bytes() for path in paths] == [b"before and after"] * 2
    assert list(node.status().remotes) == ["checkpoints", "blobs", "team-files", "team_s3"]
    assert keys(counted) == {"file"}
    assert node.events("taken-over")[0]["open_files"] == 2


def test_a_store_that_the_next_daemon_has_is_seen_though_it_was_looked_for_before(
    make_node: NodeFactory, workspace: Path
) -> None:
    configuration = workspace / "holdfast.toml"
    configuration.write_text("")
    node = make_node()
    node.environment["HOLDFAST_CONFIG"] = str(configuration)
    node.supervised = True
    node.start()
    zone = node.mountpoint / "team"
    assert not zone.exists()
    first = node.pid
    configuration.write_text(f'[stores.team]\nurl = "file://{workspace}/remote/team"\n')
    with node.client() as client:
        client.restart()
    wait_until(lambda: node.answers() and node.pid != first)
    assert zone.exists()


@pytest.mark.promise("unconfigured-stores")
def test_a_store_without_a_url_is_left_out(make_node: NodeFactory) -> None:
    node = make_node(blobs="", workdirs__blob_storage="").start()
    assert sorted(os.listdir(node.mountpoint)) == ["checkpoints", "work"]
    assert list(node.status().remotes) == ["checkpoints"]
    with pytest.raises(FileNotFoundError):
        os.stat(node.blobs)
    with pytest.raises(PermissionError):
        node.blobs.mkdir()
    (node.work / "jm_1").mkdir()
    (node.work / "jm_1/blobStorage/jar").write_bytes(b"jar")
    (node.checkpoints / "file").write_bytes(b"x")


@pytest.mark.promise("unconfigured-stores")
def test_a_daemon_that_takes_over_without_a_store_goes_on(
    make_team_node: TeamNode, configuration: Path, team_files: Path
) -> None:
    node = make_team_node()
    node.supervised = True
    node.start()
    zone = node.mountpoint / "team-files"
    (zone / "job").mkdir()
    (zone / "job/cached").write_bytes(b"cached")
    (node.checkpoints / "job").mkdir()
    configured = configuration.read_text()
    first = node.pid
    inside = os.open(zone / "job", os.O_RDONLY)
    with (zone / "job/cached").open("rb") as read, (zone / "job/written").open("wb", buffering=0) as written:
        written.write(b"begun")
        os.listdir(inside)
        configuration.write_text("")
        with node.client() as client:
            client.restart()
        wait_until(lambda: node.answers() and node.pid != first)
        (node.checkpoints / "job/file").write_bytes(b"goes on")
        with suppress(OSError):
            os.listdir(inside)
        with suppress(OSError):
            read.read()
        with suppress(OSError):
            written.write(b" and lost")
        with suppress(OSError):
            written.close()
    os.close(inside)
    assert sorted(os.listdir(node.mountpoint)) == ["blobs", "checkpoints", "work"]
    node.wait_event("zone-not-configured", zone="team-files", files=2)
    configuration.write_text(configured)
    second = node.pid
    with node.client() as client:
        client.restart()
    wait_until(lambda: node.answers() and node.pid != second)
    assert (zone / "job/cached").read_bytes() == b"cached"
    assert (zone / "job/written").read_bytes().startswith(b"begun")


@pytest.mark.parametrize("durability", ["commit", "async"])
def test_a_daemon_that_takes_over_without_a_store_lets_go_of_what_was_open(
    make_node: NodeFactory, workspace: Path, counted: Versitygw, durability: str
) -> None:
    """The daemon before has begun a release that it could not end, as the store did not answer; another file is open."""
    with FaultProxy(counted.endpoint) as proxy:
        through = counted.through(proxy.endpoint)
        options = ", ".join(f'{name} = "{value}"' for name, value in through.options.items())
        team = f'[stores.team]\nurl = "{through.url}"\noptions = {{ {options} }}\ndurability = "{durability}"\n'
        configuration = workspace / "holdfast.toml"
        configuration.write_text(team)
        node = make_node(remote__retry_deadline_seconds=3)
        node.environment["HOLDFAST_CONFIG"] = str(configuration)
        node.supervised = True
        node.start()
        paths = [node.mountpoint / "team" / name for name in ("mapped", "written")]
        files = [path.open("w+b", buffering=0) for path in paths]
        for file in files:
            file.write(b"before")
            os.fsync(file)
        mapped = mmap.mmap(files[0].fileno(), 6)
        files[0].close()
        proxy.down()
        mapped[:] = b"after!"
        files[1].write(b" and after")
        with suppress(OSError):
            paths[1].open("r+b").close()
        with suppress(OSError):
            mapped.close()
        first = node.pid
        configuration.write_text("")
        with node.client() as client:
            client.restart()
        wait_until(lambda: node.answers() and node.pid != first)
        second = node.pid
        with suppress(OSError):
            files[1].close()
        node.wait_event("unsent", path="team/written")
        assert node.events("send-delayed") == []
        (node.checkpoints / "file").write_bytes(b"goes on")
        assert node.pid == second
        configuration.write_text(team)
        proxy.up()
        with node.client() as client:
            client.restart()
        wait_until(lambda: node.answers() and node.pid != second)
        assert [path.read_bytes() for path in paths] == [b"after!", b"before and after"]


@pytest.mark.promise("unconfigured-stores")
def test_nothing_is_lost_of_a_store_that_is_no_longer_configured(make_node: NodeFactory, counted: Versitygw) -> None:
    with FaultProxy(counted.endpoint) as proxy:
        through = counted.through(proxy.endpoint)
        team = {f"stores__team__options__{name}": value for name, value in through.options.items()}
        team |= {"stores__team__url": through.url, "stores__team__durability": "async"}
        node = make_node(remote__retry_deadline_seconds=0.3, remote__delete_delay_seconds=3600)
        node.start(**team)
        zone = node.mountpoint / "team"
        for name in ("cached", "deleted"):
            (zone / name).write_bytes(name.encode())
        wait_until(lambda: keys(counted) == {"cached", "deleted"} and not node.status().unsent)
        proxy.down()
        (zone / "precious").write_bytes(b"precious")
        (zone / "deleted").unlink()
        node.stop()
        node.start()
        assert sorted(os.listdir(node.mountpoint)) == ["blobs", "checkpoints", "work"]
        told = {"zone": "team", "files": 2, "unsent": 1, "deletions": 1}
        assert node.wait_event("zone-not-configured") == told
        assert node.status().not_configured == {"team": 1}
        assert doctor_on(node)["team"]["level"] == "fail"
        node.stop()
        assert doctor_on(node)["team"]["level"] == "warn"
        proxy.up()
        node.start(**team, remote__delete_delay_seconds=0.1)
        wait_until(lambda: keys(counted) == {"cached", "precious"})
        assert sorted(os.listdir(zone)) == ["cached", "precious"]
        assert (zone / "precious").read_bytes() == b"precious"
        assert node.status().not_configured == {}


@pytest.mark.promise("unconfigured-stores")
def test_what_was_not_sent_to_such_a_store_is_known_without_the_index(make_node: NodeFactory, counted: Versitygw) -> None:
    with FaultProxy(counted.endpoint) as proxy:
        through = counted.through(proxy.endpoint)
        team = {f"stores__team__options__{name}": value for name, value in through.options.items()}
        team |= {"stores__team__url": through.url, "stores__team__durability": "async"}
        node = make_node(remote__retry_deadline_seconds=0.3).start(**team)
        assert os.listdir(node.mountpoint / "team") == []
        proxy.down()
        (node.mountpoint / "team/precious").write_bytes(b"precious")
        node.stop()
        shutil.rmtree(node.store / "index")
        node.start()
        assert node.wait_event("zone-not-configured") == {"zone": "team", "files": 1, "unsent": 1, "deletions": 0}
        node.stop()
        proxy.up()
        node.start(**team)
        wait_until(lambda: keys(counted) == {"precious"})


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_copy_of_one_store_is_not_served_as_anothers_of_the_same_name(
    make_node: NodeFactory, workspace: Path, *, taken_over: bool
) -> None:
    names = ["j/shared/00000000-0000-4000-8000-000000000001", "q/offsets/1", "plain"]
    only_in_one = "j/shared/00000000-0000-4000-8000-000000000002"
    for store in ("one", "two"):
        for name in [*names, only_in_one] if store == "one" else names:
            (workspace / store / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / store / name).write_bytes(store.encode())
    file = workspace / "holdfast.toml"
    file.write_text(f'[stores.team]\nurl = "file://{workspace}/one"\n')
    node = make_node()
    node.supervised = taken_over
    node.environment["HOLDFAST_CONFIG"] = str(file)
    node.start()
    zone = node.mountpoint / "team"
    assert {(zone / name).read_bytes() for name in [*names, only_in_one]} == {b"one"}
    for name in [*names, only_in_one]:
        node.wait_digest(zone / name)
    file.write_text(f'[stores.team]\nurl = "file://{workspace}/two"\n')
    if taken_over:
        first = node.pid
        with (zone / names[0]).open("rb") as opened:
            with node.client() as client:
                client.restart()
            wait_until(lambda: node.answers() and node.pid != first)
            assert opened.read() == b"one", "whoever has it open keeps it"
    else:
        node.stop()
        node.start()
    wait_until(lambda: [(zone / name).read_bytes() for name in names] == [b"two"] * 3)
    wait_until(lambda: not (zone / only_in_one).exists())
    assert "stores.team.url is another place than in the last run: 4 copies were dropped" in node.log.read_text()


def test_copies_stay_where_the_same_store_is_spelled_otherwise(make_node: NodeFactory, workspace: Path) -> None:
    (workspace / "one").mkdir()
    (workspace / "one/file").write_bytes(b"one")
    node = make_node().start(stores__team__url=f"file://{workspace}/one")
    assert (node.mountpoint / "team/file").read_bytes() == b"one"
    node.stop()
    (workspace / "link").symlink_to("one")
    node.start(stores__team__url=f"file://{workspace}/link/")
    assert (node.store / "tree/team/file").exists()
    assert "another place" not in node.log.read_text()
