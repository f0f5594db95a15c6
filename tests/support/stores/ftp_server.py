"""An FTP server (RFC 959, RFC 3659) over a directory, which a test can tell to refuse commands."""

from __future__ import annotations

import shutil
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

PASSWORD = "of-a-test"


class FtpServer(ThreadingTCPServer):
    """Serves ``root``. ``replies`` has those to commands that are not to be carried out, with ``{path}`` and ``{name}``."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.root = root
        self.replies: dict[str, str] = {}

    @property
    def url(self) -> str:
        """The URL of the root."""
        return f"ftp://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving_ftp(root: Path) -> Iterator[FtpServer]:
    """Serve a directory until the end of the block."""
    with FtpServer(root) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Session(StreamRequestHandler):
    """One connection: ``do_VERB`` carries out a command and returns the reply."""

    server: FtpServer
    disable_nagle_algorithm = True

    def handle(self) -> None:
        self.start, self.renamed = 0, Path()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self._say("220 ready")
        for line in self.rfile:
            verb, _, argument = line.decode().rstrip("\r\n").partition(" ")
            carry_out: Callable[[str], str] | None = getattr(self, f"do_{verb.lower()}", None)
            try:
                if verb in self.server.replies:
                    self._say(self.server.replies[verb].format(path=argument, name=argument.rpartition("/")[2]))
                else:
                    self._say(carry_out(argument) if carry_out is not None else "500 unknown command")
            except OSError as problem:
                self._say(f"550 {problem.strerror}")

    def finish(self) -> None:
        self.listener.close()
        super().finish()

    def do_user(self, _: str) -> str:
        return "331 and the password"

    def do_pass(self, password: str) -> str:
        return "230 welcome" if password == PASSWORD else "530 no"

    def do_type(self, _: str) -> str:
        return "200 done"

    def do_pasv(self, _: str) -> str:
        self.listener.close()  # with the connection for a command that was refused
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        return f"227 (127,0,0,1,{port // 256},{port % 256})"

    def do_rest(self, start: str) -> str:
        self.start = int(start)
        return "350 go on"

    def do_mlsd(self, path: str) -> str:
        lines = []
        for entry in self._place(path).iterdir():
            with suppress(FileNotFoundError):
                lines.append(f"{_facts(entry)} {entry.name}\r\n")
        with self._transfer() as connection:
            connection.sendall("".join(lines).encode())
        return "226 done"

    def do_mlst(self, path: str) -> str:
        return f"250-here is {path}\r\n {_facts(self._place(path))} {path}\r\n250 done"

    def do_retr(self, path: str) -> str:
        with self._place(path).open("rb") as file:
            start, self.start = self.start, 0
            with self._transfer() as connection:
                try:
                    connection.sendfile(file, start)
                except OSError:
                    return "426 broken off"
        return "226 done"

    def do_stor(self, path: str) -> str:
        with self._place(path).open("wb") as file, self._transfer() as connection, connection.makefile("rb") as data:
            shutil.copyfileobj(data, file)
        return "226 done"

    def do_dele(self, path: str) -> str:
        self._place(path).unlink()
        return "250 done"

    def do_rnfr(self, path: str) -> str:
        self.renamed = self._place(path)
        return "350 go on"

    def do_rnto(self, path: str) -> str:
        self.renamed.rename(self._place(path))
        return "250 done"

    def do_mkd(self, path: str) -> str:
        self._place(path).mkdir()
        return f'257 "{path}"'

    def do_rmd(self, path: str) -> str:
        self._place(path).rmdir()
        return "250 done"

    def _say(self, reply: str) -> None:
        self.wfile.write(f"{reply}\r\n".encode())

    def _place(self, path: str) -> Path:
        return self.server.root / path.lstrip("/")

    def _transfer(self) -> socket.socket:
        self._say("150 here it comes")
        return self.listener.accept()[0]


def _facts(path: Path) -> str:
    found = path.stat()
    kind = "dir" if stat.S_ISDIR(found.st_mode) else "file"
    return f"Type={kind};Size={found.st_size};Modify={datetime.fromtimestamp(found.st_mtime, UTC):%Y%m%d%H%M%S};"
