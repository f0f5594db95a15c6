"""A name in a working directory that falls back to a store shows what its caller may see at the object's own path."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.security.stores import evict, exchange, put, refused, team_table, workdir_of
from tests.support.daemons.faults.switches import SWITCHES
from tests.support.daemons.node import Node, wait_until
from tests.support.stores.s3 import Versitygw
from tests.support.users.privileges import ALICE, MALLORY, User

SECRET = b"of nobody else's business"
TEAM = 60_100
COLLEAGUE = User(60_002, 60_002, [TEAM])


@pytest.fixture(params=[True, False], ids=["passthrough", "daemon-io"])
def node(make_node: NodeFactory, request: pytest.FixtureRequest) -> Node:
    """A started node, in both modes of data, whose kernel may cache names and attributes for an hour."""
    return make_node(mount__passthrough=request.param, remote__metadata_ttl_seconds=3600).start()


@pytest.fixture(params=["localState", "blobStorage"])
def fallback(request: pytest.FixtureRequest) -> str:
    """A zone of a working directory that falls back to a store."""
    return str(request.param)


def store_of(node: Node, fallback: str) -> Path:
    """The zone that ``fallback`` falls back to."""
    return node.checkpoints if fallback == "localState" else node.blobs


def opened(path: Path, flags: int) -> Callable[[], bytes]:
    """An attempt to read what a call of open(2) with ``flags`` gives."""

    def attempt() -> bytes:
        fd = os.open(path, flags, 0o600)
        try:
            return os.pread(fd, 100, 0)
        finally:
            os.close(fd)

    return attempt


def fetched(node: Node) -> int:
    return int(node.status().counters["objects_fetched"])


@pytest.mark.promise("fallback-rights")
@pytest.mark.parametrize("is_local", [True, False])
def test_what_lies_below_a_closed_directory_does_not_exist_elsewhere(node: Node, fallback: str, *, is_local: bool) -> None:
    """Mallory would read any object whose path she can guess: by the same path below her own working directory."""
    path = put(store_of(node, fallback) / "secret/state", SECRET, ALICE)
    if not is_local:
        evict(node, path)
    before = fetched(node)
    home = workdir_of(node, MALLORY, "driver_m")

    def attack() -> None:
        found, missing = home / fallback / "secret/state", home / fallback / "secret/nothing"
        for attempt in (
            lambda name: opened(name, os.O_RDONLY)(),
            os.stat,
            os.lstat,
            os.listxattr,
            lambda name: os.getxattr(name, "user.any"),
            lambda name: os.setxattr(name, "user.any", b""),
            lambda name: os.truncate(name, 1),
            lambda name: os.chmod(name, 0o666),
            lambda name: os.utime(name),
            os.unlink,
            os.rmdir,
            os.listdir,
            lambda name: os.link(name, home / "tmp/taken"),
            lambda name: os.rename(name, home / "tmp/taken"),
            lambda name: exchange(name, home / "tmp"),
            lambda name: os.open(name, os.O_PATH),
        ):
            assert refused(lambda: attempt(found)) == refused(lambda: attempt(missing)) == errno.ENOENT  # noqa: B023
        assert (home / fallback / "secret").is_dir()  # which everybody sees in the store, too
        assert refused(lambda: os.listdir(home / fallback / "secret")) == errno.EACCES

    MALLORY.do(attack)
    assert fetched(node) == before


@pytest.mark.promise("fallback-rights")
def test_attributes_are_seen_where_names_may_be_looked_up_and_bytes_by_readers_only(node: Node, fallback: str) -> None:
    """Mallory would read a file of mode 0600, whose copy in her own working directory is hers."""
    put(store_of(node, fallback) / "open/state", SECRET, ALICE, directory_mode=0o755, file_mode=0o600)
    before = fetched(node)
    home = workdir_of(node, MALLORY, "driver_m")

    def attack() -> None:
        found = home / fallback / "open/state"
        assert found.stat().st_size == len(SECRET)
        handle = os.open(found, os.O_PATH)
        for attempt in (
            opened(found, os.O_RDONLY),
            opened(found, os.O_RDWR),
            opened(Path(f"/proc/self/fd/{handle}"), os.O_RDONLY),
            lambda: os.truncate(found, 1),
            lambda: os.chmod(found, 0o666),
            lambda: os.setxattr(found, "user.any", b""),
            lambda: os.link(found, home / "tmp/taken"),
            lambda: os.rename(found, home / "tmp/taken"),
        ):
            assert refused(attempt) == errno.EACCES
        assert refused(lambda: exchange(found, home / "tmp")) in (errno.EACCES, errno.ENOENT)

    MALLORY.do(attack)
    assert fetched(node) == before


@pytest.mark.promise("closed-copies")
@pytest.mark.parametrize("attacker_is_first", [True, False])
def test_the_kernel_shows_nobody_what_it_has_cached_for_another(
    node: Node, fallback: str, *, attacker_is_first: bool
) -> None:
    """Mallory would look into Alice's open working directory just after Alice, and see what Alice has looked up."""
    path = put(store_of(node, fallback) / "secret/state", SECRET, ALICE)
    evict(node, path)
    home = workdir_of(node, ALICE, "driver_a")
    name = home / fallback / "secret/state"

    def use() -> None:
        assert name.stat().st_size == len(SECRET)
        assert name.read_bytes() == SECRET
        assert os.listdir(name.parent) == ["state"]

    def attack() -> None:
        assert refused(name.stat) == refused(name.read_bytes) == errno.ENOENT
        assert refused((home / fallback / "secret/nothing").stat) == errno.ENOENT
        assert refused(lambda: os.listdir(name.parent)) == errno.EACCES

    for turn in range(6):
        if turn % 2 == attacker_is_first:
            ALICE.do(use)
        else:
            MALLORY.do(attack)


