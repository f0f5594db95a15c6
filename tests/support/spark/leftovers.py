"""What a sweep ought to have taken from a checkpoint location of Spark. It knows nothing of sweeps' own judgement.

Names are told apart by patterns of their own, zips are read by ``zipfile``; a version is superfluous if every batch that can
be restored, or run again, can be so without it.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator

from tests.support.checkpoints.roots import Root
from tests.support.spark.restore import Checkpoint, Restorable

_SHARED = re.compile(rb"(?P<store>.*)/(?:SSTs/.*\.sst|logs/.*\.log)")
_VERSION = re.compile(
    rb"(?P<stem>.*/state/\d+/\d+/(?:[^/]+/)?(?P<number>\d+)(?:_[^./]+)?)\.(?P<kind>zip|changelog|snapshot|delta)"
)
_SNAPSHOTS = (b"zip", b"snapshot")
_OLDEST_BATCHES = 4
"""Younger ones need nothing below the oldest retained version that these don't need."""


def leftovers(root: Root, location: bytes, min_batches: int) -> set[bytes]:
    """Return the names of files below ``location`` that nobody needs, when ``min_batches`` batches are to be kept."""
    return {
        *_temporary(root),
        *_lonely_checksums(root),
        *_unnamed_shared_files(root),
        *_superfluous_versions(root, location, min_batches),
    }


def _temporary(root: Root) -> Iterator[bytes]:
    return (name for name in root.files if name.endswith((b".tmp", b".tmp.crc")))


def _lonely_checksums(root: Root) -> Iterator[bytes]:
    for name in root.files:
        directory, _, last = name.rpartition(b"/")
        owner = last.removesuffix(b".crc")
        names = (owner, owner.removeprefix(b"."))
        if last != owner and not any(b"%s/%s" % (directory, each) in root.files for each in names):
            yield name


def _unnamed_shared_files(root: Root) -> Iterator[bytes]:
    named = {name for each in root.files if each.endswith(b".zip") for name in _named_by(root, each)}
    return (name for name in root.files if not name.endswith(b".crc") and _SHARED.fullmatch(name) and name not in named)


def _named_by(root: Root, name: bytes) -> Iterator[bytes]:
    directory = name.rpartition(b"/")[0].decode()
    with zipfile.ZipFile(io.BytesIO(root.files[name][0])) as archive:
        metadata = json.loads(archive.read("metadata").partition(b"\n")[2])
    for file in metadata["sstFiles"]:
        yield f"{directory}/SSTs/{file['dfsSstFileName']}".encode()
    for file in metadata.get("logFiles", ()):
        yield f"{directory}/logs/{file['dfsLogFileName']}".encode()


def _superfluous_versions(root: Root, location: bytes, min_batches: int) -> Iterator[bytes]:
    in_order = sorted(int(last) for name in root.files if (last := name.removeprefix(location + b"/commits/")).isdigit())
    oldest = min(in_order[0], in_order[-1] - min_batches)
    tried = Root()
    tried.files = dict(root.files)
    tried.delete(b"%s/commits/%d" % (location, batch) for batch in in_order[_OLDEST_BATCHES:])
    needs = _needs(tried, oldest)
    for name in root.files:
        match = _VERSION.fullmatch(name)
        if match is None or int(match["number"]) >= oldest or _has_snapshot_beside(tried, match):
            continue
        kept = tried.files.pop(name)
        if _needs(tried, oldest) == needs:
            yield name
        tried.files[name] = kept


def _has_snapshot_beside(root: Root, match: re.Match[bytes]) -> bool:
    """Whether these are changes beside a snapshot of the same version: they stay as long as that does."""
    return match["kind"] not in _SNAPSHOTS and any(b"%s.%s" % (match["stem"], kind) in root.files for kind in _SNAPSHOTS)


def _needs(root: Root, oldest: int) -> tuple[set[Restorable], set[bytes]]:
    checkpoint = Checkpoint(root)
    return checkpoint.restorable(), checkpoint.restorable_at(oldest)
