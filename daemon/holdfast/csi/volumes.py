"""Volumes: what their attributes ask for, and the node's records of those that are bound."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from holdfast.csi.serving import invalid
from holdfast.system.whole_file import write_whole

_ATTRIBUTES = ("store", "path", "readOnly", "uid", "gid", "workdir", "slots", "socket")
_WORKDIR = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9_-]+")
_STORE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_POD = "csi.storage.k8s.io/pod."


class Wanted(msgspec.Struct, frozen=True):
    """The content of a volume: ``path`` below the mount ("": all of it), made for ``uid`` and ``gid`` if it is missing.

    -1 stands for the owner of the directory above. Or ``workdir``, as ROLE/ID, which the volume then holds; with ``slots``,
    the first that is free of ID-0, ID-1, …. Or, with ``socket``, the directory of ``pods.sock``.
    """

    path: str
    read_only: bool
    uid: int = -1
    gid: int = -1
    workdir: str = ""
    slots: bool = False
    socket: bool = False


class Volume(msgspec.Struct, frozen=True):
    """A volume that is bound to ``target``, and the pod that it is for, as far as kubelet has said so.

    ``path`` is what is bound, below the mount.
    """

    id: str
    target: str
    wanted: Wanted
    pod_uid: str = ""
    pod: str = ""
    path: str = ""

    @property
    def lease(self) -> str:
        """The volume as the holder of a working directory: without spaces, which a claim's id may have."""
        return f"{self.pod_uid}/{quote(self.id, safe='')}"

    @property
    def name(self) -> str:
        """The volume for people."""
        return f"{self.id} of {self.pod}" if self.pod else self.id


def wanted(attributes: Mapping[str, str], *, read_only: bool) -> Wanted:
    """Read a volume's attributes; names with a slash are kubelet's and its helpers'. Raises ``CallError``."""
    own = {name: value for name, value in attributes.items() if "/" not in name}
    if unknown := sorted(own.keys() - set(_ATTRIBUTES)):
        raise invalid(f"volumeAttributes: there is no {unknown[0]!r}; there are {', '.join(_ATTRIBUTES)}")
    store, path = own.get("store", ""), own.get("path", "")
    if store and not _STORE.fullmatch(store):
        raise invalid(f"volumeAttributes: {store!r} is no name of a store")
    if path and not store:
        raise invalid("volumeAttributes: a path is one in a store: name that too")
    workdir, slots = own.get("workdir", ""), _flag(own, "slots")
    if workdir and (store or path or not _WORKDIR.fullmatch(workdir)):
        raise invalid(f"volumeAttributes: workdir is ROLE/ID, and stands without store and path; {workdir!r} is not")
    if slots and not workdir:
        raise invalid("volumeAttributes: slots are those of a workdir: name that too")
    socket = _flag(own, "socket")
    if socket and (store or path or workdir):
        raise invalid("volumeAttributes: socket stands without store, path and workdir")
    names = [name for name in path.split("/") if name]
    if path.startswith("/") or "\0" in path or any(name in (".", "..") for name in names):
        raise invalid(f"volumeAttributes: the path {path!r} must lead down from its store, without '..'")
    return Wanted(
        path="/".join([store, *names] if store else []),
        read_only=read_only or _flag(own, "readOnly"),
        uid=_number(own, "uid"),
        gid=_number(own, "gid"),
        workdir=workdir,
        slots=slots,
        socket=socket,
    )


def pod_of(attributes: Mapping[str, str]) -> tuple[str, str]:
    """Return uid and name of the pod that kubelet has told (``podInfoOnMount``); empty ones if it has not."""
    name = attributes.get(f"{_POD}name", "")
    return attributes.get(f"{_POD}uid", ""), f"{attributes.get(f'{_POD}namespace', '')}/{name}" if name else ""


def _flag(attributes: Mapping[str, str], name: str) -> bool:
    value = attributes.get(name, "false")
    if value not in ("true", "false"):
        raise invalid(f"volumeAttributes: {name} is 'true' or 'false', not {value!r}")
    return value == "true"


def _number(attributes: Mapping[str, str], name: str) -> int:
    value = attributes.get(name, "-1")
    if not re.fullmatch(r"-1|\d{1,9}", value):
        raise invalid(f"volumeAttributes: {name} is a number, not {value!r}")
    return int(value)


class Records:
    """The records in ``directory``, a file for each target, so that a driver knows what one before it has bound."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def get(self, target: str) -> Volume | None:
        """Return the volume that is bound to a target; None if none is, or its record can't be read."""
        return _read(self._file(target))

    def put(self, volume: Volume) -> None:
        """Record a volume. Raises ``OSError``."""
        write_whole(self._file(volume.target), [msgspec.json.encode(volume)])

    def discard(self, target: str) -> None:
        """Forget what is bound to a target, if it is known. Raises ``OSError``."""
        self._file(target).unlink(missing_ok=True)

    def all(self) -> list[Volume]:
        """Return all volumes that are bound."""
        return [volume for file in sorted(self._directory.glob("*.json")) if (volume := _read(file)) is not None]

    def _file(self, target: str) -> Path:
        return self._directory / (hashlib.blake2b(target.encode(), digest_size=16).hexdigest() + ".json")


def _read(file: Path) -> Volume | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Volume)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
