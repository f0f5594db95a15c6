"""What a daemon tells of its work: the page of metrics, and the requests of the kernel as they are answered."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from holdfast.control.messages import OperationInfo
from holdfast.telemetry.metrics import all_metrics
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.stores.servers import free_port
from tests.support.users.privileges import as_nobody

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    """Return the samples of a page, read by Prometheus's own library, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def page(node: Node) -> Samples:
    with node.client() as client:
        return samples(client.metrics())


def value(found: Samples, name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0.0)


def names(found: Samples) -> set[str]:
    return {name for name, _ in found}


@contextmanager
def watching(node: Node, path: Path | None = None) -> Iterator[list[OperationInfo]]:
    """Yield a list to which the requests come that the daemon answers meanwhile."""
    seen: list[OperationInfo] = []
    begun = threading.Event()
    with node.client() as client:
        lines = client.watch_operations(None if path is None else str(path))

        def read() -> None:
            for line in lines:
                seen.extend(line.operations)
                begun.set()
                if any(each.operation == "mkdir" and each.path.endswith("/the end") for each in seen):
                    return

        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(60)
        yield seen
        ((path or node.work) / "the end").mkdir()
        reader.join(60)
        assert not reader.is_alive()


def seen(found: list[OperationInfo], operation: str, path: Path) -> list[OperationInfo]:
    return [each for each in found if each.operation == operation and each.path == str(path)]


