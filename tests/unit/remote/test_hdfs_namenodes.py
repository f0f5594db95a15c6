"""HDFS's namenodes: where their addresses come from, and which one is asked."""

from __future__ import annotations

import socket
import threading
import types
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigurationError, RemoteUnavailableError
from holdfast.remote import hdfs_namenodes, open_store
from holdfast.remote.hdfs_options import hdfs_access
from tests.support.stores.hdfs import write_site
from tests.support.stores.scripted_hdfs import Scripted, failure
from tests.unit.remote.test_remote_contract import content, opened, put


@pytest.mark.parametrize(
    "other_says",
    [
        (403, failure("StandbyException")),
        (403, failure("ObserverRetryOnActiveException")),
        (403, failure("RetriableException", "Namenode is in startup mode")),
        (403, "<html>GSSException: Failure unspecified at GSS-API level (Mechanism level: Checksum failed)</html>"),
        (404, "<html>no webhdfs yet</html>"),
        None,
    ],
)
def test_the_next_namenode_is_asked_if_one_is_not_active(
    scripted: tuple[type[Scripted], str], other_says: tuple[int, str] | None, tmp_path: Path
) -> None:
    """One that observes would answer reads. The last one is dead."""
    server, address = scripted
    server.answers = {**server.answers, "SETTIMES": (404, failure("FileNotFoundException"))}
    others: list[str] = []

    class Other(Scripted):
        answers = {**server.answers, "SETTIMES": other_says or (200, "")}  # noqa: RUF012
        asked = others

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever, args=(0.01,))
        thread.start()
        if other_says is None:
            other.shutdown()
            other.server_close()
        addresses = {"nn1": f"127.0.0.1:{other.server_port}", "nn2": address}
        write_site(
            tmp_path,
            {"dfs.ha.namenodes.both": "nn1,nn2"} | {f"dfs.namenode.http-address.both.{n}": a for n, a in addresses.items()},
        )
        store = opened("hdfs://both/box", {"config_dir": str(tmp_path)})
        assert [store.head("file").size_bytes for _ in range(3)] == [10] * 3
        assert others == (["SETTIMES"] if other_says else []), "the active one is remembered"
        assert server.asked[:2] == ["SETTIMES", "GETFILESTATUS"]
        assert server.asked.count("SETTIMES") == 1
        other.shutdown()
        thread.join()


def test_a_namenode_that_is_silent_is_left_when_the_request_is_tried_again(scripted: tuple[type[Scripted], str]) -> None:
    """It may have carried the request out, so the next namenode is not asked by itself."""
    server, address = scripted
    server.answers = {**server.answers, "SETTIMES": (404, failure("FileNotFoundException"))}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {"namenodes": f"127.0.0.1:{silent.getsockname()[1]}, {address}"}
        store = open_store(f"webhdfs://{address}/box", options, {}, request_timeout_seconds=3, connect_timeout_seconds=10)
        with pytest.raises(RemoteUnavailableError, match="timed out"):
            store.head("file")
        assert server.asked == []
        assert store.head("file").size_bytes == 10


def test_the_active_namenode_is_read_in_the_safe_mode_of_its_start(scripted: tuple[type[Scripted], str]) -> None:
    server, address = scripted
    said = "org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot set times. Name node is in safe mode.\nMore"
    refusal = (403, failure("RetriableException", said))
    server.answers = {**server.answers, "SETTIMES": refusal, "CREATE": refusal}
    store = opened(f"webhdfs://{address}/box", {"namenodes": f"{address}, 127.0.0.1:1"})
    assert content(store, "file") == b"0123456789"
    with pytest.raises(RemoteUnavailableError, match=r"Name node is in safe mode\.$"):
        put(store, "file")


