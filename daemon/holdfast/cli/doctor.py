"""doctor: checks of the machine, of the daemon that answers, and of what the next one would find, with a remedy each."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import typer

from holdfast import extras
from holdfast.cli import doctor_daemon, kernel_advice
from holdfast.cli.finding import Check, Finding, findings_of
from holdfast.cli.options import DEFAULT_SOCKET, ConfigFile, Json, Socket
from holdfast.cli.output import print_json, say, say_marked
from holdfast.mount import dead_mount_users, fuse_device


def doctor(config: ConfigFile = None, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Check machine, daemon and stores; say how to mend faults.

    Exits with 1 if a check failed.

    Without a daemon, or with --config, it checks what a daemon would find that starts with that configuration.
    """
    found = [
        replace(finding, about=about)
        for about, checks in _checks(config, socket)
        for name, check in checks
        for finding in findings_of(name, check)
    ]
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        _print(found, config, socket)
    if any(finding.level == "fail" for finding in found):
        raise typer.Exit(1)


def _print(found: list[Finding], config: Path | None, socket: Path) -> None:
    """Print findings. Those of a daemon and of a configuration that may be another one's stand below headings."""
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    headings = {
        "machine": "this machine",
        "daemon": f"the daemon at {socket}",
        "start": f"a daemon that starts with {config or os.environ.get('HOLDFAST_CONFIG', 'the configuration')}",
    }
    has_headings = {"daemon", "start"} <= {finding.about for finding in found}
    width = max(len(finding.check) for finding in found)
    before = ""
    for finding in found:
        if has_headings and finding.about != before:
            say(f"{headings[finding.about]}:")
        before = finding.about
        say_marked(f"{finding.level:>4}", colours[finding.level], f"  {finding.check:<{width}}  {finding.found}")
        if finding.mend:
            say(f"      {'':<{width}}  → {finding.mend}")


def _checks(config: Path | None, socket: Path) -> Iterator[tuple[str, Iterable[tuple[str, Check]]]]:
    """Yield the checks by name, and what they are about."""
    status, silence = doctor_daemon.asked(socket)
    yield "machine", _machine(has_daemon=status is not None)
    if silence is not None:
        yield "daemon", [("daemon", lambda: iter([silence]))]
    if status is not None:
        yield "daemon", doctor_daemon.checks(socket, status)
    if status is None or config is not None or "HOLDFAST_CONFIG" in os.environ:
        if extras.missing(extras.DAEMON):
            lacking = Finding("packages", "fail", extras.advice(extras.DAEMON, "a daemon on this machine"))
            yield "start", [("packages", lambda: iter([lacking]))]
            return
        from holdfast.cli import doctor_start  # it needs the daemon's parts, which take half a second to import

        yield "start", doctor_start.checks(config, socket, status, tells_of_mounts=status is None and silence is None)


def _machine(*, has_daemon: bool) -> Iterator[tuple[str, Check]]:
    yield "kernel", _kernel
    if not has_daemon or os.geteuid() == 0:  # the daemon that serves has what it needs
        yield "fuse", _fuse
    yield "dead mounts", _dead_mounts


def _kernel() -> Iterator[Finding]:
    release = platform.release()
    if kernel_advice.version_of(release) < kernel_advice.OLDEST_KERNEL:
        yield Finding("kernel", "fail", release, "install a kernel of 5.4 or newer (rename flags and pidfds are needed)")
    elif lacking := kernel_advice.lacks(release):
        mend = "install a kernel of 6.9 or newer; until then, restart and upgrade while no job of the node runs"
        yield Finding("kernel", "warn", f"{release}: {lacking}", mend)
    else:
        yield Finding("kernel", "ok", release)


def _dead_mounts() -> Iterator[Finding]:
    """Report processes that a crash has left with files which nobody will serve again."""
    try:
        users = dead_mount_users.users()
    except TimeoutError as problem:
        yield Finding("dead mounts", "warn", f"it is not known whether a process still uses one: {problem}")
        return
    if users:
        yield Finding("dead mounts", "warn", kernel_advice.left_behind(users), "start them again")


def _fuse() -> Iterator[Finding]:
    if (found := fuse_device.why_unusable()) is not None:
        yield Finding("fuse", "fail", *found)
    else:
        yield Finding("fuse", "ok", "/dev/fuse can be opened")