@pytest.mark.promise("closed-copies")
def test_a_copy_that_another_has_fetched_into_ones_own_directory_stays_closed(node: Node, fallback: str) -> None:
    """Root follows a path through Mallory's working directory, and leaves a copy there that is hers."""
    put(store_of(node, fallback) / "secret/state", SECRET, ALICE)
    home = workdir_of(node, MALLORY, "driver_m")
    name = home / fallback / "secret/state"
    assert name.read_bytes() == SECRET
    assert name.stat().st_uid == MALLORY.uid

    def attack() -> None:
        assert refused(name.stat) == refused(opened(name, os.O_RDONLY)) == errno.ENOENT
        assert refused(opened(name, os.O_RDWR | os.O_CREAT)) == errno.EACCES
        assert refused(opened(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)) == errno.EACCES
        assert refused(lambda: os.link(name, home / "tmp/taken")) == errno.ENOENT
        assert refused(lambda: os.rename(name, home / "tmp/taken")) == errno.ENOENT
        assert refused(lambda: os.rename(name.parent, home / "tmp/taken")) == errno.EXDEV
        assert refused(lambda: os.rename(name.parent, home / fallback / "mine")) == errno.EXDEV
        assert refused(lambda: exchange(name.parent, home / "tmp")) != 0
        (home / "tmp/own").write_bytes(b"own")

    MALLORY.do(attack)
    assert name.read_bytes() == SECRET


@pytest.mark.promise("closed-copies")
def test_a_closed_copy_does_not_leave_in_a_directory_that_is_open(node: Node) -> None:
    """Mallory moves a directory of her own that she may list, with a copy below that root has fetched into it."""
    node.checkpoints.joinpath("open").mkdir()
    put(node.checkpoints / "open/secret/state", SECRET, ALICE)
    put(node.checkpoints / "open/shared/state", b"for all", ALICE, directory_mode=0o755)
    home = workdir_of(node, MALLORY, "driver_m")
    assert (home / "localState/open/shared/state").read_bytes() == b"for all"
    MALLORY.do(lambda: os.rename(home / "localState/open", home / "tmp/moved"))
    MALLORY.do(lambda: os.rename(home / "tmp/moved", home / "localState/open"))
    assert (home / "localState/open/secret/state").read_bytes() == SECRET

    def attack() -> None:
        for goal in ("tmp/moved", "localState/moved"):
            assert refused(lambda: os.rename(home / "localState/open", home / goal)) == errno.EXDEV  # noqa: B023

    MALLORY.do(attack)


