"""The control sockets' description of themselves, and requests of every shape that it allows and does not allow."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node
from tests.support.users.hostile_clients import attacking, connected, exchange, get, wait_closed
from tests.support.users.privileges import ALICE, MALLORY

_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW")
_EXAMPLES = 25
_NUMBERS = st.integers() | st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**40]) | st.floats(allow_nan=False)
_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def texts(node: Node) -> st.SearchStrategy[str]:
    """Return paths in the mount, ways out of it, ids, and anything."""
    mount = str(node.mountpoint)
    known = ["", mount, f"{mount}/checkpoints", f"{mount}/checkpoints/job", f"{mount}/work", f"{mount}/blobs/x"]
    ways_out = [f"{mount}/../../../etc/passwd", "../../etc", f"{mount}/checkpoints/../../store", "/", "\0", "a" * 5000]
    return st.sampled_from([*known, *ways_out, "20200101-000000-aaaaaa", "driver", "1"]) | st.text(max_size=20)


def of_schema(schema: dict[str, Any], components: dict[str, Any], words: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Return values that a JSON schema allows, as far as those of Holdfast's messages go."""
    if "$ref" in schema:
        return of_schema(components[schema["$ref"].rpartition("/")[2]], components, words)
    if "anyOf" in schema:
        return st.one_of([of_schema(each, components, words) for each in schema["anyOf"]])
    if schema.get("type") == "object" and "properties" in schema:
        each = {name: of_schema(inner, components, words) for name, inner in schema["properties"].items()}
        required = {name: each.pop(name) for name in schema.get("required", ())}
        return st.fixed_dictionaries(required, optional=each)
    kinds = {"string": words, "integer": _NUMBERS, "number": _NUMBERS, "boolean": st.booleans(), "null": st.none()}
    return kinds.get(schema.get("type", ""), _JSON)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


@pytest.fixture
def busy(node: Node) -> Node:
    """A node with something to speak of."""
    (node.checkpoints / "job" / "offsets").mkdir(parents=True)
    (node.checkpoints / "job" / "offsets" / "0").write_bytes(b"x")
    (node.work / "driver_a").mkdir()
    return node


def send(socket_path: Path, method: str, target: str, content: bytes = b"") -> tuple[int, bytes]:
    head = f"{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(content)}\r\n\r\n"
    reply, _, body = exchange(socket_path, head.encode() + content).partition(b"\r\n\r\n")
    return int(reply.split()[1]), _whole(body) if b"chunked" in reply else body


def _whole(body: bytes) -> bytes:
    """Return what a body in chunks says (RFC 9112, 7.1)."""
    parts = []
    while (size_bytes := int(body.partition(b"\r\n")[0], 16)) > 0:
        _, _, body = body.partition(b"\r\n")
        parts.append(body[:size_bytes])
        body = body[size_bytes + 2 :]
    return b"".join(parts)


@pytest.mark.parametrize("name", ["control.sock", "status.sock"])
def test_requests_of_every_shape_get_an_answer_that_is_described(busy: Node, name: str) -> None:
    """Gain: a request that ends the daemon, hangs it, or fills its log with faults (the fixture looks into the log)."""
    path = busy.socket.with_name(name)
    code, document = get(path, "/v1/openapi.json")
    assert code == 200
    words, components = texts(busy), document["components"]["schemas"]

    @settings(max_examples=_EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def try_all(data: st.DataObject) -> None:
        for route, method, operation in operations(document):
            given_query = {
                each["name"]: data.draw(words if each["schema"]["type"] == "string" else st.one_of(_NUMBERS.map(str), words))
                for each in operation["parameters"]
                if data.draw(st.booleans())
            }
            query = "&".join(f"{quote(key)}={quote(value, errors='replace')}" for key, value in given_query.items())
            content = b""
            if "requestBody" in operation:
                schema = next(iter(operation["requestBody"]["content"].values()))["schema"]
                right = of_schema(schema, components, words).map(lambda value: json.dumps(value).encode())
                content = data.draw(right | _JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=50))
            status, answer = send(path, method, f"{route}?{query}", content)
            assert str(status) in operation["responses"], (route, query, content, status, answer)
            assert status < 500, (route, query, content, answer)
            assert b"its log has the details" not in answer, (route, query, content)
            if status != 200 or "json" in next(iter(operation["responses"]["200"]["content"])):
                for line in answer.splitlines():
                    json.loads(line)

    try_all()
    assert get(path, "/v1/status")[0] == 200


