"""FTP for ``FsspecStore``: fsspec's file system, but with errors that tell a missing file from all other trouble.

fsspec takes each error of a listing for a missing file, also that of a server which is too busy to answer. And FTP has one
reply, 550, for what is missing, refused or in the way. So a file counts as missing only if the server says just that, or
lists the directory above without it.
"""

from __future__ import annotations

import errno
import io
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from ftplib import Error, error_perm
from typing import Any, BinaryIO

from fsspec.implementations.ftp import FTPFileSystem

from holdfast.errors import RemoteRefusedError
from holdfast.system.file_reading import reading

_BLOCK_BYTES = 1 << 18
_UNKNOWN_COMMAND = ("500", "502")
_NOT_LOGGED_IN = ("530", "532")
_MISSING = re.compile("no such|not found|n.t exist|not exist", re.IGNORECASE)
_MEANINGS = {
    re.compile("too long", re.IGNORECASE): errno.ENAMETOOLONG,
    re.compile("^553|invalid (?:argument|file ?name|name|path)", re.IGNORECASE): errno.EINVAL,
    re.compile("denied|permission|privilege|not allowed|forbidden", re.IGNORECASE): errno.EACCES,
    _MISSING: errno.ENOENT,
}
"""The meanings of replies, by a pattern for their text, which mostly is the C library's text for the errno."""
_ROOT = "/"
_TYPES = {"file": "file", "dir": "directory"}
"""fsspec's types of entries, by those of MLSD. ``cdir`` and ``pdir`` are the directory itself and the one above."""


