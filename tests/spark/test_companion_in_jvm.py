"""The plugin's side of its companion: whatever becomes of that process, the driver goes on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast_spark.linking import jar_path
from tests.support.daemons.node import wait_until
from tests.support.spark import programs as spark_programs

ENDED = "holdfast-spark-driver has ended: Spark places partitions by itself, and batches are not reported"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("classes")
    path = f"{jar_path()}:{spark_programs.HOME}/jars/*"
    source = spark_programs.SOURCES / "CompanionTrial.java"
    subprocess.run(["javac", "-nowarn", "-d", directory, "-cp", path, source], check=True, capture_output=True)
    return f"{directory}:{path}"


def tried(classes: str, command: Path, script: str) -> tuple[list[str], str]:
    """Let a driver have this script for its companion; return what it says of it, and its log."""
    if script:
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    words = ["java", "-XX:TieredStopAtLevel=1", "-cp", classes, "io.holdfast.spark.CompanionTrial", str(command)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.splitlines(), done.stderr


def test_a_companion_that_answers_is_heard(classes: str, tmp_path: Path) -> None:
    said, log = tried(classes, tmp_path / "command", r"printf 'directory\t/a\\tb\\\\c\n'; cat >/dev/null")
    assert said == ["[/a\tb\\c]", "closed"]
    assert ENDED not in log


def test_a_companion_that_hangs_holds_nobody_up_and_is_ended(classes: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    said, _ = tried(classes, tmp_path / "command", f"echo $$ >{pid}; exec sleep 3600")
    assert said == ["[]", "closed"]
    process = Path("/proc", pid.read_text().strip())
    wait_until(lambda: not process.exists())  # who waits for it, now that its JVM has ended, is the machine's first process


@pytest.mark.parametrize("script", ["exit 3", "echo ask; cat >/dev/null"])
def test_a_companion_that_ends_or_says_what_nobody_understands_is_told_of_once(
    classes: str, tmp_path: Path, script: str
) -> None:
    said, log = tried(classes, tmp_path / "command", script)
    assert said == ["[]", "closed"]
    assert log.count(ENDED) == 1


def test_a_command_that_is_not_there_is_an_error_that_names_it(classes: str, tmp_path: Path) -> None:
    said, log = tried(classes, tmp_path / "nowhere", "")
    assert said == []
    assert f'Cannot run program "{tmp_path}/nowhere"' in log
