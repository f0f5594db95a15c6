"""Files between a process, its ``localState/`` and the store's zone: linked if their bytes never change, else copied."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from pathlib import Path
from typing import NamedTuple

from holdfast.digest import fingerprint_of_file

_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTSUP}


class Captured(NamedTuple):
    """A file as it was when it was added; ``digest`` is its xxh3-128 in hex."""

    size_bytes: int
    digest: str


def capture(source: Path, target: Path, *, lasting: bool) -> Captured:
    """Keep the bytes of ``source`` as ``target``: by a hard link if they never change again (``lasting``), else by a copy.

    Raises ``OSError``.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if lasting:
        _link(source, target)
    else:
        shutil.copyfile(source, target)
    return captured(target)


def captured(file: Path) -> Captured:
    """Return what identifies the bytes of a file. Raises ``OSError``."""
    with file.open("rb") as stream:
        size_bytes = os.fstat(stream.fileno()).st_size
        return Captured(size_bytes, fingerprint_of_file(stream.fileno()).digest.hex())


def send(source: Path, target: Path) -> None:
    """Store the bytes of ``source`` as the object ``target``: whole or not at all. Raises ``OSError``."""
    place(source, target, f".{target.name}.{uuid.uuid4()}.tmp")


def place(source: Path, target: Path, temporary_name: str) -> None:
    """Copy a file to a temporary name, which stays on this node, and give it its own. Raises ``OSError``."""
    temporary = target.with_name(temporary_name)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(source, temporary)
        temporary.rename(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def restore(local: Path, remote: Path, target: Path, *, lasting: bool) -> None:
    """Make ``target`` a file with the bytes of ``local`` or, where that is not there, of ``remote``.

    A ``lasting`` file is linked, not copied, and must not be written to. Raises ``OSError``.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for source in (local, remote):
        try:
            if lasting:
                _link(source, target)
            else:
                shutil.copyfile(source, target)
        except FileNotFoundError:
            if source is remote:
                raise
        else:
            return


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as problem:
        if problem.errno not in _NO_LINK:
            raise
        shutil.copyfile(source, target)
