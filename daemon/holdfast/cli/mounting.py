"""The commands mount, restart and keeper."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast import extras
from holdfast.cli import kernel_advice
from holdfast.cli.options import DEFAULT_SOCKET, ConfigFile, Json, Settings, Socket, number
from holdfast.cli.output import print_json, say, warn
from holdfast.cli.progress import waiting
from holdfast.cli.unmounting import tell_unsent, wait_end
from holdfast.config import Config, hand_over, load, settings_of
from holdfast.control.client import ControlClient, RefusedError
from holdfast.control.messages import Failure, RemoteStatus, Status
from holdfast.errors import ConfigurationError, DaemonUnreachableError, HoldfastError
from holdfast.mount import dead_mount_users
from holdfast.mount import mountpoint as mountpoints
from holdfast.supervision import restart_check
from holdfast.supervision.keeper import ABANDON_SECONDS

_START_SECONDS = 180.0
_BEFORE_SIGTERM_SECONDS = 15.0
_ASK_SECONDS = 0.02
_STATUS_SECONDS = 10.0
_MODULE = (sys.executable, "-P", "-m")
"""The command that runs a module of ours. With -P no file in the current directory, which may be anybody's, counts."""
_SUPERVISOR = "holdfast.supervision.supervisor"


def mount(
    mountpoint: Annotated[str | None, typer.Argument(help="An empty directory.")] = None,
    store: Annotated[
        str | None, typer.Option(help="The directory on the local disk for cache and working directories.")
    ] = None,
    checkpoints: Annotated[
        str | None, typer.Option(help="URL of the checkpoint store: file:///…, s3://bucket/prefix, …")
    ] = None,
    blobs: Annotated[str | None, typer.Option(help="URL of the blob store.")] = None,
    config: ConfigFile = None,
    settings: Settings = None,
    socket: Annotated[
        Path | None, typer.Option(envvar="HOLDFAST_SOCKET", help="Where the control socket is made.", readable=False)
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make the mountpoint if it is missing.")] = False,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay, and log to the terminal.")] = False,
    supervise: Annotated[
        bool,
        typer.Option(
            "--supervise", help="Keep the mount alive, with the files open in it, while the daemon is replaced or dead."
        ),
    ] = False,
    keeper: Annotated[
        Path | None,
        typer.Option(
            help="The directory of 'holdfast keeper', which holds the mount while there is no daemon.", readable=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start the daemon and mount; return when the mount answers."""
    extras.require(extras.DAEMON, "mount")
    from holdfast.preflight import start_checks  # it needs the daemon's parts, which take half a second to import

    options = {
        "mount.mountpoint": str(Path(mountpoint).absolute()) if mountpoint else None,
        "store.directory": str(Path(store).absolute()) if store else None,
        "stores.checkpoints.url": checkpoints,
        "stores.blobs.url": blobs,
        "control.socket": str(socket.absolute()) if socket else None,
        "mount.keeper": str(keeper.absolute()) if keeper else None,
    }
    options = _with_settings(options, settings_of(settings or []))
    loaded = load(config, os.environ, options)  # report mistakes here, not in a log
    if create and loaded.config.mount.mountpoint:
        mountpoints.create(loaded.config.mount.mountpoint)
    start_checks.check(loaded, os.environ)  # before the supervisor makes its socket
    replaces_dead = mountpoints.mount_at(loaded.config.mount.mountpoint) is not None
    command = [*_MODULE, "holdfast.daemon"]
    if supervise:
        command = [*_supervisor(loaded.config), *command]
    if config:
        command += ["--config", str(config.absolute())]
    options_fd = hand_over({key: value for key, value in options.items() if value is not None})
    at = command.index("--") if supervise else None
    if foreground:
        os.set_inheritable(options_fd, True)
        os.execv(sys.executable, _inserted(command, ["--options-fd", str(options_fd)], at))
    with waiting("mounting", as_json=as_json):
        started = _start([*command, "--background"], options_fd, at)
    status = _status_of(Path(loaded.config.control.socket))
    stores = status.remotes if status else {}
    if as_json:
        place = {"mountpoint": loaded.config.mount.mountpoint, "socket": loaded.config.control.socket}
        print_json({**started, **place, "stores": stores})
    else:
        say(f"mounted on {loaded.config.mount.mountpoint} (daemon {started['pid']})")
        _warn_of_silent(stores)
        if status and supervise and (problem := kernel_advice.supervised_in_vain(status)):
            warn(problem)
        if replaces_dead:
            _warn_of_left_behind()


def _warn_of_left_behind() -> None:
    try:
        users = dead_mount_users.users()
    except TimeoutError as problem:
        warn(f"it is not known whether a process still uses the dead mount: {problem}")
        return
    if users:
        warn(kernel_advice.left_behind(users))


def keeper(
    directory: Annotated[Path, typer.Argument(help="A directory of the keeper's own, as in /run/holdfast/keeper.")],
    abandon: Annotated[
        float, typer.Option(parser=number(), metavar="SECONDS", help="How long it holds a mount for which no daemon comes.")
    ] = ABANDON_SECONDS,
) -> None:
    """Hold the mount of a daemon in another pod.

    The mount stays while that daemon is dead or replaced, and what works in it waits for the next one.
    The daemon is given the same directory (mount.keeper). The keeper needs no rights and starts nothing.
    """
    os.execv(sys.executable, [*_MODULE, "holdfast.supervision.keeper", "--abandon", str(abandon), str(directory)])


def restart(
    lazy: Annotated[bool, typer.Option("--lazy", help="Do it even though files are open in the mount.")] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Replace the daemon by a new one with the same options.

    The mount and the files open in it stay if a supervisor holds them: 'holdfast mount --supervise', or systemd.
    Otherwise it is unmounted and mounted again.
    """
    with ControlClient(socket) as client:
        status = client.status()
    with waiting("restarting", as_json=as_json):
        if status.takeover == "takeover":
            started = _replace(socket)
            outcome = "the mount went on"
        else:
            started = _mount_again(status, lazy=lazy)
            outcome = f"{status.takeover}; so it was unmounted and mounted again"
    now = _status_of(socket)
    stores = now.remotes if now else {}
    if as_json:
        print_json({**started, "mountpoint": status.mountpoint, "stores": stores})
    else:
        say(f"restarted on {status.mountpoint} (daemon {started['pid']}): {outcome}")
        _warn_of_silent(stores)
        tell_unsent(status)


def _with_settings(options: dict[str, str | None], settings: dict[str, str]) -> dict[str, str | None]:
    """Merge options and ``--set``. Raises ``ConfigurationError`` for a key in both."""
    for key in settings:
        if options.get(key) is not None:
            raise ConfigurationError(f"--set {key}: another option says this too; keep one of them")
    return {**options, **settings}


def _replace(socket: Path) -> dict[str, object]:
    """Restart the daemon under its mount; return the new one's ready message."""
    with ControlClient(socket) as client:
        pid = client.restart().pid
    wait_end(pid)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with suppress(DaemonUnreachableError), ControlClient(socket) as client:
            return {"ready": True, "pid": client.status().pid}
        time.sleep(_ASK_SECONDS)
    raise HoldfastError(
        f"the daemon {pid} has ended, and no other has taken the mount over within {_START_SECONDS:.0f} s; "
        "its log tells more (holdfast config show: log.file; journalctl -u holdfastd)"
    )


def _mount_again(status: Status, *, lazy: bool) -> dict[str, object]:
    command = _command_of(status.pid)
    if "--background" not in command:
        raise HoldfastError(
            f"the daemon {status.pid} runs under another supervisor; restart it there (systemctl restart holdfastd)"
        )
    supervisor = _supervisor_of(status.pid)
    options_fd = _options_of(status.pid, command)
    command = _to_run_again(command)
    restart_check.check([*command, "--options-fd", str(options_fd)])
    (mountpoints.detach if lazy else mountpoints.unmount)(status.mountpoint)
    wait_end(status.pid)
    return _start([*supervisor, *command], options_fd, len(supervisor) - 1 if supervisor else None)


def _supervisor_of(pid: int) -> list[str]:
    """Return the command line, with ``--`` at its end, of the supervisor that started the daemon ``pid``; [] if none did."""
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    command = _command_of(int(parent))
    if _SUPERVISOR not in command:
        return []
    return _to_run_again(command[: command.index("--") + 1])


def _command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")


def _to_run_again(command: list[str]) -> list[str]:
    """Return the command without the descriptors that were for this run."""
    for option in ("--ready-fd", "--options-fd"):
        command = _without(option, command)
    if "-P" not in command:  # an earlier version started it
        command = [command[0], "-P", *command[1:]]
    return command


def _supervisor(config: Config) -> list[str]:
    """Return the command line prefix that runs the daemon under a supervisor, which holds the mount."""
    socket = Path(config.control.socket)
    mountpoint = mountpoints.real_path(config.mount.mountpoint)
    supervisor = [*_MODULE, _SUPERVISOR, "--directory", str(socket.parent), "--mountpoint", mountpoint]
    return [*supervisor, *(["--kept"] if config.mount.keeper else []), "--"]


def _start(command: list[str], options_fd: int, at: int | None = None) -> dict[str, object]:
    """Start the daemon in the background; return its ready message. Raises ``HoldfastError`` with its reason.

    ``options_fd`` has its options (``config.handed_over``) and is closed. ``at`` is the position in the command for the
    options that name descriptors; None: at the end.
    """
    reader, writer = os.pipe()
    with open(reader) as channel:
        process = subprocess.Popen(
            _inserted(command, ["--ready-fd", str(writer), "--options-fd", str(options_fd)], at),
            pass_fds=[writer, options_fd],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(writer)
        os.close(options_fd)
        ready, _, _ = select.select([channel], [], [], _START_SECONDS)
        line = channel.readline() if ready else ""
    if not line:
        what = "ended without a word" if ready else f"did not get ready within {_START_SECONDS:.0f} s, and was ended"
        if not ready:
            _end(process)
        raise HoldfastError(f"the daemon (pid {process.pid}) {what}; its log tells more (holdfast config show: log.file)")
    message: dict[str, object] = json.loads(line)
    if not message["ready"]:
        number = message.get("errno", HoldfastError.errno)
        raise RefusedError(msgspec.convert({**message, "errno": number}, Failure))
    return message


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a daemon that did not get ready: it may be in the way of the next one."""
    process.terminate()
    try:
        process.wait(_BEFORE_SIGTERM_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # a daemon that hangs, and its supervisor


def _inserted(command: list[str], options: list[str], at: int | None) -> list[str]:
    """Return the command with options at a position; None: at the end."""
    return [*command, *options] if at is None else [*command[:at], *options, *command[at:]]


def _without(option: str, command: list[str]) -> list[str]:
    if option not in command:
        return command
    at = command.index(option)
    return command[:at] + command[at + 2 :]


def _options_of(pid: int, command: list[str]) -> int:
    """Return a descriptor with the options that the daemon ``pid`` was started with."""
    if "--options-fd" not in command:  # an earlier version started it
        return hand_over({})
    return os.open(f"/proc/{pid}/fd/{command[command.index('--options-fd') + 1]}", os.O_RDONLY | os.O_CLOEXEC)


def _status_of(socket: Path) -> Status | None:
    """Return the daemon's status; None if it does not give it: it is mounted all the same."""
    try:
        with ControlClient(socket, _STATUS_SECONDS) as client:
            return client.status()
    except HoldfastError:
        return None


def _warn_of_silent(stores: dict[str, RemoteStatus]) -> None:
    for name, store in stores.items():
        if not store.up:
            warn(
                f"the store {name} does not answer ({store.problem}); what is cached can be read, and requests are retried: "
                "'holdfast wait --stores' returns when all stores answer"
            )
