"""The sides that are compared: the plain disk, the peers that are installed, and Holdfast, all on one disk.

Everything is made by ``Sides`` and ends with it, whatever happens: mounts, processes, files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx

from holdfast.mount import mountpoint
from tests.benchmarks.rows import Target
from tests.support.daemons.node import Node
from tests.support.stores.s3 import S3Server, serving_versitygw
from tests.support.stores.servers import free_port
from tests.support.stores.versitygw import BuildError

_START_SECONDS = 30.0
_STEP_SECONDS = 0.02
_LIBFUSE_EXAMPLE = Path("/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c")
_WORKDIR = "bench_1"
"""The working directory that is measured: its holder is the process that makes it, this one."""


@dataclass(frozen=True)
class Sides:
    """All targets of a run, and Holdfast's daemon. ``server`` is the S3 store behind the blob zone; None: a directory.

    ``at_end`` ends what rows have started, before all else.
    """

    directory: Path
    plain: Target
    bindfs: Target
    passthrough_ll: Target | None
    rclone: Target | None
    work: Target
    checkpoints: Target
    node: Node
    server: S3Server | None
    rclone_control: str
    at_end: ExitStack

    @classmethod
    @contextmanager
    def made(cls, base: Path) -> Iterator[Self]:
        """Make everything in a new directory below ``base``, which must be on a real disk."""
        with ExitStack() as stack:
            directory = stack.enter_context(_directory(base))
            server = _server(stack)
            node = stack.enter_context(_near_node(directory / "holdfast", server))
            work = node.work / _WORKDIR
            work.mkdir()
            port = free_port()
            yield cls(
                directory=directory,
                plain=_plain(directory / "plain"),
                bindfs=stack.enter_context(_bindfs(directory / "bindfs")),
                passthrough_ll=stack.enter_context(_passthrough_ll(directory / "passthrough_ll")),
                rclone=stack.enter_context(_rclone(directory / "rclone", port)) if shutil.which("rclone") else None,
                work=Target("work", work, node.backing(work), "holdfast: work/bench_1", ours=True),
                checkpoints=Target(
                    "checkpoints",
                    node.checkpoints,
                    directory / "holdfast" / "remote" / "checkpoints",
                    "holdfast: checkpoints over file://, level commit",
                    ours=True,
                    commits=True,
                    share=0.2,
                ),
                node=node,
                server=server,
                rclone_control=f"http://127.0.0.1:{port}/vfs/stats",
                at_end=stack.enter_context(ExitStack()),
            )

    @property
    def directories(self) -> tuple[Target, ...]:
        """The targets that are directories like any other."""
        peers = (self.plain, self.bindfs, self.passthrough_ll, self.rclone)
        return tuple(target for target in (*peers, self.work, self.checkpoints) if target)

    def settle(self) -> None:
        """Return when nobody has work left over from what was done before; the disk neither: it would share the turn."""
        deadline = time.monotonic() + _START_SECONDS
        while self._busy() and time.monotonic() < deadline:
            time.sleep(_STEP_SECONDS)
        os.sync()

    def _busy(self) -> bool:
        status = self.node.status()
        if any(remote.pending_deletions for remote in status.remotes.values()) or status.unsent or status.fetching:
            return True
        if self.rclone is None:
            return False
        cache = httpx.post(self.rclone_control).json()["diskCache"]
        return bool(cache["uploadsQueued"] or cache["uploadsInProgress"])


def _server(stack: ExitStack) -> S3Server | None:
    try:
        return stack.enter_context(serving_versitygw())
    except BuildError:
        return None


def _near_node(directory: Path, server: S3Server | None) -> AbstractContextManager[Node]:
    remote = f"file://{directory}/remote"
    if server is None:
        return started_node(directory)
    return started_node(directory, (f"{remote}/checkpoints", server.below("blobs").url), server.environment)


@contextmanager
def started_node(
    directory: Path, urls: tuple[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Node]:
    """A node of its own. ``urls`` of the checkpoint and the blob store: by default directories beside it."""
    remote = f"file://{directory}/remote"
    node = Node(directory, *(urls or (f"{remote}/checkpoints", f"{remote}/blobs")), log__level="info")
    node.environment = dict(environment or {})
    try:
        yield node.start()
    finally:
        node.clean_up()


@contextmanager
def _directory(base: Path) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=base))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def _plain(directory: Path) -> Target:
    directory.mkdir()
    return Target("ext4", directory, directory, "the plain disk")


@contextmanager
def _bindfs(directory: Path) -> Iterator[Target]:
    front, back = directory / "mount", directory / "source"
    command = ["bindfs", "-f", str(back), str(front)]
    with _mounted(front, back, command):
        yield Target("bindfs", front, back, "bindfs -f SOURCE MOUNT")


@contextmanager
def _passthrough_ll(directory: Path) -> Iterator[Target | None]:
    """libfuse's own example of a fast file system, which libfuse3-dev has as source; None where it can't be built."""
    front, back, program = directory / "mount", directory / "source", directory / "passthrough_ll"
    directory.mkdir()
    if not _LIBFUSE_EXAMPLE.exists():
        yield None
        return
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True)
    subprocess.run(["gcc", "-O2", "-o", str(program), str(_LIBFUSE_EXAMPLE), *flags.stdout.split()], check=True)
    with _mounted(front, back, [str(program), "-f", "-o", f"source={back}", str(front)]):
        yield Target(
            "passthrough_ll",
            front,
            back,
            "passthrough_ll -f -o source=SOURCE MOUNT",
            share=0.15,  # it holds a descriptor for each node that the kernel knows, and limits are at 20,000
            cannot=frozenset({"list-many"}),
        )


@contextmanager
def _rclone(directory: Path, port: int) -> Iterator[Target]:
    front, back = directory / "mount", directory / "source"
    options = ["--config", os.devnull, "--vfs-cache-mode", "full", "--cache-dir", str(directory / "cache")]
    control = ["--rc", "--rc-no-auth", "--rc-addr", f"127.0.0.1:{port}"]
    with _mounted(front, back, ["rclone", "mount", *options, *control, str(back), str(front)]):
        yield Target(
            "rclone",
            front,
            back,
            "rclone mount --vfs-cache-mode full SOURCE MOUNT",
            share=0.2,
            sees_changes=False,
            cannot=frozenset({"link"}),
        )


@contextmanager
def _mounted(front: Path, back: Path, command: list[str]) -> Iterator[None]:
    front.mkdir(parents=True)
    back.mkdir()
    log = front.with_name("log")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        _await_mount(front, process, log)
        yield
    finally:
        if mountpoint.mount_at(str(front)) is not None:
            mountpoint.detach(str(front))
        process.terminate()
        process.wait()


def _await_mount(front: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while mountpoint.mount_at(str(front)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"{process.args!r} does not mount:\n{log.read_text(errors='replace')}")
        time.sleep(_STEP_SECONDS)
