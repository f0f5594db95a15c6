"""status, events and batches: the state of the daemon, what happened, and what the batches of streaming queries took."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import kernel_advice
from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, asking_client
from holdfast.cli.output import counted, duration, moment, print_json, print_json_line, print_table, say, size
from holdfast.control.messages import BatchInfo, EventInfo, OtherDiskStatus, Status
from holdfast.problems import is_clearly_below

_SHOWN_PARTS = 3
_SHORTEST_SECONDS = 0.05


def status(socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Show the daemon's state: mount, stores, cache, pending work."""
    with asking_client(socket) as daemon:
        found = daemon.status()
    if as_json:
        print_json(found)
    else:
        print_table(("", ""), _rows(found), "")


def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new events.")] = False,
    since: Annotated[int, typer.Option(min=0, max=10**18 - 1, help="Only events after this number.")] = 0,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Show what happened: failed stores, corrupt files, evictions.

    docs/operations.md has each kind of event, and what to do about it.
    """
    with asking_client(socket) as daemon:
        if as_json and not follow:
            print_json(daemon.events(since))
            return
        for event in daemon.follow_events(since) if follow else daemon.events(since):
            print_json_line(event) if as_json else say(_line(event))


def _other_disk(disk: OtherDiskStatus) -> str:
    if disk.problem:
        return f"NOT USED: {disk.path} ({disk.problem})"
    inodes = ""
    if disk.files:
        few = " (NO NEW FILES)" if not disk.free_files else ""
        inodes = f", {counted(disk.free_files, 'inode')} of {disk.files}{few}"
    return (
        f"{size(disk.free_bytes)} free of {size(disk.size_bytes)}{inodes}, {size(disk.min_free_bytes)} kept free, "
        f"working directories: {disk.workdirs}, in {disk.path}"
    )


def _rows(found: Status) -> list[tuple[str, str]]:
    limit = f" of {size(found.max_bytes)}{' on each disk' * bool(found.other_disks)}" if found.max_bytes else ""
    rows = [
        ("node", found.node),
        *(("WRONG", problem) for problem in found.problems),
        (
            "mounted",
            f"{found.mountpoint} for {duration(found.uptime_seconds)} (daemon {found.pid}, version {found.version})",
        ),
        ("data", found.data_mode),
        ("end", kernel_advice.end_of(found.takeover)),
    ]
    if not found.is_public:
        rows.append(("cached", f"{size(found.cached_bytes)}{limit} in {counted(found.cached_files, 'file')}"))
    where = f", in {found.store}" if found.store else ""
    rows.append(("disk", f"{size(found.free_bytes)} free, {size(found.min_free_bytes)} kept free{where}"))
    if found.files:
        free, kept = f"{found.free_files:,} free of {found.files:,}", f"{found.min_free_files:,} kept free"
        is_only_of_inodes = not found.free_files and not is_clearly_below(found.free_bytes, found.min_free_bytes)
        few = " (NO NEW FILES: the disk is out of inodes)" if is_only_of_inodes else ""
        rows.append(("inodes", f"{free}, {kept}{few}"))
    rows += (("disk", _other_disk(disk)) for disk in found.other_disks)
    for name, remote in found.remotes.items():
        state = "up" if remote.up else f"DOWN since {moment(remote.since)}: {remote.problem}"
        pending = f", {counted(remote.pending_deletions, 'deletion')} pending" if remote.pending_deletions else ""
        if remote.refused_deletions:
            pending += f", {remote.refused_deletions} of these refused (holdfast events says why)"
        rows.append((name, f"{remote.url} ({state}{pending})"))
    if found.is_public:
        return rows
    counters = found.counters
    rows.append(("opens", f"{counters['hits']} found here, {counters['misses']} fetched"))
    rows.append(("moved", f"{size(counters['bytes_fetched'])} fetched, {size(counters['bytes_uploaded'])} sent"))
    rows.append(("requests", ", ".join(f"{count} {kind}" for kind, count in counters["requests"].items())))
    if counters["corrupt_dropped"] or found.quarantined:
        rows.append(("corrupt", f"{counters['corrupt_dropped']} dropped, {found.quarantined} in quarantine"))
    if found.draining:
        rows.append(("draining", "takes nothing new for its stores ('holdfast drain --undo' ends that)"))
    if found.mountpoint_protection.startswith("unprotected"):
        rows.append(("mountpoint", f"the directory below is {found.mountpoint_protection}"))
    if found.hidden_files:
        rows.append(("hidden", f"{', '.join(found.hidden_files)}, in the directory below the mount"))
    if found.unsent_files:
        example = f", {found.unsent[0]} among them" if found.unsent else ""
        rows.append(("unsent", f"{counted(found.unsent_files, 'file')}{example}"))
    return rows


def _line(event: EventInfo) -> str:
    fields = "  ".join(
        f"{name}={value}{f' ({event.user})' if name == 'uid' and event.user else ''}" for name, value in event.fields.items()
    )
    return f"{event.number:>5}  {moment(event.time)}  {event.kind:<18} {fields}"


def batches(
    query: Annotated[str | None, typer.Argument(help="Only those of the query with this name.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many of the last ones.")] = 20,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Show the last batches of Spark's streaming queries.

    How long each took, and with how many hits, misses and bytes.
    """
    with asking_client(socket) as daemon:
        found = daemon.batches(query)[-count:]
    if as_json:
        print_json(found)
        return
    for each in found:
        say(line(each))
    if not found:
        say("no driver on this node has reported a batch")


def line(batch: BatchInfo) -> str:
    """Return a batch on one line."""
    parts = sorted(((each, name) for name, each in batch.parts.items() if name != "triggerExecution"), reverse=True)
    longest = ", ".join(f"{name} {each:.1f} s" for each, name in parts[:_SHOWN_PARTS] if each >= _SHORTEST_SECONDS)
    state = f"; state: load {batch.load_seconds:.1f} s, commit {batch.commit_seconds:.1f} s" if batch.commit_seconds else ""
    misses = f"{batch.misses} {'miss' if batch.misses == 1 else 'misses'}"
    return (
        f"{moment(batch.time)}  {batch.query} (user {batch.uid}): batch {batch.batch} took {batch.seconds:.1f} s"
        f"{f' ({longest})' if longest else ''}: {misses}, {counted(batch.hits, 'hit')}, "
        f"{size(batch.fetched_bytes)} from the stores, {size(batch.uploaded_bytes)} to them, "
        f"{counted(batch.store_requests, 'request')}{state}"
    )
