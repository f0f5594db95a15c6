"""Names, on every implementation: each is kept as it is, or refused at once and for good."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import NameNotStorableError, ObjectMissingError
from holdfast.remote import RemoteStore
from tests.support.stores.contract_servers import GIVEN
from tests.unit.remote import test_remote_contract as contract
from tests.unit.remote.test_remote_contract import Implementation, content, put

pytestmark = pytest.mark.slow

implementation = contract.implementation
store = contract.store

ODD = [
    "with space",
    " leading",
    "trailing ",
    "100%",
    "%2F",
    "%41",
    "a%20b",
    "a+b",
    "a#b",
    "#",
    "a#1",
    "a?b",
    "a?b=c",
    "a&b=c",
    "a:b",
    "a;b",
    "a,b",
    "a@b",
    "a=b",
    "'quoted'",
    '"quoted"',
    "<b>",
    "[a]",
    "{a}",
    "a|b",
    "a\\b",
    "a^b",
    "a`b",
    "a~b",
    "a*b",
    "$a",
    "!a",
    "(a)",
    "...",
    ".a",
    "a.",
    "-a",
    "grüße",
    "gru\u0308ße",
    "日本語",
    "😀",
    "\u200f\u00a0",
    "a\u2028b",
    ".NAME.crc",
    "_temporary",
    "StateStoreId(opId=0,partId=1,name=default)-8f",
    "x" * 255,
]
NEVER = ["new\nline", "tab\t", "\x00", "\x1b[31m", "del\x7f", ".", "..", "surrogate\udcff", ""]


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_an_odd_name_is_kept_as_it_is(implementation: Implementation, name: str, record_property: contract.Record) -> None:
    store = implementation.store
    record_property("odd names are kept", store.name_rules.refused is None or not store.name_rules.refused.search(name))
    if store.name_rules.refused is not None and store.name_rules.refused.search(name):
        with pytest.raises(NameNotStorableError) as caught:
            put(store, name)
        expected = {GIVEN: name, "azurite": "a\\b", "hdfs": "a:b"}[implementation.name]
        assert (name, caught.value.errno) == (expected, errno.EINVAL)
        return
    for key in (name, f"directory/{name}", f"{name}/object"):
        if key == f"{name}/object" and not implementation.keeps_both:
            store.delete([name])
        info = put(store, key, key.encode(), create_only=True)
        assert info.key == key
        assert store.head(key).key == key
        assert content(implementation.other_node, key, etag=info.etag) == key.encode()
    root = store.list_directory("")
    assert root.directories == {"directory", name}
    assert set(root.objects) == ({name} if implementation.keeps_both else set())
    assert set(store.list_directory("directory").objects) == {name}
    assert set(store.list_directory(name).objects) == {"object"}
    assert {f"directory/{name}", f"{name}/object"} <= {info.key for info in store.list_tree("")}
    assert [info.key for info in store.list_tree(name)] == [f"{name}/object"]
    store.copy(f"directory/{name}", f"copied/{name}")
    assert content(store, f"copied/{name}") == f"directory/{name}".encode()
    store.delete([f"directory/{name}", f"copied/{name}", f"{name}/object", name])
    store.prune(name)
    assert list(store.list_tree("")) == []
    assert not store.list_directory(name).exists


def test_a_backslash_never_stands_for_a_slash(store: RemoteStore) -> None:
    put(store, "job/a/b", b"bytes")
    with pytest.raises(ObjectMissingError):
        store.head("job/a\\b")
    with pytest.raises(ObjectMissingError):
        content(store, "job/a\\b")
    with pytest.raises(ObjectMissingError):
        store.copy("job/a\\b", "copied")
    assert not store.list_directory("job\\a").exists
    assert list(store.list_tree("job\\a")) == []
    store.delete(["job/a\\b"])
    assert content(store, "job/a/b") == b"bytes"


def test_names_that_look_alike_are_different_objects(store: RemoteStore) -> None:
    names = ["grüße", "gru\u0308ße", "a b", "a+b", "a%20b", "a%2Fb", "a", "A", "x.", "x"]
    for name in names:
        put(store, f"alike/{name}", name.encode(), create_only=True)
    assert sorted(store.list_directory("alike").objects) == sorted(names)
    assert [content(store, f"alike/{name}").decode() for name in names] == names


@pytest.mark.parametrize("part", NEVER, ids=ascii)
@pytest.mark.parametrize("form", ["{}/x", "a/{}", "a/{}/x"])
def test_what_can_be_no_name_is_refused_everywhere(store: RemoteStore, form: str, part: str) -> None:
    put(store, "a/source")
    key = form.format(part)
    attempts: list[Callable[[], Any]] = [
        lambda: put(store, key),
        lambda: put(store, key, create_only=True),
        lambda: store.head(key),
        lambda: content(store, key),
        lambda: store.copy("a/source", key),
        lambda: store.copy(key, "target"),
        lambda: store.list_directory(key),
        lambda: list(store.list_tree(key)),
    ]
    for attempt in attempts:
        with pytest.raises(NameNotStorableError) as caught:
            attempt()
        assert str(caught.value).isprintable(), "a name can't forge a line of the log"
    store.delete([key])
    assert [info.key for info in store.list_tree("")] == ["a/source"]


@pytest.mark.parametrize("key", ["long/" + "y" * 256, "long/" + "y" * 1025, "/".join(["z" * 250] * 5), "d/" * 600 + "e"])
def test_a_name_that_is_too_long_for_the_store_is_refused_for_good(store: RemoteStore, key: str) -> None:
    put(store, "long/source")
    put(store, "z" * 250 + "/x")
    try:
        put(store, key, b"long")
    except NameNotStorableError:
        attempts: list[Callable[[], Any]] = [
            lambda: put(store, key, create_only=True),
            lambda: store.copy("long/source", key),
        ]
        for attempt in attempts:
            with pytest.raises(NameNotStorableError):
                attempt()
        for attempt in (lambda: store.head(key), lambda: content(store, key)):
            with pytest.raises((ObjectMissingError, NameNotStorableError)):
                attempt()
        store.delete([key, "long/source"])
        assert [info.key for info in store.list_tree("")] == ["z" * 250 + "/x"]
        store.prune(key)
    else:
        assert content(store, key) == b"long"
        assert key in {info.key for info in store.list_tree("")}
        store.delete([key])
        with pytest.raises(ObjectMissingError):
            store.head(key)


@pytest.mark.promise("refused-names")
@pytest.mark.parametrize(
    ("url", "options", "refused", "taken"),
    [
        ("s3://bucket/pre/fix", {"region": "us-east-1"}, ["a\ufffeb", "d/\uffff"], ["a\\b", "a:b", "\U0001fffe"]),
        ("az://container", {"account_name": "a", "account_key": "a2V5"}, ["a\\b", "\ufffe"], ["a:b", "a."]),
        ("fsspec+memory://x", {}, [], ["a:b", "a\\b", "\ufffe"]),
        ("webhdfs://host/x", {}, ["a:b", "d:/x"], ["a\\b"]),
        ("memory://", {}, [], ["a:b", "\ufffe"]),
    ],
)
def test_the_names_of_each_kind_of_store(url: str, options: dict[str, str], refused: list[str], taken: list[str]) -> None:
    rules = contract.opened(url, options).name_rules
    for name in refused:
        with pytest.raises(NameNotStorableError) as caught:
            rules.check(name)
        assert caught.value.errno == errno.EINVAL
        assert str(caught.value).isprintable()
    for name in taken:
        rules.check(name)


@pytest.mark.parametrize(
    ("url", "longest"),
    [
        ("s3://bucket", "k" * 1024),
        ("s3://bucket/pre/fix", "k" * 1016),
        ("s3://bucket/pre/fix", "\u00e9" * 508),
        ("webhdfs://host/x", "/".join(["k" * 255] * 5)),
        ("fsspec+file:///x", "\u00e9" * 127),
    ],
)
def test_a_name_may_be_as_long_as_the_store_takes_it(url: str, longest: str) -> None:
    rules = contract.opened(url, {"region": "us-east-1"} if url.startswith("s3") else {}).name_rules
    rules.check(longest)
    with pytest.raises(NameNotStorableError) as caught:
        rules.check(longest + "xx")
    assert caught.value.errno == errno.ENAMETOOLONG
