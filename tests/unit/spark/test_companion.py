"""The process beside a driver without Python: its lines, what it asks of the JVM, and that no answer is its own affair."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.control.messages import BatchReport, HoldingsReply
from holdfast_spark.after_batches import BATCHES
from holdfast_spark.class_names import PARTS
from holdfast_spark.companion import conversation
from holdfast_spark.companion.conversation import Conversation
from holdfast_spark.companion.jvm import JvmDriver, JvmError
from holdfast_spark.companion.known_classes import KnownClasses
from holdfast_spark.companion.lines import fields_of, line_of
from holdfast_spark.placement.driver import Executor, Instance, StreamingQuery

pytestmark = pytest.mark.slow

QUERY = StreamingQuery("q", "file:/mnt/q", "file:/mnt/q/state")
PLAN = "~Aggregate [key#1]\n+- ~StreamingRelation"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_fields_are_the_same_on_the_other_side(fields: list[str]) -> None:
    line = line_of(fields)
    assert not set(line) & {"\n", "\r"}
    assert fields_of(line) == fields


class ScriptedJvm:
    """A driver's JVM at the other ends of two pipes."""

    def __init__(self, location: Path) -> None:
        self.location = location
        read, write = os.pipe()
        self.output, self._said = os.fdopen(write, "wb"), os.fdopen(read, "rb")
        read, write = os.pipe()
        self.input, self._saying = os.fdopen(read, "rb"), os.fdopen(write, "wb")
        self.told: list[list[str]] = []

    def say(self, *fields: str) -> None:
        self._saying.write(f"{line_of(fields)}\n".encode())
        self._saying.flush()

    def answer_until(self, key: str) -> str:
        while True:
            kind, *about = fields_of(self._said.readline().decode().rstrip("\n"))
            if kind == key:
                return about[0]
            if kind == "ask":
                number, question, *rest = about
                self.say("answer", number, *self._answer(question, rest))

    def answer_one(self) -> list[str]:
        kind, number, question, *about = fields_of(self._said.readline().decode().rstrip("\n"))
        assert kind == "ask"
        self.say("answer", number, *self._answer(question, about))
        return [question, *about]

    def answer_until_told(self, count: int) -> None:
        while len(self.told) < count:
            self.answer_one()

    def end(self) -> None:
        self._saying.close()

    def _answer(self, question: str, about: list[str]) -> list[str]:
        if question in ("tell", "elsewhere"):
            self.told.append(about)
        answers = {
            "query": [f"file:{self.location}", f"file:{self.location}/state", PLAN, "4"],
            "executors": ["0", "10.88.0.1", "1", "node1", "1", "node2", "1", ""],
            "age": ["60000"],
        }
        return answers.get(question, ["0"])


@pytest.fixture
def jvm(tmp_path: Path) -> Iterator[ScriptedJvm]:
    scripted = ScriptedJvm(tmp_path)
    yield scripted
    scripted.output.close()
    scripted._said.close()
    scripted.input.close()


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[BatchReport]:
    sent: list[BatchReport] = []
    monkeypatch.setattr(conversation, "_report", sent.append)
    monkeypatch.setattr(conversation, "_holdings", lambda path, all_nodes: HoldingsReply(nodes=[]))
    return sent


def test_a_query_is_placed_and_reported_as_pysparks_are(
    jvm: ScriptedJvm, reports: list[BatchReport], capsys: pytest.CaptureFixture[str]
) -> None:
    holding = threading.Thread(target=Conversation(jvm.output).hold, args=(jvm.input,))
    holding.start()
    jvm.say("hello", "a job", "1", "false", "/held/before")
    assert jvm.answer_until("directory") == "/held/before"
    jvm.say("started", "q", "run", "")
    assert jvm.answer_until("run") == ""
    ((state, run, *stores),) = jvm.told
    assert (state, run) == (f"file:{jvm.location}/state", "run")
    assert sorted(stores[3::5]) == ["10.88.0.1", "10.88.0.1", "node2", "node2"]
    assert stores[1::5] == ["0", "1", "2", "3"]
    jvm.say("lost", "1")
    jvm.answer_until_told(2)
    assert set(jvm.told[1][6::5]) == {"0"}, "in the middle of a batch"
    progress = {
        "id": "q",
        "runId": "run",
        "batchId": 7,
        "batchDuration": 9,
        "numInputRows": 1,
        "stateOperators": [{"commitTimeMs": 3}],
    }
    jvm.say("progress", "run", json.dumps(progress))
    jvm.say("terminated", "run", "java.io.FileNotFoundException: /mnt/q/offsets/8 (File exists)")
    jvm.end()
    holding.join(60)
    assert "and was first with offsets/8." in capsys.readouterr().err
    assert [(each.query, each.batch) for each in reports] == [("q", -1), ("q", 7)]


