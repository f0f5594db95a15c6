"""A configuration that no daemon could start with is refused before anything is ended, everywhere in the same words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast.control.client import RefusedError
from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory
from tests.support.daemons.node import Node
from tests.support.kernel.needs import HAS_TAKEOVER
from tests.support.processes.programs import holdfast
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server

MISTAKES = {
    '[stores.checkpoints]\nurl = "s4://bucket/ck"\n': "s4://bucket/ck: no such kind of store is known",
    '[stores.checkpoints]\nurl = "S3://bucket/ck"\n': "no such kind of store is known",
    '[stores.checkpoints]\nurl = "nonsense"\n': "is not a URL of a store",
    '[stores.checkpoints]\nurl = "s3://bucket/ck"\noptions.regoin = "eu"\n': "no option 'regoin'; did you mean region?",
    '[stores.checkpoints]\nurl = "s3://b/c"\noptions.AWS_ENDPIONT = "x"\n': "did you mean endpoint?",
    '[stores.checkpoints]\nurl = "s3://b/c"\noptions.timeout = "5s"\n': "set remote.request_timeout_seconds",
    '[stores.checkpoints]\nurl = "s3://b/c"\noptions.user_agent = "me"\n': "no option 'user_agent'; take it out",
    '[stores.checkpoints]\nurl = "s3://b/c"\noptions.endpoint = "htp://x"\n': "'htp://x' is no address of a server",
    '[stores.checkpoints]\nurl = "s3://b/c"\noptions.endpoint = "minio:9000"\n': "'minio:9000' is no address of a server",
    '[stores.checkpoints]\nurl = "s3://b/c"\noptions.virtual_hosted_style_request = "maybe"\n': '"maybe" as boolean',
    '[stores.checkpoints]\nurl = "gs://b/c"\noptions.service_acount = "x"\n': "did you mean service_account?",
    '[stores.checkpoints]\nurl = "az://c/d"\noptions.acount_name = "x"\n': "did you mean account_name?",
    '[stores.checkpoints]\nurl = "file:///{place}/ck"\noptions.auto_mkdir = true\n': "file:// stores have no options",
    '[stores.checkpoints]\nurl = "file://{place}/holdfast.toml/ck"\n': "can't be a remote store: Not a directory",
    '[stores.checkpoints]\nurl = "fsspec+gopher://x/y"\n': "no such kind of store is known",
    '[store]\ndirectory = "/dev/shm/store"\n': "is on tmpfs, which a reboot empties",
    '[store]\ndirectory = "/proc/store"\n': "is on proc, which is no place for files",
    '[store]\ndirectory = "{place}"\n': "is not empty and not a store",
    '[store]\ndirectory = "{place}/holdfast.toml/store"\n': "can't be used: ",
    '[mount]\nmountpoint = "{place}/none"\n': "{place}/none does not exist; create it",
    '[mount]\nmountpoint = "{place}/holdfast.toml"\n': "is not a directory",
    '[control]\nsocket = "{place}/holdfast.toml"\n': "something else stands there",
    '[control]\nsocket = "{place}/{long}/s"\n': "the path is too long for a socket",
    '[log]\nfile = "{place}/holdfast.toml/log"\n': "log.file: can't write {place}/holdfast.toml/log: Not a directory",
    '[log]\nlevel = "shout"\n': "'shout'; allowed are debug, info, warning, error",
    '[names]\nwrite_once = ["**/<x>"]\n': "<x> is no word",
    '[sweep]\nroots = ["no-such/x"]\n': "sweep.roots: there is no zone 'no-such'",
    "[sweep]\ngrace_seconds = 1000000\nabandoned_seconds = 5\n": "can't be abandoned before the grace age",
}
EACH_SO_OFTEN = 7


def told(command: list[str], environment: dict[str, str]) -> str:
    """Run a daemon that is to say why it can't start; return what it says."""
    result = subprocess.run(
        [sys.executable, "-m", "holdfast.daemon", *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stderr.strip().splitlines()[-1].removeprefix("holdfastd: ")


@pytest.fixture
def file(workspace: Path) -> Path:
    return workspace / "holdfast.toml"


def basis(node: Node) -> str:
    """Return the node's own settings as the file has them: what is to be mistaken must not be an option."""
    sections: dict[str, list[str]] = {}
    for key, value in node.settings.items():
        section, _, name = key.rpartition(".")
        section = f"stores.{section}" if section in ("checkpoints", "blobs") else section
        sections.setdefault(section, []).append(f"{name} = {json.dumps(str(value) if isinstance(value, Path) else value)}")
    return "".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items())


def with_mistake(good: str, mistake: str) -> str:
    """Return the configuration with the keys of ``mistake`` in place of its own."""
    tree = tomllib.loads(good)
    for section, values in tomllib.loads(mistake).items():
        for name, value in values.items():
            if isinstance(value, dict) and isinstance(tree.get(section, {}).get(name), dict):
                tree[section][name] |= value
            else:
                tree.setdefault(section, {})[name] = value
    lines: list[str] = []

    def write(path: str, table: dict[str, object]) -> None:
        lines.append(f"[{path}]")
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict))
        for key, value in table.items():
            if isinstance(value, dict):
                write(f"{path}.{key}", value)

    for section, table in tree.items():
        write(section, table)
    return "\n".join(lines) + "\n"


