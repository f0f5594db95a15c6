"""The first process of a node: makes the node's own view of the machine, says so, and then reaps orphans until it is killed.

Run in fresh name spaces as ``python -m tests.cluster.node_init PLAN``, a JSON object as ``Plan`` has it. With this process
the kernel kills all others of the node, and their mounts go with them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """A node's view: ``binds`` are directories seen at other paths, ``files`` texts by their paths, with their modes.

    ``lines`` are added to files that are there already. ``image``: a file system for ``disk``, or none.
    """

    hostname: str
    directories: list[str]
    binds: dict[str, str]
    files: dict[str, tuple[str, int]]
    lines: dict[str, list[str]]
    disk: str
    image: str

    def encoded(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self))


def main() -> None:
    """Make the node, say so with a line, and reap."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    plan = Plan(**json.loads(sys.argv[1]))
    socket.sethostname(plan.hostname)
    sources = {target: os.open(source, os.O_PATH) for target, source in plan.binds.items()}  # some may be below /run
    if plan.image:
        _mount("-o", "loop,noatime", plan.image, plan.disk)
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name in plan.directories:
        Path(name).mkdir(parents=True, exist_ok=True)
    _overlay("/etc", Path("/run/overlay-of-etc"))
    for target, source in sources.items():
        Path(target).mkdir(parents=True)
        _mount("--bind", f"/proc/self/fd/{source}", target, pass_fd=source)
        os.close(source)
    for name, (text, mode) in plan.files.items():
        _write(Path(name), text, mode)
    for name, lines in plan.lines.items():
        with Path(name).open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        signal.sigwait([signal.SIGCHLD])
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _overlay(directory: str, layer: Path) -> None:
    """Make a directory the node's own: what is written there stays in ``layer``."""
    for name in ("upper", "work"):
        (layer / name).mkdir(parents=True)
    _mount("-t", "overlay", "overlay", "-o", f"lowerdir={directory},upperdir={layer}/upper,workdir={layer}/work", directory)


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # it may be a link to elsewhere
    path.touch(mode=mode)
    path.chmod(mode)
    path.write_text(text)


def _mount(*arguments: str, pass_fd: int | None = None) -> None:
    subprocess.run(["mount", *arguments], check=True, pass_fds=[] if pass_fd is None else [pass_fd])


if __name__ == "__main__":
    main()