@pytest.mark.promise("closed-copies")
def test_a_closed_copy_does_not_leave_in_exchange(node: Node, fallback: str) -> None:
    """Mallory exchanges a directory that she may list, with a copy of a closed file, for another one."""
    put(store_of(node, fallback) / "open/state", SECRET, ALICE, directory_mode=0o755, file_mode=0o600)
    home = workdir_of(node, MALLORY, "driver_m")
    assert (home / fallback / "open/state").read_bytes() == SECRET
    no_exchange = (errno.EXDEV, errno.EINVAL, errno.EACCES)

    def attack() -> None:
        (home / "tmp/taken").mkdir()
        assert refused(lambda: exchange(home / fallback / "open", home / "tmp/taken")) in no_exchange
        assert refused(lambda: exchange(home / "tmp/taken", home / fallback / "open")) in no_exchange
        (home / "localState/one").mkdir()
        (home / "localState/one/own").touch()
        exchange(home / "localState/one", home / "tmp/taken")
        assert os.listdir(home / "tmp/taken") == ["own"]

    MALLORY.do(attack)


def test_a_copy_that_arrives_while_its_directory_is_examined_does_not_leave(make_node: NodeFactory, workspace: Path) -> None:
    """Mallory moves a directory just when root reads a closed file in it, behind the back of the daemon's walk."""
    node = make_node()
    node.faults = ["pausing_walk"]
    node.environment = {SWITCHES: str(workspace)}
    node.start()
    (node.checkpoints / "open").mkdir()
    put(node.checkpoints / "open/deep/state", SECRET, ALICE, directory_mode=0o755, file_mode=0o600)
    (node.checkpoints / "open/deep/other").write_bytes(b"for all")
    home = workdir_of(node, MALLORY, "driver_m")
    assert (home / "localState/open/deep/other").read_bytes() == b"for all"
    (workspace / "pause").touch()

    def attack() -> None:
        assert refused(lambda: os.rename(home / "localState/open", home / "tmp/taken")) == errno.EXDEV

    with ThreadPoolExecutor() as thread:
        attacking = thread.submit(MALLORY.do, attack)
        wait_until((workspace / "paused").exists)
        got = thread.submit((home / "localState/open/deep/state").read_bytes)
        wait([got], timeout=30)  # the kernel might let nobody in until the directory is moved
        (workspace / "pause").unlink()
        assert got.result() == SECRET
        attacking.result()


@pytest.mark.promise("closed-copies")
def test_a_copy_without_a_name_is_opened_by_nobody_else(node: Node, fallback: str) -> None:
    """Mallory holds a copy by O_PATH, removes its name, by which its object was known, and opens it while root reads it."""
    put(store_of(node, fallback) / "open/state", SECRET, ALICE, directory_mode=0o755, file_mode=0o600)
    home = workdir_of(node, MALLORY, "driver_m")
    name = home / fallback / "open/state"

    def attack() -> None:
        handle = os.open(name, os.O_PATH)
        name.unlink()
        for flags in (os.O_RDONLY, os.O_RDWR):
            assert refused(opened(Path(f"/proc/self/fd/{handle}"), flags)) == errno.EACCES

    with name.open("rb") as file:
        MALLORY.do(attack)
        assert file.read() == SECRET


@pytest.mark.promise("closed-copies")
def test_a_copy_is_known_as_one_when_the_index_is_lost(make_node: NodeFactory) -> None:
    """Without the index nothing tells Mallory's copy from a file of her own, until it was compared with the store."""
    node = make_node().start()
    put(node.checkpoints / "secret/state", SECRET, ALICE)
    home = workdir_of(node, MALLORY, "driver_m")
    name = home / "localState/secret/state"
    assert name.read_bytes() == SECRET
    node.kill()
    shutil.rmtree(node.store / "index")
    node.start()

    def attack() -> None:
        for attempt in (
            opened(name, os.O_RDONLY),
            lambda: os.link(name, home / "tmp/linked"),
            lambda: os.rename(name, home / "tmp/renamed"),
            lambda: os.rename(name.parent, home / "tmp/directory"),
            opened(name, os.O_RDONLY),
        ):
            refused(attempt)

    MALLORY.do(attack)
    assert os.listdir(home / "tmp") == []


@pytest.mark.promise("closed-copies")
def test_a_copy_is_closed_when_the_directory_of_its_object_is(node: Node, fallback: str) -> None:
    """Who may no longer read an object would read on in the copy."""
    path = put(store_of(node, fallback) / "team/state", SECRET, ALICE, directory_mode=0o755)
    home = workdir_of(node, MALLORY, "driver_m")
    name = home / fallback / "team/state"

    def read() -> None:
        assert name.read_bytes() == SECRET

    MALLORY.do(read)
    path.parent.chmod(0o700)
    MALLORY.do(lambda: refused(name.read_bytes))
    path.parent.chmod(0o755)
    path.chmod(0o600)
    MALLORY.do(lambda: refused(name.read_bytes))
    ALICE.do(read)