def test_operations_are_counted_by_kind_and_zone(node: Node) -> None:
    before = page(node)
    count = "holdfast_operation_duration_seconds_count"

    def more(operation: str, zone: str) -> float:
        return value(page(node), count, operation=operation, zone=zone) - value(
            before, count, operation=operation, zone=zone
        )

    (node.work / "a").mkdir()
    for number in range(10):
        (node.work / f"a/{number}").write_bytes(b"bytes")
    (node.checkpoints / "b").write_bytes(b"bytes")  # its close sends it: not answered at once
    assert more("create", "work") == 10
    assert more("lookup", "work") >= 10  # of names that are not there: answered in C
    assert more("mkdir", "work") == 1
    assert more("create", "checkpoints") == 1
    assert more("flush", "checkpoints") == 1
    os.rename(node.work / "a/0", node.work / "a/00")
    assert more("rename", "work") == 1
    fd = os.open(node.work / "a/1", os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    wait_until(lambda: more("fsync", "work") == 1)  # a thread hands it over
    durations = "holdfast_operation_duration_seconds"
    found = page(node)
    labels = {"operation": "create", "zone": "work"}
    assert value(found, f"{durations}_bucket", le="+Inf", **labels) == value(found, count, **labels)
    assert 0 < value(found, f"{durations}_sum", **labels) < 60


def test_the_page_has_what_happened_to_objects_and_stores(node: Node) -> None:
    (node.checkpoints / "kept").write_bytes(b"x" * 1000)
    with node.client() as client:
        list(client.evict(str(node.checkpoints / "kept")))
    before = page(node)
    assert (node.checkpoints / "kept").read_bytes() == b"x" * 1000
    assert (node.checkpoints / "kept").read_bytes() == b"x" * 1000
    after = page(node)

    def more(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    assert more("holdfast_cache_misses_total") == 1
    assert more("holdfast_cache_hits_total") == 1
    assert more("holdfast_fetched_bytes_total") == 1000
    assert more("holdfast_store_request_duration_seconds_count", store="checkpoints", kind="GET", result="ok") == 1
    assert value(after, "holdfast_uploaded_bytes_total") >= 1000
    assert value(after, "holdfast_store_up", store="checkpoints") == 1
    assert value(after, "holdfast_events_total", kind="mounted") == 1
    assert value(after, "process_resident_memory_bytes") > 2**20
    assert value(after, "holdfast_starts_total") == 1
    assert abs(value(after, "process_start_time_seconds") - Path(f"/proc/{node.pid}").stat().st_ctime) < 60


def test_unsent_files_are_on_the_page_with_their_age(node: Node) -> None:
    with (node.checkpoints / "open").open("wb", buffering=0) as file:
        file.write(b"x" * 500)
        found = page(node)
        assert value(found, "holdfast_unsent_files") == 1
        assert value(found, "holdfast_unsent_bytes") == 500
        assert 0 < value(found, "holdfast_unsent_oldest_age_seconds") < 60


def public_page(node: Node) -> Samples:
    # Without certificates: as nobody there may be none to read.
    transport = httpx.HTTPTransport(uds=str(node.socket.with_name("status.sock")), verify=False)
    with httpx.Client(transport=transport, base_url="http://holdfast", timeout=60) as client:
        reply = client.get("/metrics")
    assert reply.status_code == httpx.codes.OK
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(reply.text)


def test_others_see_nothing_of_what_users_do(make_node: NodeFactory) -> None:
    node = make_node(checkpoints__directory_mode="0700", control__group="root").start()
    assert names(public_page(node)) == names(page(node))  # root
    as_nobody(lambda: _check_what_others_see(node))


def _check_what_others_see(node: Node) -> None:
    found = public_page(node)
    assert names(found) == {metric.name for metric in all_metrics() if metric.for_all}
    assert value(found, "holdfast_store_up", store="blobs") == 1
    assert value(found, "holdfast_store_up", store="checkpoints") == 0  # not there: the zone is closed to them


def test_who_watches_sees_each_request_with_its_path_and_caller(node: Node) -> None:
    (node.work / "a").mkdir()
    with watching(node) as found:
        (node.work / "a/file").write_bytes(b"bytes")
        os.rename(node.work / "a/file", node.work / "a/final")
        (node.checkpoints / "object").write_bytes(b"bytes")
        assert not (node.work / "a/missing").exists()
    (made,) = seen(found, "create", node.work / "a/file")
    assert (made.zone, made.pid, made.uid, made.error) == ("work", os.getpid(), os.getuid(), "")
    assert 0 < made.seconds < 60
    (moved,) = seen(found, "rename", node.work / "a/file")
    assert moved.target == str(node.work / "a/final")
    assert {each.error for each in seen(found, "lookup", node.work / "a/missing")} == {"ENOENT"}
    (sent,) = seen(found, "flush", node.checkpoints / "object")
    assert sent.pid == os.getpid()
    assert sent.store_requests >= 1
    assert sent.store_seconds > 0


def test_who_watches_a_path_learns_of_hits_and_misses_and_of_nothing_else(node: Node) -> None:
    (node.checkpoints / "kept").mkdir()
    (node.checkpoints / "kept/file").write_bytes(b"x" * 1000)
    with node.client() as client:
        list(client.evict(str(node.checkpoints / "kept")))
    with watching(node, node.checkpoints / "kept") as found:
        (node.checkpoints / "kept/file").read_bytes()
        (node.checkpoints / "kept/file").read_bytes()
        (node.work / "other").mkdir()
    assert all(each.path.startswith(str(node.checkpoints / "kept")) for each in found)
    opens = seen(found, "open", node.checkpoints / "kept/file")
    assert [(each.cache, each.fetched_bytes) for each in opens] == [("miss", 1000), ("hit", 0)]


def test_when_nobody_watches_any_more_requests_are_answered_as_before(node: Node) -> None:

    def listings() -> Callable[[], float]:
        return lambda: value(page(node), "holdfast_operation_duration_seconds_count", operation="lookup", zone="work")

    with watching(node):
        pass
    before = listings()()
    (node.work / "a").mkdir()
    assert not (node.work / "a/missing").exists()
    assert listings()() > before


def test_metrics_are_served_on_tcp_and_nothing_else_is(make_node: NodeFactory) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        node = make_node(metrics__listen=f":{port}").start()  # it starts all the same
        assert node.wait_event("metrics-unavailable")["address"] == f"127.0.0.1:{port}"
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        wait_until(lambda: _answers(client))
        assert names(samples(client.get("/metrics").text)) == names(page(node))
        others = ["/", "/v1/status", "/v1/operations", "/v1/events", "/ui/", "/v1/openapi.json"]
        assert {client.get(route).status_code for route in others} == {httpx.codes.NOT_FOUND}
        assert client.post("/metrics").status_code == httpx.codes.METHOD_NOT_ALLOWED


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/metrics").status_code == httpx.codes.OK
    except httpx.ConnectError:
        return False
