"""The page of a node in a real browser: each view with data and without, a daemon that goes and comes back."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from holdfast.control.messages import BatchReport
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.stores.servers import free_port
from tests.support.tools.browser import browsing, looking, needs_chromium, page_server

pytestmark = needs_chromium
HOSTILE = "<img src=x onerror=alert(1)>\u202e&amp;'\"`${1}`"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


def test_a_node_without_anything_shows_all_views(node: Node, browser: Browser) -> None:
    with page_server(node.socket) as address, looking(browser, address) as look:
        look.go("overview")
        look.wait_for("nothing")
        assert str(node.mountpoint) in look.page.inner_text("header")
        look.go("cache")
        look.wait_for("Nothing below this is cached")
        look.go("history")
        look.wait_for("One sample every ten seconds")
        look.go("batches")
        look.wait_for("No driver on this node has reported a batch")
        look.go("checkpoints")
        look.wait_for("There is no checkpoint below")
        look.page.click("text=Plan a sweep")
        look.wait_for("Nothing is to be removed")
        look.go("workdirs")
        look.wait_for("No process has a working directory")
        look.go("events")
        look.wait_for("mounted")
        look.go("unsent")
        look.wait_for("The stores have everything")
        look.check()


def test_the_views_show_what_there_is_whatever_it_is_called(make_node: NodeFactory, browser: Browser) -> None:
    node = make_node(checkpoints="memory://").start()
    (node.checkpoints / "job").mkdir()
    held = (node.checkpoints / "job" / HOSTILE.replace("/", "")).open("wb")
    with held, node.client() as client, page_server(node.socket) as address, looking(browser, address) as look:
        held.write(b"x")
        held.flush()
        client.acquire("driver", "one", os.getpid())
        for batch in (-1, 812):
            report = BatchReport(query=HOSTILE, run="r", batch=batch, milliseconds=9000.0, parts={"addBatch": 8000.0})
            client.report_batch(report)
        look.go("overview")
        look.wait_for("only this node has them")
        look.go("batches")
        look.wait_for("addBatch 8.0 s")
        assert "812" in look.text()
        look.go("workdirs")
        look.wait_for(f"pid {os.getpid()}")
        look.page.fill("input[type=search]", "no such role")
        look.wait_for("or none that matches")
        look.go("events")
        look.wait_for("workdir-acquired")
        look.go("unsent")
        look.wait_for("onerror=alert")
        assert "\\u{202e}" in look.text()
        assert look.page.locator("#content img").count() == 0
        look.check()


def test_one_page_shows_all_nodes_and_each_view_what_is_wrong(make_node: NodeFactory, browser: Browser) -> None:
    quick = {"holdings__interval_seconds": 0.05, "holdings__refresh_seconds": 0.1}
    a, b = (make_node(name, holdings__node=name, **quick).start() for name in ("a", "b"))
    state = b.checkpoints / "flights/state/0/3/1.changelog"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"state")
    with a.client() as asking, b.client() as draining, page_server(a.socket) as address, looking(browser, address) as look:
        look.go("overview")
        look.page.wait_for_function("document.title == 'a: Overview – Holdfast'")
        assert look.page.is_hidden("#wrong")
        list(draining.drain(10.0))
        wait_until(lambda: [each.draining for each in asking.holdings(all_nodes=True).nodes if each.node == "b"] == [True])
        look.page.keyboard.press("9")
        look.wait_for("a (this one)")
        row = look.page.inner_text("#content tr:has(strong:text-is('b'))")
        assert "draining: it takes nothing new" in row
        assert "5 B" in row
        list(asking.drain(10.0))
        look.page.wait_for_selector("#wrong li:text('this node is draining')")
        look.check()


def test_a_phone_shows_the_links_to_all_views(node: Node, browser: Browser) -> None:
    with page_server(node.socket) as address, looking(browser, address) as look:
        look.page.set_viewport_size({"width": 390, "height": 800})
        look.go("history")
        boxes = [link.bounding_box() for link in look.page.locator("#views li a").all()]
        assert len(boxes) == 9
        assert all(box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
        look.page.select_option("select", label="last 10 minutes")
        look.wait_for("5 min ago")
        look.check()


def test_the_page_says_that_the_daemon_is_gone_and_goes_on_when_it_is_back(node: Node, browser: Browser) -> None:
    with page_server(node.socket) as address, looking(browser, address) as look:
        look.go("events")
        look.wait_for("mounted")
        former = node.status().pid
        node.kill()
        look.wait_for("not connected")
        assert "No daemon answers" in look.page.inner_text("#banner")
        look.problems.clear()  # the browser's own lines about answers of 503
        node.start()
        look.wait_for(f"daemon {node.pid}")
        look.wait_for("mounted")
        assert look.page.is_hidden("#banner")
        assert str(former) not in look.text()
        assert all("503" in problem for problem in look.problems)
        node.kill()
        look.page.reload()
        look.wait_for("No daemon answers")
        node.start()
        look.page.wait_for_selector("#state:text-is('connected')")
        assert look.elsewhere == []


def test_who_may_not_use_the_control_socket_sees_what_everybody_may(node: Node, browser: Browser) -> None:
    with page_server(node.socket.with_name("status.sock")) as address, looking(browser, address) as look:
        look.go("overview")
        look.wait_for("members of the control group see the rest")
        for view in ("cache", "history", "checkpoints", "events", "unsent"):
            look.go(view)
            look.wait_for("members of the control group only")
        look.go("workdirs")
        look.wait_for("No process has a working directory")
        look.check()


def test_the_page_is_used_with_the_keyboard(node: Node, browser: Browser) -> None:
    with page_server(node.socket) as address, looking(browser, address, scheme="dark") as look:
        look.go("overview")
        for key, title in (("7", "Events"), ("6", "Working directories"), ("1", "Overview")):
            look.page.keyboard.press(key)
            look.page.wait_for_selector(f"h1:text({title!r})")
        look.page.keyboard.press("?")
        look.page.wait_for_selector("dialog[open]")
        look.page.keyboard.press("Escape")
        look.page.wait_for_selector("dialog", state="detached")
        look.page.keyboard.press("7")
        look.page.wait_for_selector("input[type=search]")
        look.page.keyboard.press("/")
        look.page.keyboard.type("no such event")
        look.wait_for("nothing that matches")
        for theme in ("light", "dark", "system"):
            look.page.click("#theme")
            look.wait_for(f"Theme: {theme}")
        look.check()


def test_what_one_can_do_is_done_from_the_page_and_shown_as_it_goes(
    node: Node, remote_files: Path, browser: Browser
) -> None:
    query = remote_files / "flights"
    for name in ("metadata", "offsets/0", "commits/0", f"state/0/0/{HOSTILE.replace('/', '')}.delta"):
        (query / name).parent.mkdir(parents=True, exist_ok=True)
        (query / name).write_bytes(b"v1\n{}\n")
    with page_server(node.socket) as address, looking(browser, address) as look:
        look.go("cache/checkpoints/flights")
        look.wait_for("state/")
        for button, said in (
            ("Prefetch", "Fetched 4 of 4 files"),
            ("Verify", "Verified 4 of 4 files"),
            ("Pin", "is pinned"),
            ("Unpin", "is no longer pinned"),
        ):
            look.page.click(f"button:text-is({button!r})")
            look.wait_for(said)
            look.page.keyboard.press("Escape")
        look.page.wait_for_selector(".treemap .cell")
        look.go("cache/checkpoints/flights/state/0/0")
        look.page.click("a.entry:visible")
        look.wait_for("last used")
        look.page.click("button:text-is('Why')")
        look.wait_for("The store has it, and this node has a copy")
        look.page.keyboard.press("Escape")
        look.page.click("button:text-is('Evict')")
        look.page.click("dialog button.danger")
        look.wait_for("Evicted 1 of 1 file")
        look.page.keyboard.press("Escape")
        look.go("checkpoints")
        look.page.click("button:text-is('List')")
        look.wait_for("1 checkpoint,")
        assert look.page.locator("#content img").count() == 0
        look.check()


def test_a_sweep_is_planned_and_carried_out(make_node: NodeFactory, remote_files: Path, browser: Browser) -> None:
    node = make_node(sweep__grace_seconds=0, sweep__abandoned_seconds=0, sweep__min_batches_to_retain=1).start()
    left = remote_files / "q/offsets/.0.7f3e1c52-8a4b-4c1d-9e55-0d6a2b9f4c11.tmp"
    for name in ("metadata", "offsets/0", "commits/0", f"offsets/{left.name}"):
        (remote_files / "q" / name).parent.mkdir(parents=True, exist_ok=True)
        (remote_files / "q" / name).write_bytes(b"v1\n{}\n")
        os.utime(remote_files / "q" / name, (1, 1))
    with page_server(node.socket) as address, looking(browser, address, scheme="dark") as look:
        look.go("checkpoints")
        look.page.click("text=Plan a sweep")
        look.wait_for("1 to remove")
        assert left.exists()
        look.page.click("text=Carry out")
        look.page.click("dialog button:text-is('Cancel')")
        look.page.click("text=Carry out")
        look.page.click("dialog button.danger")
        look.wait_for("Removed 1 of 1")
        assert not left.exists()
        look.check()


def test_a_directory_with_a_hundred_thousand_files_is_shown_page_by_page(
    node: Node, remote_files: Path, browser: Browser
) -> None:
    (remote_files / "many").mkdir()
    directory = os.open(remote_files / "many", os.O_RDONLY)
    for number in range(100_000):
        os.close(os.open(f"{number:06}", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
    os.close(directory)
    with page_server(node.socket) as address, looking(browser, address) as look:
        look.go("cache/checkpoints/many")
        look.wait_for("000199")
        assert look.page.locator("tbody tr").count() == 200
        look.page.click("text=More")
        look.wait_for("000399")
        look.go("overview")
        look.wait_for("nothing")
        look.check()


def test_on_tcp_only_who_has_the_token_gets_the_page_and_only_what_it_asks_for(make_node: NodeFactory) -> None:
    token = "0123456789abcdef"
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        node = make_node(ui__listen=f"127.0.0.1:{port}", ui__token=token).start()  # it starts all the same
        assert node.wait_event("page-unavailable")["address"] == f"127.0.0.1:{port}"
    place = f"http://127.0.0.1:{port}/{token}"

    def status(method: str, path: str, **headers: str) -> int:
        return httpx.request(method, path, headers=headers, content=b"{}" if method == "POST" else None).status_code

    wait_until(lambda: _listens(port))
    assert status("GET", f"{place}/ui/") == 200
    assert status("GET", f"{place}/v1/status") == 200
    assert status("POST", f"{place}/v1/pin") == 400  # without a path
    for method, path in (
        ("POST", "/v1/restart"),
        ("POST", "/v1/config/reload"),
        ("POST", "/v1/drain"),
        ("POST", "/v1/workdirs/acquire"),
        ("POST", "/v1/workdirs/release"),
        ("POST", "/v1/checkpoints/submit"),
        ("GET", "/v1/operations"),
        ("GET", "/v1/%73tatus"),
        ("GET", "/v1/status/../restart"),
        ("POST", "/ui/"),
        ("GET", "/metrics"),
    ):
        assert status(method, place + path) in (403, 404), path
    assert status("GET", f"http://127.0.0.1:{port}/ui/") == 404
    assert status("GET", f"http://127.0.0.1:{port}/{token[:-1]}/ui/") == 404
    assert status("GET", f"{place}/ui/", host="evil.example") == 403
    assert status("POST", f"{place}/v1/pin", origin="http://evil.example") == 403


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