def test_on_one_machine_nothing_is_placed_and_no_start_waits(
    jvm: ScriptedJvm, reports: list[BatchReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []
    is_asked = threading.Event()

    def holdings(path: str, *, all_nodes: bool) -> HoldingsReply:
        asked.append((path, all_nodes))
        is_asked.set()
        return HoldingsReply(nodes=[])

    monkeypatch.setattr(conversation, "_holdings", holdings)
    holding = threading.Thread(target=Conversation(jvm.output).hold, args=(jvm.input,))
    holding.start()
    jvm.say("hello", "a job", "1", "true", "/held/before")
    jvm.say("of which only a newer companion knows", "a job")
    jvm.say("started", "q", "run", "counts")
    assert jvm.answer_until("run") == ""
    jvm.answer_one()
    assert is_asked.wait(60)
    jvm.end()
    holding.join(60)
    assert asked == [(str(jvm.location), False)], "whether this node has any of the query's state"
    assert jvm.told == []
    assert [each.query for each in reports] == ["counts"]


def progress_of(rows: object) -> str:
    return json.dumps({"id": "q", "runId": "run", "batchId": 7, "numInputRows": rows, "stateOperators": []})


def test_the_jvm_loads_the_classes_of_the_one_before_it_and_writes_down_its_own(
    jvm: ScriptedJvm, reports: list[BatchReport], tmp_path: Path
) -> None:
    names = tmp_path / "classes.names"
    names.write_text("java.lang.String\n")
    then = time.time() - 90_000
    os.utime(names, (then, then))
    holding = threading.Thread(target=Conversation(jvm.output).hold, args=(jvm.input,))
    holding.start()
    jvm.say("hello", "a job", "1", "true", str(tmp_path / "tmp/spark"))
    assert jvm.answer_until("directory") == str(tmp_path / "tmp/spark")
    *load, part = jvm.answer_one()
    assert load == ["load-classes", str(names), str(PARTS)]
    assert 0 <= int(part) < PARTS
    for rows in (1, 0, "of another Spark", 1, 1, 1):
        jvm.say("progress", "run", progress_of(rows))
    assert jvm.answer_one() == ["write-classes", str(names)]
    jvm.end()
    holding.join(60)


def test_a_jvm_that_knows_no_such_question_is_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class OlderJar(JvmDriver):
        def load_classes(self, names: Path, parts: int, left_out: int) -> None:
            raise JvmError("java.lang.IllegalArgumentException: nobody knows load-classes")

        def write_classes(self, names: Path) -> None:
            pytest.fail("these names are new")

    caplog.set_level("INFO", "holdfast.class_names")
    (tmp_path / "classes.names").write_text("java.lang.String\n")
    classes = KnownClasses(OlderJar(io.BytesIO()))
    classes.load(tmp_path / "tmp/spark")
    assert len(caplog.messages) == 1
    assert "nobody knows load-classes" in caplog.text
    for _ in range(BATCHES):
        classes.progressed(progress_of(1))


def test_a_driver_without_a_daemon_goes_without_a_directory(
    jvm: ScriptedJvm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOLDFAST_SOCKET", str(tmp_path / "nobody/control.sock"))
    jvm.say("hello", "a job", str(os.getpid()), "true", "")
    jvm.end()
    Conversation(jvm.output).hold(jvm.input)
    assert jvm.answer_until("directory") == ""
    (message,) = caplog.messages
    assert message.startswith("this job has no working directory: ")


def test_what_the_jvm_cannot_answer_is_an_error_of_the_one_who_asked() -> None:
    driver = JvmDriver(io.BytesIO())
    asked = threading.Event()

    class Output(io.BytesIO):
        def flush(self) -> None:
            asked.set()

    driver = JvmDriver(Output())
    problems: list[Exception] = []

    def ask() -> None:
        try:
            driver.tell(QUERY, "run", [Instance(0, 0, "default", Executor("1", "node1", 1))])
        except JvmError as problem:
            problems.append(problem)

    asking = threading.Thread(target=ask)
    asking.start()
    assert asked.wait(60)
    driver.settle("17", ["nobody asked"], is_fault=False)
    driver.settle("0", ["java.lang.NoSuchMethodException: tell"], is_fault=True)
    asking.join(60)
    assert [str(problem) for problem in problems] == ["java.lang.NoSuchMethodException: tell"]