@pytest.mark.parametrize("name", ["control.sock", "status.sock"])
def test_other_methods_and_routes_are_refused(node: Node, name: str) -> None:
    """Gain: a route that nobody thought of, found by its other spelling."""
    path = node.socket.with_name(name)
    _, document = get(path, "/v1/openapi.json")
    routes = [*document["paths"], "/", "//v1/status", "/v1/../v1/events", "/v1/status/", "/%2e%2e/etc", "/docs", "*"]
    for route in routes:
        allowed = {method.upper() for method in document["paths"].get(route, {})} | {"HEAD"}
        for method in _METHODS:
            if method not in allowed:
                status, _ = send(path, method, route)
                assert status in (400, 403, 404, 405, 307), (method, route, status)


@pytest.mark.promise("public-socket")
def test_all_of_the_public_socket_is_described_and_nothing_else_is_served(busy: Node) -> None:
    """Gain: what the control socket tells its group, told to everybody."""
    public = busy.socket.with_name("status.sock")
    _, everything = get(busy.socket, "/v1/openapi.json")
    _, described = get(public, "/v1/openapi.json")
    assert set(described["paths"]) == {"/v1/status", "/v1/workdirs", "/metrics"}
    for route, method, _ in operations(everything):
        if route not in described["paths"]:
            assert send(public, method, f"{route}?path={busy.checkpoints}", b"{}")[0] == 403, route


# --- what others learn ------------------------------------------------------------------------------------------------


@pytest.fixture
def teams(make_node: NodeFactory, workspace: Path) -> Node:
    """A node with a store for each of two teams, and something of each in it."""
    node = make_node()
    for name, team in (("alices", ALICE), ("mallorys", MALLORY)):
        node.settings |= {
            f"stores.{name}.url": f"file://{workspace}/remote-of-{name}",
            f"stores.{name}.uid": team.uid,
            f"stores.{name}.gid": team.gid,
            f"stores.{name}.directory_mode": "0750",
        }
    node.start()

    def work() -> None:
        (node.mountpoint / "alices" / "secret-job").mkdir()
        (node.mountpoint / "alices" / "secret-job" / "file").write_bytes(b"x")
        (node.work / "driver_secret").mkdir()

    ALICE.do(work)
    return node


@pytest.mark.promise("public-socket")
def test_one_team_learns_nothing_of_the_other_from_the_public_socket(teams: Node) -> None:
    """Gain: names of stores, jobs and buckets, who runs what, and how much of it."""
    public = teams.socket.with_name("status.sock")

    def attack() -> dict[str, Any]:
        answers = {route: get(public, route)[1] for route in ("/v1/status", "/v1/workdirs", "/v1/openapi.json")}
        answers["other"] = [get(public, f"/v1/{route}")[1] for route in ("events", "entries?path=/", "why?path=/")]
        return answers

    with attacking(MALLORY, attack) as hers:
        told = json.dumps(hers)
        assert "alice" not in told
        assert "secret" not in told
        assert "mallorys" in hers["/v1/status"]["remotes"]
        for name in ("counters", "cached_files", "cached_bytes", "unsent_files", "known_nodes", "fetching", "store"):
            assert name not in hers["/v1/status"], name
    with attacking(ALICE, attack) as theirs:
        assert "alices" in theirs["/v1/status"]["remotes"]
        assert "mallorys" not in theirs["/v1/status"]["remotes"]
        assert [workdir["id"] for workdir in theirs["/v1/workdirs"]] == ["secret"]
    assert len(get(public, "/v1/workdirs")[1]) == 1, "root sees all"


@pytest.mark.promise("public-socket")
def test_who_is_not_let_into_the_mount_learns_nothing_of_its_stores(make_node: NodeFactory) -> None:
    """Gain: where stores are that an ordinary user has mounted for itself alone."""
    node = make_node(mount__allow_other=False).start()
    public = node.socket.with_name("status.sock")
    with attacking(MALLORY, lambda: get(public, "/v1/status")[1]) as told:
        assert told["remotes"] == {}
    assert sorted(get(public, "/v1/status")[1]["remotes"]) == ["blobs", "checkpoints"]


@pytest.mark.promise("public-socket")
def test_what_one_team_does_changes_nothing_that_the_other_is_told(teams: Node) -> None:
    """Gain: what is not named is counted, and the count tells."""
    public = teams.socket.with_name("status.sock")

    def attack() -> dict[str, Any]:
        status = get(public, "/v1/status")[1]
        of_the_disk = ("free_bytes", "free_files")  # statfs(2) tells these to anybody
        return {name: value for name, value in status.items() if name not in ("uptime_seconds", *of_the_disk)}

    with attacking(MALLORY, attack) as before:
        for number in range(20):
            ALICE.do(lambda number=number: (teams.mountpoint / "alices" / f"{number}").write_bytes(b"x"))  # type: ignore[misc]
        with attacking(MALLORY, attack) as after:
            assert after == before