@pytest.mark.promise("store-modes")
def test_a_closed_directory_that_the_daemon_has_forgotten_is_closed_by_the_modes_of_its_store(
    make_node: NodeFactory, workspace: Path
) -> None:
    """After the loss of the local store, a directory has the mode of its store: 0750 keeps others out, for good."""
    node = make_node(stores__checkpoints__directory_mode="0750", stores__checkpoints__uid=ALICE.uid).start()
    put(node.checkpoints / "secret/state", SECRET, ALICE)
    node.stop()
    node.lose_disk()
    node.start()
    home = workdir_of(node, MALLORY, "driver_m")

    def attack() -> None:
        assert refused((home / "localState/secret/state").read_bytes) == errno.ENOENT
        assert refused((home / "localState/secret").stat) == errno.ENOENT

    MALLORY.do(attack)
    own = workdir_of(node, ALICE, "driver_a")
    ALICE.do(lambda: (own / "localState/secret/state").read_bytes())


@pytest.mark.promise("own-files")
def test_own_files_are_ones_own_where_the_store_is_closed(node: Node) -> None:
    """What a process itself writes in localState needs no right to the store, whatever that has under the same names."""
    put(node.checkpoints / "secret/state", SECRET, ALICE)
    put(node.checkpoints / "secret/sub/state", SECRET, ALICE)
    home = workdir_of(node, MALLORY, "driver_m")

    def use() -> None:
        directory = home / "localState/own"
        directory.mkdir()
        (home / "localState/secret/sub").mkdir()
        for path in (directory / "file", home / "localState/secret/sub/state"):
            path.write_bytes(b"own")
            assert path.read_bytes() == b"own"
            with path.open("ab") as file:
                file.write(b" and more")
            os.link(path, home / "tmp/linked")
            os.replace(home / "tmp/linked", home / "tmp/moved")
            os.rename(home / "tmp/moved", path.with_name("back"))
            assert sorted(os.listdir(path.parent)) == sorted(["back", path.name])
            assert path.read_bytes() == b"own and more"

    MALLORY.do(use)


@pytest.mark.promise("caller-rights")
def test_who_is_root_in_a_namespace_of_his_own_is_himself_here(node: Node) -> None:
    """Mallory maps her user to 0 in a user namespace, where she may do everything."""
    put(node.checkpoints / "secret/state", SECRET, ALICE)
    home = workdir_of(node, MALLORY, "driver_m")
    name = home / "localState/secret/state"
    for mapped in ("--map-root-user", "--map-current-user", "--user"):
        command = ["unshare", mapped, "sh", "-c", f"id -u; cat {name} {name.with_name('nothing')}"]
        tried = subprocess.run(command, capture_output=True, preexec_fn=MALLORY.become, check=False)
        if b"unshare failed" in tried.stderr:
            pytest.skip("users may make no namespaces here")
        assert tried.stdout.split() in ([b"0"], [b"%d" % MALLORY.uid], [b"65534"]), tried
        assert tried.stderr.count(b"No such file") == 2, tried


@pytest.mark.promise("own-files")
def test_directories_of_ones_own_move_in_and_out(node: Node) -> None:
    """Nothing is gained here: what a user has made moves between his directories, as it does for root."""
    home = workdir_of(node, MALLORY, "driver_m")
    base = home / "localState"

    def use() -> None:
        (home / "tmp/made").mkdir()
        (home / "tmp/made/file").write_bytes(b"own")
        os.rename(home / "tmp/made", base / "moved")
        (base / "moved/more").mkdir()
        os.rename(base / "moved", base / "renamed")
        os.rename(base / "renamed", home / "tmp/back")
        assert sorted(os.listdir(home / "tmp/back")) == ["file", "more"]
        assert (home / "tmp/back/file").read_bytes() == b"own"

    MALLORY.do(use)


@pytest.mark.promise("store-modes")
def test_a_closed_directory_stays_closed_when_copies_are_evicted_and_the_daemon_is_killed(
    make_node: NodeFactory,
) -> None:
    """Mallory fills the cache, or waits for a restart, until nothing of Alice's directory is left but its objects."""
    node = make_node().start()
    path = put(node.checkpoints / "secret/state", SECRET, ALICE)
    evict(node, path)
    node.kill()
    node.start()
    home = workdir_of(node, MALLORY, "driver_m")

    def attack() -> None:
        assert refused((home / "localState/secret/state").stat) == errno.ENOENT
        assert refused(path.stat) == errno.EACCES

    MALLORY.do(attack)
    assert path.parent.stat().st_mode & 0o7777 == 0o700


