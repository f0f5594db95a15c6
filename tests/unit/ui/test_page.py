"""The files of the page, and who gets to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from holdfast.ui.guard import Guard
from holdfast.ui.page import page_routes

STATIC = Path(__file__).parents[3] / "daemon/holdfast/ui/static"
FILES = [file for file in STATIC.rglob("*") if file.is_file()]
CONTENT = {file: file.read_bytes() for file in FILES}
HOST = "127.0.0.1:4000"
TOKEN = "a-token"


async def answer(target: str, headers: Mapping[str, str], method: str = "GET") -> httpx.Response:
    app = Guard(Starlette(routes=page_routes()), TOKEN, lambda host: host == HOST)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        return await client.request(method, target, headers=headers)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
async def test_every_file_of_the_page_is_served_with_its_type_and_the_policy(file: Path) -> None:
    found = await answer(f"/{TOKEN}/ui/{file.relative_to(STATIC)}", {})
    assert found.status_code == 200
    assert found.content == CONTENT[file]
    kinds = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
    assert found.headers["content-type"].partition(";")[0] == kinds[file.suffix]
    assert "default-src 'none'" in found.headers["content-security-policy"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_file_of_the_page_names_another_place_or_makes_html_of_text(file: Path) -> None:
    text = file.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.[a-z]|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text)
    assert not re.search(r"\sstyle=|\son[a-z]+=|<script(?! type=\"module\" src=)", text)


def test_every_module_of_the_page_is_used() -> None:
    text = "".join(file.read_text() for file in FILES)
    assert [file.name for file in FILES if file.name not in text and file.name != "index.html"] == []


@pytest.mark.parametrize("target", ["/ui/", "/", "/a-toke/ui/", "/a-token", "/%61-token/ui/", "/a-token%2fui/", "//ui/"])
async def test_who_has_not_the_whole_address_finds_nothing(target: str) -> None:
    assert (await answer(target, {})).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:4000"},
        {"host": "127.0.0.1:4001"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"https://{HOST}"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    ],
    ids=str,
)
async def test_another_page_may_not_ask_even_if_it_knew_the_token(headers: dict[str, str]) -> None:
    assert (await answer(f"/{TOKEN}/ui/", headers)).status_code == 403


async def test_another_page_may_lead_to_the_page_but_not_give_it_orders() -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert (await answer(f"/{TOKEN}/ui/", headers)).status_code == 200
    assert (await answer(f"/{TOKEN}/ui/", headers, "POST")).status_code == 403