class FtpFiles(FTPFileSystem):  # type: ignore[misc]
    """The file system of one connection. Replies are raised as ``OSError``, those that another try may mend as ftplib's."""

    def __init__(self, host: str, **options: Any) -> None:
        try:
            super().__init__(host, use_listings_cache=False, **options)
        except error_perm as problem:
            raise RemoteRefusedError(f"the server refuses the credentials: {problem}") from None

    @classmethod
    def of_url(cls, url: str, options: Mapping[str, Any]) -> tuple[FtpFiles, str]:
        """Return a new connection to the server of ``url``, and the directory there."""
        given = {**cls._get_kwargs_from_urls(url), **options}
        return cls(skip_instance_cache=True, **given), cls._strip_protocol(url)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            lines = list(self.ftp.mlsd(path))
        except error_perm as problem:
            _check_session(problem)
            there = self.info(path)
            if there["type"] != "file":
                raise _refusal(problem, path) from None
            details = [there]
        else:
            above = "" if path == _ROOT else path
            details = [_detail(f"{above}/{name}", facts) for name, facts in lines if _is_entry(name, facts)]
        return details if detail else sorted(entry["name"] for entry in details)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path == _ROOT:
            return {"name": path, "size": 0, "type": "directory"}
        try:
            return _detail(path, _facts(self.ftp.voidcmd(f"MLST {path}").split("\n")[1]))
        except error_perm as problem:
            _check_session(problem)
            if _MISSING.search(_said(problem, path)):
                raise FileNotFoundError(errno.ENOENT, path) from None
        for entry in self.ls(self._parent(path)):
            if entry["name"] == path:
                return dict(entry)
        raise FileNotFoundError(errno.ENOENT, path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        left = None if end is None else end - (start or 0)
        buffers: list[bytes] = []
        with self._explained(path), closing(self._retrieving(path, start)) as connection:
            while left is None or left > 0:
                buffer = connection.recv(_BLOCK_BYTES if left is None else min(left, _BLOCK_BYTES))
                if not buffer:
                    break
                buffers.append(buffer)
                left = None if left is None else left - len(buffer)
        self._end_transfer(is_whole=left is None or left > 0)
        return b"".join(buffers)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        del mode
        self._store(path, io.BytesIO(value))

    def put_file(self, lpath: str, rpath: str, *_: Any, **__: Any) -> None:
        with reading(os.open(lpath, os.O_RDONLY | os.O_CLOEXEC)) as file:
            self._store(rpath, file)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy by way of this machine: a second connection fetches what the first one stores."""
        other = FtpFiles(**{**self.storage_options, "skip_instance_cache": True})
        with closing(other.ftp), other._explained(path1):
            with closing(other._retrieving(path1)) as connection, connection.makefile("rb") as file:
                self._store(path2, file)
            other._end_transfer(is_whole=True)

    def rm_file(self, path: str) -> None:
        with self._explained(path):
            self.ftp.delete(path)

    def rmdir(self, path: str) -> None:
        try:
            with self._explained(path):
                self.ftp.rmd(path)
        except FileNotFoundError:
            raise
        except OSError:
            if self.ls(path):
                raise OSError(errno.ENOTEMPTY, path) from None
            raise

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        try:
            with self._explained(path1):
                self.ftp.rename(path1, path2)
        except FileNotFoundError:
            raise
        except OSError:
            if any(entry["name"] == path2 for entry in self.ls(self._parent(path2))):
                raise FileExistsError(errno.EEXIST, path2) from None
            raise

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        try:
            there = self.info(path)
        except FileNotFoundError:
            self.makedirs(self._parent(path), exist_ok=True)
            there = self._made(path)
            exist_ok = True
        if there["type"] != "directory" or not exist_ok:
            raise FileExistsError(errno.EEXIST, path)

    def _made(self, path: str) -> dict[str, Any]:
        """Make a directory, unless somebody has made it meanwhile, and return what is there then."""
        try:
            self.ftp.mkd(path)
        except error_perm as problem:
            _check_session(problem)
            try:
                return self.info(path)
            except FileNotFoundError:
                raise _refusal(problem, path) from None
        return {"name": path, "size": 0, "type": "directory"}

    def _store(self, path: str, file: BinaryIO | io.BufferedReader) -> None:
        try:
            self.ftp.storbinary(f"STOR {path}", file, blocksize=_BLOCK_BYTES)
        except error_perm as problem:
            _check_session(problem)
            self.ls(self._parent(path))  # the directory may be missing
            raise _refusal(problem, path) from None

    def _retrieving(self, path: str, start: int | None = None) -> socket.socket:
        """Return the connection on which the server sends a file from the byte ``start``."""
        self.ftp.voidcmd("TYPE I")  # listings are in another one
        connection: socket.socket = self.ftp.transfercmd(f"RETR {path}", rest=start or None)
        return connection

    def _end_transfer(self, *, is_whole: bool) -> None:
        """Take the reply at the end of a transfer; to one that was broken off it says just that."""
        try:
            self.ftp.voidresp()
        except Error:
            if is_whole:
                raise

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        """Raise ``FileNotFoundError`` for a refusal of what is not there, and others by what the server says."""
        try:
            yield
        except error_perm as problem:
            _check_session(problem)
            self.info(path)
            raise _refusal(problem, path) from None


def _check_session(problem: error_perm) -> None:
    """Raise ``RemoteRefusedError`` for a reply that concerns all requests."""
    code = str(problem)[:3]
    if code in _UNKNOWN_COMMAND:
        raise RemoteRefusedError(f"the FTP server lacks a command of RFC 3659 (MLSD) or of RFC 959: {problem}") from None
    if code in _NOT_LOGGED_IN:
        raise RemoteRefusedError(f"the server refuses the credentials: {problem}") from None


def _refusal(problem: error_perm, path: str) -> OSError:
    """Return the error for a refusal of what is there by now. It may have been missing when the server answered."""
    said = _said(problem, path)
    number = next((number for pattern, number in _MEANINGS.items() if pattern.search(said)), errno.EIO)
    return OSError(number, str(problem))


def _said(problem: error_perm, path: str) -> str:
    """Return the text of a reply without the name, which somebody may have chosen to read like a reply."""
    return str(problem).replace(path, "").replace(path.rpartition("/")[2], "")


def _facts(line: str) -> dict[str, str]:
    """Return the facts in the reply to MLST (RFC 3659, 7.2), as ``FTP.mlsd`` has them."""
    pairs = (fact.partition("=") for fact in line.lstrip().partition(" ")[0].rstrip(";").split(";"))
    return {name.lower(): value for name, _, value in pairs}


def _is_entry(name: str, facts: Mapping[str, str]) -> bool:
    return name not in (".", "..") and facts["type"].lower() not in ("cdir", "pdir")


def _detail(path: str, facts: Mapping[str, str]) -> dict[str, Any]:
    """Return fsspec's detail of an entry from its facts (RFC 3659, 7.5)."""
    kind = _TYPES.get(facts["type"].lower(), "other")
    detail: dict[str, Any] = {"name": path, "type": kind, "size": int(facts["size"]) if kind == "file" else 0}
    digits = facts.get("modify", "").partition(".")[0]
    if digits:
        detail["mtime"] = datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return detail