@pytest.mark.promise("store-modes")
def test_the_mode_of_a_file_lasts_until_its_copy_is_evicted(make_node: NodeFactory) -> None:
    """What does not hold: modes of files are not kept with objects, so a 0600 of Alice's ends with her copy."""
    node = make_node().start()
    path = put(node.checkpoints / "open/state", SECRET, ALICE, directory_mode=0o755, file_mode=0o600)
    home = workdir_of(node, MALLORY, "driver_m")
    MALLORY.do(lambda: refused((home / "localState/open/state").read_bytes))
    evict(node, path)
    assert path.stat().st_mode & 0o7777 == 0o644
    MALLORY.do(lambda: (home / "localState/open/state").read_bytes())


# --- two teams --------------------------------------------------------------------------------------------------------


@pytest.fixture
def team_store(s3_versitygw: Versitygw) -> Versitygw:
    """Where team red has its objects, on a server that counts requests."""
    return s3_versitygw.below(uuid.uuid4().hex)


@pytest.fixture(params=[True, False], ids=["passthrough", "daemon-io"])
def team_node(make_node: NodeFactory, workspace: Path, team_store: Versitygw, request: pytest.FixtureRequest) -> Node:
    """A started node with a store for team red, whose role any user can take."""
    file = workspace / "holdfast.toml"
    file.write_text(team_table("red", team_store.url, team_store.options, ALICE, TEAM))
    node = make_node(mount__passthrough=request.param)
    node.environment.update(HOLDFAST_CONFIG=str(file))
    return node.start()


@pytest.mark.promise("fallback-rights")
def test_a_team_is_seen_by_its_members_alone(team_node: Node, team_store: Versitygw) -> None:
    """Mallory takes the role of another team, and would see its store: content, names, sizes, or that it was asked."""
    team_store.client().put_object(Bucket=team_store.bucket, Key=team_store.key("job/chk-7/state"), Body=SECRET)
    home = workdir_of(team_node, MALLORY, "red_m")
    names = ("job", "job/chk-7", "job/chk-7/state", "job/nothing", "nothing")
    team_store.clear_log()

    def attack() -> None:
        for base in ("localState", "blobStorage"):
            for name in names:
                for attempt in (os.stat, os.listdir, os.unlink, os.rmdir, lambda path: opened(path, os.O_RDONLY)()):
                    assert refused(lambda: attempt(home / base / name)) == errno.ENOENT  # noqa: B023
        for name in names:
            assert refused(lambda: (home / "blobStorage" / name).write_bytes(b"")) in (errno.EACCES, errno.ENOENT)  # noqa: B023
        assert refused(lambda: os.listdir(team_node.mountpoint / "red")) == errno.EACCES
        assert refused(lambda: (team_node.mountpoint / "red/job").stat()) == errno.EACCES

    MALLORY.do(attack)
    assert not team_store.requests(), "the store was asked for somebody who may not see it"
    for member, directory in ((ALICE, "red_a"), (COLLEAGUE, "red_c")):
        own = workdir_of(team_node, member, directory)

        def use(own: Path = own) -> None:
            for base in ("localState", "blobStorage"):
                assert (own / base / "job/chk-7/state").stat().st_size == len(SECRET)
                assert (own / base / "job/chk-7/state").read_bytes() == SECRET

        member.do(use)
    MALLORY.do(attack)


@pytest.mark.promise("caller-rights")
def test_a_group_counts_only_for_who_is_in_it_now(team_node: Node, team_store: Versitygw) -> None:
    """A user who has left the team would go on reading, by what the daemon remembers of his groups."""
    team_store.client().put_object(Bucket=team_store.bucket, Key=team_store.key("state"), Body=SECRET)
    home = workdir_of(team_node, COLLEAGUE, "red_c")
    COLLEAGUE.do(lambda: (home / "localState/state").read_bytes())
    User(COLLEAGUE.uid, COLLEAGUE.gid).do(lambda: refused((home / "localState/state").read_bytes))
    User(COLLEAGUE.uid, TEAM).do(lambda: (home / "localState/state").read_bytes())
