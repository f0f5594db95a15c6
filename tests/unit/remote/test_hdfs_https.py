"""An HDFS with HTTPS, at namenode and datanodes: only a server whose certificate is trusted is told anything."""

from __future__ import annotations

import pytest

from holdfast.errors import ObjectExistsError, RemoteUnavailableError
from tests.support.stores.https_hdfs import HttpsHdfs
from tests.unit.remote.test_remote_contract import content, opened, put

pytestmark = pytest.mark.slow


def test_objects_are_stored_read_and_removed(https_hdfs: HttpsHdfs) -> None:
    store = opened(f"{https_hdfs.url}/box", https_hdfs.options)
    large = bytes(range(256)) * 20_000
    put(store, "large", large, {"digest": "x"}, create_only=True)
    assert content(store, "large") == large
    assert store.head("large").metadata == {"digest": "x"}
    with pytest.raises(ObjectExistsError):
        put(store, "large", b"another", create_only=True)
    assert store.list_directory("").objects.keys() == {"large"}
    store.delete(["large"])
    assert not store.list_directory("").objects


def test_a_certificate_that_is_not_trusted_or_another_hosts_is_not_accepted(https_hdfs: HttpsHdfs) -> None:
    strangers = opened(f"{https_hdfs.url}/box", {"user": "holdfast"})
    with pytest.raises(RemoteUnavailableError, match="self-signed certificate"):
        put(strangers, "a")
    elsewhere = opened(f"swebhdfs://localhost:{https_hdfs.port}/box", https_hdfs.options)
    with pytest.raises(RemoteUnavailableError, match="not valid for 'localhost'"):
        put(elsewhere, "a")
    assert "a" not in opened(f"{https_hdfs.url}/box", https_hdfs.options).list_directory("").objects
