"""The page of a node in a real browser: each view with data and without, a daemon that goes and comes back."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.conftest import NodeFactory
from tests.support.browser import browsing, looking, needs_chromium, page_server
from tests.support.node import Node

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
        look.go("overview")
        look.wait_for("only this node has them")
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
        for view in ("workdirs", "events", "unsent"):
            look.go(view)
        look.check()


def test_the_page_is_used_with_the_keyboard(node: Node, browser: Browser) -> None:
    with page_server(node.socket) as address, looking(browser, address, scheme="dark") as look:
        look.go("overview")
        for key, title in (("3", "Events"), ("2", "Working directories"), ("1", "Overview")):
            look.page.keyboard.press(key)
            look.page.wait_for_selector(f"h1:text({title!r})")
        look.page.keyboard.press("?")
        look.page.wait_for_selector("dialog[open]")
        look.page.keyboard.press("Escape")
        look.page.wait_for_selector("dialog", state="detached")
        look.page.keyboard.press("3")
        look.page.wait_for_selector("input[type=search]")
        look.page.keyboard.press("/")
        look.page.keyboard.type("no such event")
        look.wait_for("nothing that matches")
        for theme in ("light", "dark", "system"):
            look.page.click("#theme")
            look.wait_for(f"Theme: {theme}")
        look.check()