def test_a_deep_tree_is_no_fault(node: Node) -> None:
    """Gain: whoever makes 1,500 directories one in the other makes an administrator's commands fail above them."""
    top = node.checkpoints / "deep"
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    try:
        for _ in range(1500):
            os.mkdir("d", dir_fd=fd)
            below = os.open("d", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
    finally:
        os.close(fd)
    with node.client() as client:
        assert [step.finished for step in client.prefetch(str(top))] == [True]
        assert [step.finished for step in client.verify(str(top))] == [True]
        assert [step.finished for step in client.evict(str(top))] == [True]
    node.stop()
    subprocess.run(["rm", "-rf", str(node.store)], check=True)  # Python's own rmtree goes by recursion


def test_a_member_of_the_group_acts_for_itself(node: Node) -> None:
    """Gain: a directory of another user's, made or let go by somebody who only shares the control socket."""
    os.chown(node.socket, -1, MALLORY.gid)
    (node.work / "driver_roots").mkdir()

    def attack() -> list[int]:
        pid = os.getpid()
        wanted = [{"uid": 0}, {"uid": ALICE.uid}, {"gid": 0}, {}]
        bodies = [json.dumps({"role": "driver", "id": f"m{at}", "pid": pid, **each}) for at, each in enumerate(wanted)]
        codes = [send(node.socket, "POST", "/v1/workdirs/acquire", body.encode())[0] for body in bodies]
        for name in ("roots", "m3"):
            body = json.dumps({"role": "driver", "id": name})
            codes.append(send(node.socket, "POST", "/v1/workdirs/release", body.encode())[0])
        return codes

    with attacking(MALLORY, attack) as codes:
        assert codes == [403, 403, 403, 200, 403, 200]
    assert (node.work / "driver_m3").stat().st_uid == MALLORY.uid


@pytest.mark.parametrize("name", ["control.sock", "status.sock"])
def test_bytes_of_any_kind_are_no_fault(node: Node, name: str) -> None:
    """Gain: as with requests of every shape, below HTTP (the fixture looks into the log)."""
    path = node.socket.with_name(name)
    pieces = [b"GET ", b"POST ", b"/v1/status", b" HTTP/1.1", b"\r\n", b"host: x", b"content-length: 5", b"\r\n\r\n", b"\0"]
    pieces += [
        b"transfer-encoding: chunked",
        b"expect: 100-continue",
        b"upgrade: h2c",
        b"connection: keep-alive",
        b"ffff",
        b":",
    ]

    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from(pieces) | st.binary(max_size=10), max_size=15).map(b"".join))
    def try_all(content: bytes) -> None:
        with connected(path) as channel:
            channel.sendall(content)
            channel.shutdown(socket.SHUT_WR)
            reply = wait_closed(channel)
        assert not reply or reply.startswith(b"HTTP/1.1 ")
        assert b"HTTP/1.1 5" not in reply.replace(b"HTTP/1.1 501", b"").replace(b"HTTP/1.1 505", b"")

    try_all()
    assert get(path, "/v1/status")[0] == 200


def test_long_lists_come_in_pages(node: Node) -> None:
    """Gain: an answer of any size, held in memory for whoever asks and does not read."""
    made = [f"driver_{number:03}" for number in range(25)]
    for name in made:
        (node.work / name).mkdir()
    found: list[str] = []
    while True:
        after = quote(found[-1]) if found else ""
        page = get(node.socket, f"/v1/workdirs?limit=10&after={after}")[1]
        found += [workdir["path"] for workdir in page]
        if len(page) < 10:
            break
    assert found == [str(node.work / name) for name in made]
    events = get(node.socket, "/v1/events?limit=7")[1]
    assert len(events) == 7
    assert get(node.socket, f"/v1/events?limit=7&since={events[-1]['number']}")[1][0]["number"] == events[-1]["number"] + 1
    with node.client() as client:
        assert [info.path for info in client.workdirs()] == found


def test_an_id_of_a_plan_is_no_path(node: Node) -> None:
    """Gain: any file of root's, read or written as a plan."""
    for hostile in ("../events", "/etc/passwd", "..%2f..%2fetc", ".new-x", "%00", "a/../../x"):
        assert send(node.socket, "GET", f"/v1/checkpoints/plan?id={hostile}")[0] == 404
        body = json.dumps({"plan": hostile}).encode()
        assert send(node.socket, "POST", "/v1/checkpoints/execute", body)[0] == 404
    for hostile in ("../x", "a/b", "..", "\n", "x" * 300):
        body = json.dumps({"role": hostile, "id": hostile, "pid": os.getpid()}).encode()
        assert send(node.socket, "POST", "/v1/workdirs/acquire", body)[0] == 400
    with connected(node.socket):
        assert not list(node.store.glob("**/passwd"))