def test_the_start_the_check_a_reload_and_a_restart_refuse_the_same(
    make_node: NodeFactory, workspace: Path, file: Path
) -> None:
    node = make_node()
    good = basis(node)
    file.write_text(good)
    kept, node.settings = node.settings, {}
    node.environment["HOLDFAST_CONFIG"] = str(file)
    node.supervised, node.outlives_daemon = True, False
    node.start()
    (node.checkpoints / "file").write_bytes(b"kept")
    pid = node.status().pid
    for number, (text, words) in enumerate(MISTAKES.items()):
        fill = {"place": workspace, "long": "long" * 30}
        file.write_text(with_mistake(good, text.format(**fill)))
        with pytest.raises(RefusedError) as refused, node.client() as client:
            client.reload()
        problem = str(refused.value)
        assert words.format(**fill) in problem
        if number % EACH_SO_OFTEN == 0:  # all make the same check; each of these starts an interpreter or two
            assert told(["--check"], node.environment) == problem
            assert told([], node.environment) == problem
            if HAS_TAKEOVER:  # or its supervisor must restart it
                said = holdfast("restart", "--socket", node.socket, status=78)
                assert said == f"holdfast: the next daemon would not start: {problem}\n"
        node.settings = kept
        assert node.status().pid == pid
        node.settings = {}
    node.settings = kept
    assert (node.checkpoints / "file").read_bytes() == b"kept"
    file.write_text(good)
    os.kill(node.pid, signal.SIGHUP)
    node.wait_event("configuration-reloaded")


def test_a_check_names_a_store_that_does_not_answer(file: Path, workspace: Path) -> None:
    (workspace / "mnt").mkdir()
    file.write_text(
        f'[mount]\nmountpoint = "{workspace}/mnt"\n[store]\ndirectory = "{workspace}/new"\n[stores.checkpoints]\nurl = "s3://b/c"\n'
        'options = { endpoint = "http://127.0.0.1:1", access_key_id = "a", secret_access_key = "b", region = "x" }\n'
        f'[stores.blobs]\nurl = "file://{workspace}/blobs"\n[control]\nsocket = "{workspace}/run/control.sock"\n'
    )
    command = [sys.executable, "-m", "holdfast.daemon", "--config", str(file), "--check"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert told.stderr.startswith("holdfastd: warning: the store checkpoints does not answer (asking s3://b/c: ")
    assert told.stderr.endswith("; a daemon would start all the same\n")


def test_a_store_that_refuses_is_a_mistake_and_one_that_is_silent_is_none(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy, file: Path
) -> None:
    file.write_text("")
    node = make_s3_node(place.through(proxy.endpoint))
    node.environment["HOLDFAST_CONFIG"] = str(file)
    node.start()
    proxy.answer(403, times=1, matching="probe")
    said = holdfast("config", "reload", "--socket", node.socket, status=1)
    assert said.startswith("holdfast: stores."), said
    proxy.answer(503, times=2, matching="probe")
    assert holdfast("config", "reload", "--socket", node.socket) == "nothing has changed\n"
