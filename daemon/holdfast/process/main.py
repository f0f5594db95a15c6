"""The process of ``holdfastd``: reads the configuration, sets up the log, runs the daemon (``startup``), reports its result.

The result of the start goes to ``--ready-fd`` (one JSON line) or systemd's notification socket, and to exit status and log.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import logging
import os
import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import trio

from holdfast import __version__
from holdfast.config import Config, LoadedConfig, LogSection, handed_over, load, settings_of
from holdfast.errors import ConfigurationError, HoldfastError, NotConfiguredError, StoreUnsuitableError, UnmountedError
from holdfast.preflight import start_checks
from holdfast.process import allocator, capabilities, descriptors, startup
from holdfast.supervision.service_manager import NOT_CONFIGURED_STATUS, RESTART_STATUS, ServiceManager, received
from holdfast.system import streams
from holdfast.system.text import PrintableStream, printable
from holdfast.telemetry import LineFormatter, PrivateLogFile

_log = logging.getLogger("holdfast")
_COLLECTOR_THRESHOLDS = (10_000, 20, 50)  # Python's: 700, 10, 10
_NOBODY_READS, _OUTPUT_FAILED = 141, 74  # as for the command (docs/operations.md, "Exit statuses")
_TURN_SECONDS = 0.0005
"""The time for which a thread that computes in Python may hold the interpreter (Python's default: 5 ms). The event loop
needs it several times per request, after each system call.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the daemon; return its exit status."""
    options = command_line_parser().parse_args(arguments)
    allocator.use_one_arena()
    faulthandler.enable()  # prints a traceback on a crash in C
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would have credentials and files of users in it
    capabilities.keep_needed()
    if options.check:
        return _check(options)
    descriptors.make_room()
    manager, passed = ServiceManager(os.environ, options.unit), received(os.environ)
    starter = _Starter(options.ready_fd, manager)
    try:
        read = _reader(options)
        try:
            # With a mount to take over, a restart may yet find the file mended.
            loaded = _checked(read, unit="" if passed else options.unit)  # before anything is opened, even the log
            _set_up_log(loaded.config.log, loaded, in_background=options.background)
        except (ConfigurationError, StoreUnsuitableError):
            startup.give_up_if_disk_failed(read().config, manager, passed)
            raise
        ready = partial(starter.ready, loaded.config.mount.mountpoint)
        wants_restart = trio.run(startup.run_daemon, loaded, manager, passed, ready, partial(_again, read))
    except UnmountedError as problem:
        starter.not_needed(problem)
        return 0
    except HoldfastError as problem:
        starter.failed(problem)
        return NOT_CONFIGURED_STATUS if isinstance(problem, NotConfiguredError) else 1
    except ExceptionGroup as problem:
        error = _start_error(problem)
        if error is not None and not starter.is_ready:
            starter.failed(error)
        else:
            starter.faulty(problem)
        return 1
    except Exception as problem:  # noqa: BLE001 the last chance to report it: stderr may lead nowhere
        starter.faulty(problem)
        return 1
    return RESTART_STATUS if wants_restart else 0


def _check(options: argparse.Namespace) -> int:
    """Say on stderr why no daemon could start with the configuration; return the exit status. Changes nothing."""
    try:
        silent = start_checks.ask_stores(_checked(_reader(options), unit=options.unit), os.environ)
    except HoldfastError as problem:
        _complain(str(problem))
        return 1
    for name, reason in silent.items():
        _complain(f"warning: the store {name} does not answer ({reason}); a daemon would start all the same")
    return 0


def _reader(options: argparse.Namespace) -> Callable[[], LoadedConfig]:
    """Return a function that reads the configuration from all its sources."""
    handed = {} if options.options_fd is None else handed_over(options.options_fd)
    keeper = {"mount.keeper": options.keeper} if options.keeper else {}
    return partial(load, options.config, os.environ, {**handed, **settings_of(options.set), **keeper})


def _checked(read: Callable[[], LoadedConfig], *, unit: str) -> LoadedConfig:
    """Read the configuration and check it, without opening anything that it names. Raises ``HoldfastError``.

    ``unit``: the unit to start once there is a configuration, if that may be missing.
    """
    loaded = read()
    if unit:
        _check_configured(loaded, unit)
    start_checks.check(loaded, os.environ)
    return loaded


def _check_configured(loaded: LoadedConfig, unit: str) -> None:
    if not loaded.config.mount.mountpoint:
        file = loaded.file or "the configuration"
        raise NotConfiguredError(
            f"not configured yet: set mount.mountpoint and the stores' urls in {file}, then: systemctl start {unit}"
        )


def _complain(problem: str) -> None:
    sys.stderr.write(f"holdfastd: {printable(problem)}\n")


def _again(read: Callable[[], LoadedConfig]) -> Config:
    """Read the configuration again, while the daemon serves, and ask its stores. Raises ``HoldfastError``; blocks."""
    loaded = _checked(read, unit="")
    start_checks.ask_stores(loaded, os.environ)
    return loaded.config


def _start_error(problem: ExceptionGroup[Exception]) -> HoldfastError | None:
    """Return the error for which a start failed; None if it is a bug."""
    inner: Exception = problem
    while isinstance(inner, ExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner if isinstance(inner, HoldfastError) else None


class _Starter:
    """Reports the result of the start to the process that waits for it."""

    def __init__(self, ready_fd: int | None, manager: ServiceManager) -> None:
        self._ready_fd = ready_fd
        self._manager = manager
        self.is_ready = False

    def ready(self, mountpoint: str) -> None:
        """Report that the mount answers."""
        self.is_ready = True
        _spare_the_collector()
        sys.setswitchinterval(_TURN_SECONDS)
        # First: from now on it is restarted if it dies, or gives no more signs of life.
        self._manager.tell(f"READY=1\nWATCHDOG=1\nSTATUS=mounted on {mountpoint}")
        self._report({"ready": True, "pid": os.getpid()})

    def not_needed(self, problem: UnmountedError) -> None:
        """Report ready although there is nothing to do: to systemd any exit before that is a failure."""
        _log.info("%s", problem)
        self._manager.tell(f"READY=1\nSTATUS={problem}")

    def failed(self, problem: HoldfastError) -> None:
        """Report that the daemon could not start, or had to stop."""
        if not self._report({"ready": False, "code": problem.code, "errno": problem.errno, "message": str(problem)}):
            _complain(str(problem))
        self._manager.tell(f"STATUS={problem}")

    def faulty(self, problem: Exception) -> None:
        """Report that the daemon ends because of a bug; the waiting process gets the innermost reason, the log all."""
        _log.critical("the daemon ends by a fault of its own", exc_info=problem)
        inner: Exception = problem
        while isinstance(inner, ExceptionGroup):
            inner = inner.exceptions[0]
        reason = f"the daemon ends by a fault of its own ({type(inner).__name__}: {inner}); its log tells more"
        self._report({"ready": False, "code": "internal", "message": reason})

    def _report(self, message: dict[str, object]) -> bool:
        """Tell the process that waits, once. Return whether there is one, and it is still there."""
        if self._ready_fd is None:
            return False
        fd, self._ready_fd = self._ready_fd, None
        try:
            os.write(fd, json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            return False
        finally:
            os.close(fd)
        return True


def _spare_the_collector() -> None:
    """Exclude everything loaded so far, which stays until the end, from later garbage collections.

    A full collection visits every object and stops the event loop: 28 ms for the objects of the imports alone, and 2 ms per
    10,000 nodes. Nodes don't become garbage in cycles, so full collections may be rarer than Python's default.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


def command_line_parser() -> argparse.ArgumentParser:
    """Return the parser of the daemon's command line."""
    parser = argparse.ArgumentParser(prog="holdfastd", description="The Holdfast daemon: one per node, one mount.")
    parser.add_argument("--config", type=Path, help="configuration file (default: /etc/holdfast/holdfast.toml)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, as in cache.max_bytes=20GiB"
    )
    parser.add_argument("--check", action="store_true", help="only say whether a daemon could start with the configuration")
    parser.add_argument(
        "--keeper", metavar="DIRECTORY", help="the directory of the keeper that holds the mount (mount.keeper)"
    )
    parser.add_argument("--background", action="store_true", help="log to the file, not to stderr")
    parser.add_argument(
        "--ready-fd", type=int, help="descriptor to which one line of JSON is written once the mount answers"
    )
    parser.add_argument("--options-fd", type=int, help="descriptor with the options of holdfast mount")
    parser.add_argument("--unit", default="", help="the name of the systemd unit that this daemon is")
    parser.add_argument("--version", action="version", version=f"holdfastd {__version__}")
    return parser


def _set_up_log(section: LogSection, loaded: LoadedConfig, *, in_background: bool) -> None:
    handler: logging.Handler
    if section.file or in_background:
        file = Path(section.file or f"{loaded.config.store.directory}.log")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handler = PrivateLogFile(file, section.max_bytes)
        except OSError as problem:
            raise start_checks.unwritable_log(loaded, file, str(problem.strerror)) from None
    else:
        handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(f"{_time(handler)}%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=section.level.upper(), handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _time(handler: logging.Handler) -> str:
    """Return the time format of log lines; empty if systemd's journal adds its own (systemd.exec(5))."""
    to_journal = "JOURNAL_STREAM" in os.environ and not isinstance(handler, logging.FileHandler)
    return "" if to_journal else "%(asctime)s "


def run() -> NoReturn:
    """Run the daemon and end the process.

    Everything is closed by then. Threads abandoned in the middle of a request to a store must not keep the process alive:
    shutting the interpreter down could wait for their native code for ever.
    """
    streams.prepare()
    sys.stderr = PrintableStream(sys.stderr)
    try:
        try:
            status = main()
        except SystemExit as end:  # argparse's: after its help, or for a wrong command line
            status = int(end.code or 0)
        sys.stdout.flush()
    except BrokenPipeError:
        status = _NOBODY_READS
    except OSError as problem:
        _complain(f"the output can't be written: {problem.strerror}")
        status = _OUTPUT_FAILED
    logging.shutdown()
    streams.finish()
    os._exit(status)
