"""Programs that lean on a file system: git and SQLite, in a working directory and over the daemon's death."""

from __future__ import annotations

import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.support.daemons.node import Node

ROWS = 2000


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_git_keeps_a_history(node: Node, workspace: Path) -> None:
    (node.work / "git_1").mkdir()
    repository = node.work / "git_1" / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch=main")
    for number in range(20):
        for part in range(20):
            file = repository / f"directory{part % 4}" / f"file{part}"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{number} {part}\n" * 50)
        git(repository, "add", ".")
        git(repository, "commit", "--quiet", "-m", f"commit {number}")
    git(repository, "checkout", "--quiet", "-b", "side", "HEAD~10")
    git(repository, "gc", "--quiet", "--aggressive")
    node.stop()
    node.start()
    assert git(repository, "fsck", "--full", "--strict") == ""
    git(repository, "checkout", "--quiet", "main")
    assert git(repository, "status", "--porcelain") == ""
    git(workspace, "clone", "--quiet", "--no-local", str(repository), "clone")
    assert len(git(workspace / "clone", "log", "--format=%H").split()) == 20


@pytest.mark.parametrize("journal", ["delete", "truncate", "persist", "wal"])
def test_sqlite_keeps_what_was_committed(node: Node, journal: str) -> None:
    (node.work / "sqlite_1").mkdir()
    path = node.work / "sqlite_1" / "database"
    database = sqlite3.connect(path, isolation_level=None)
    assert database.execute(f"PRAGMA journal_mode={journal}").fetchone() == (journal,)
    database.execute("CREATE TABLE data (number INTEGER PRIMARY KEY, text TEXT)")
    for start in range(0, ROWS, 100):
        database.execute("BEGIN IMMEDIATE")
        database.executemany(
            "INSERT INTO data VALUES (?, ?)", [(number, f"row {number}" * 20) for number in range(start, start + 100)]
        )
        database.execute("COMMIT")
    reader = sqlite3.connect(path)
    assert reader.execute("SELECT count(*), sum(number) FROM data").fetchone() == (ROWS, sum(range(ROWS)))
    reader.close()
    database.execute("BEGIN IMMEDIATE")
    database.execute("DELETE FROM data")
    node.kill()  # in the middle of a transaction; the kernel may write its data all the same, but fsync needs the daemon
    with pytest.raises(sqlite3.Error):
        database.execute("COMMIT")
    database.close()
    node.start()
    again = sqlite3.connect(path)
    assert again.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = again.execute("SELECT count(*), sum(number) FROM data").fetchone()
    assert found in ((ROWS, sum(range(ROWS))), (0, None)), "a COMMIT that failed is done or not, never by half"
    again.close()