def test_a_namenode_is_asked_again_after_a_while_whether_it_is_still_active(
    scripted: tuple[type[Scripted], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, address = scripted
    server.answers = {**server.answers, "SETTIMES": (404, failure("FileNotFoundException"))}
    now = [0.0]
    monkeypatch.setattr(hdfs_namenodes, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    store = opened(f"webhdfs://{address}/box", {"namenodes": f"{address}, {address}"})
    for now[0], asked in [(1.0, 1), (10.9, 1), (11.1, 2), (21.0, 2), (22.0, 3)]:
        store.head("file")
        assert server.asked.count("SETTIMES") == asked
    server.answers["SETTIMES"] = (403, failure("StandbyException"))
    store.head("file")
    now[0] = 33.0
    with pytest.raises(RemoteUnavailableError, match="no namenode is active"):
        store.head("file")


@pytest.mark.parametrize(
    ("url", "options", "site", "origins"),
    [
        ("hdfs://nn:8020/a", {}, {}, ["http://nn:9870"]),
        ("hdfs://nn/a", {}, {"dfs.http.policy": "HTTPS_ONLY"}, ["https://nn:9871"]),
        ("hdfs://nn:8020/a", {}, {"dfs.namenode.http-address": "nn:50070"}, ["http://nn:50070"]),
        ("hdfs://nn:8020/a", {}, {"dfs.namenode.http-address": "0.0.0.0:9870"}, ["http://nn:9870"]),
        ("hdfs://nn:8020/a", {}, {"dfs.namenode.http-address": "0.0.0.0:50070"}, ["http://nn:50070"]),
        ("hdfs://nn:8020/a", {}, {"dfs.namenode.http-address": "other:50070"}, ["http://nn:9870"]),
        ("hdfs://nn:8020/a", {}, {"web": "nn:50070", "dfs.namenode.http-address": "${web}"}, ["http://nn:50070"]),
        (
            "hdfs://both/a",
            {},
            {
                "dfs.ha.namenodes.both": "nn1,nn2,nn3",
                "dfs.namenode.rpc-address.both.nn1": "one:8020",
                "dfs.namenode.rpc-address.both.nn2": "two:8020",
                "dfs.namenode.http-address.both.nn2": "0.0.0.0:50070",
                "dfs.namenode.http-address.both.nn3": "${host.of.nn3}:50070",
                "host.of.nn3": "three",
            },
            ["http://one:9870", "http://two:50070", "http://three:50070"],
        ),
        ("hdfs:///a", {}, {"fs.defaultFS": "hdfs://nn:8020"}, ["http://nn:9870"]),
        ("hdfs://nn:8020/a", {"namenodes": "one:1, two"}, {}, ["http://one:1", "http://two:9870"]),
        ("webhdfs://nn:50070/a", {}, {}, ["http://nn:50070"]),
        ("swebhdfs://nn/a", {}, {}, ["https://nn:9871"]),
        ("hdfs://nn/a", {"namenodes": "[::1]:50070 [::1]"}, {}, ["http://[::1]:50070", "http://[::1]:9870"]),
    ],
)
def test_the_namenodes_come_from_the_url_the_options_or_hadoops_files(
    url: str, options: dict[str, Any], site: dict[str, str], origins: list[str], tmp_path: Path
) -> None:
    write_site(tmp_path, site)
    access = hdfs_access(url, options, {"HADOOP_CONF_DIR": str(tmp_path), "HADOOP_USER_NAME": "somebody"})
    assert (list(access.origins), access.directory, access.user) == (origins, "/a", "somebody")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("hdfs:///a", {}),
        ("hdfs://user:pa55word@nn/a", {}),
        ("hdfs://nn/a?op=DELETE", {}),
        ("hdfs://nn/a", {"nonsense": "1"}),
        ("hdfs://nn/a", {"kerberos": "perhaps"}),
        ("hdfs://nn/a", {"kerberos": ""}),
        ("hdfs://nn/a", {"config_dir": "/dev/null/x"}),
        ("hdfs://nn/a", {"namenodes": "nn1:9870 nn2:http"}),
        ("hdfs://nn/a", {"namenodes": "nn1:70000"}),
        ("hdfs://nn/a", {"namenodes": "http://nn1:9870"}),
        ("hdfs://${nn}/a", {}),
        ("webhdfs://:9870/a", {}),
        ("swebhdfs://nn/a", {"ca_file": "/no/such/file"}),
        ("swebhdfs://nn/a", {"ca_file": __file__}),
    ],
)
def test_a_url_or_an_option_that_can_not_be_is_refused_before_a_request(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        opened(url, options)
    assert "pa55word" not in str(caught.value)


def test_a_namenode_without_an_address_is_told_before_a_request(tmp_path: Path) -> None:
    write_site(tmp_path, {"dfs.ha.namenodes.both": "nn1,nn2", "dfs.namenode.http-address.both.nn1": "one:9870"})
    with pytest.raises(ConfigurationError, match=r"nn2: dfs\.namenode\.http-address\.both\.nn2 is missing"):
        hdfs_access("hdfs://both/a", {"config_dir": str(tmp_path)}, {})


@pytest.mark.parametrize(("given", "meant"), [(True, True), ("true", True), (False, False), ("false", False)])
def test_kerberos_may_be_switched_by_a_text(given: bool | str, meant: bool, tmp_path: Path) -> None:
    """The environment and ``--set`` have no other values."""
    assert hdfs_access("hdfs://nn/a", {"kerberos": given}, {}).kerberos is meant
    setting = "<property><name>hadoop.security.authentication</name><value>kerberos</value></property>"
    tmp_path.joinpath("core-site.xml").write_text(f"<configuration>{setting}</configuration>")
    assert hdfs_access("hdfs://nn/a", {"kerberos": given}, {"HADOOP_CONF_DIR": str(tmp_path)}).kerberos is meant


def test_a_token_is_in_an_option_or_in_a_file() -> None:
    with pytest.raises(ConfigurationError, match="token_file: there is a token already"):
        hdfs_access("hdfs://host/box", {"token": "t", "token_file": "/token"}, {})
