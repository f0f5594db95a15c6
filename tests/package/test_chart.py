"""The Helm chart and the examples, as Kubernetes would take them."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.config import load
from tests.support.kubernetes.programs import helm_program
from tests.support.kubernetes.schemas import LOCATION, write_operator_schemas, write_schemas
from tests.support.tools.go_programs import BuildError, go_program

_ROOT = Path(__file__).parents[2] / "systemd/kubernetes"
_KUBECONFORM = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"
_ALL = (
    "storageClass.create=true",
    "podMonitor.create=true",
    "daemon.metricsPort=9090",
    "priorityClass.create=true",
    "credentials.create.AWS_ACCESS_KEY_ID=key",
    "nodeSelector.disk=local",
    "imagePullSecrets[0].name=pull",
)
_UNKNOWN = "PodMonitor"  # of an operator's own definitions


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Helm, kubeconform, and the directory of schemas."""
    schemas = tmp_path_factory.mktemp("schemas")
    try:
        found = helm_program(), go_program("kubeconform", _KUBECONFORM)
        write_schemas(schemas)
    except BuildError as problem:
        pytest.skip(str(problem))
    return *found, schemas


def _rendered(helm: Path, *settings: str) -> str:
    words = [word for setting in settings for word in ("--set", setting)]
    command = [
        str(helm),
        "template",
        "holdfast",
        str(_ROOT / "chart"),
        "--namespace",
        "holdfast",
        "--kube-version",
        "1.34.0",
        *words,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "settings", [(), _ALL, ("csi.enabled=false", "uninstall.unmount=false")], ids=["plain", "all", "less"]
)
def test_kubernetes_would_take_what_the_chart_makes(tools: tuple[Path, Path, Path], settings: tuple[str, ...]) -> None:
    helm, kubeconform, schemas = tools
    text = _rendered(helm, *settings)
    command = [str(kubeconform), "-strict", "-summary", "-skip", _UNKNOWN, "-schema-location", f"{schemas}/{LOCATION}", "-"]
    checked = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    kinds = [each["kind"] for each in yaml.safe_load_all(text) if each]
    has_driver = "csi.enabled=false" not in settings
    assert kinds.count("DaemonSet") == (4 if has_driver else 2)
    assert kinds.count("ValidatingAdmissionPolicy") == has_driver


def test_the_pods_have_the_rights_that_the_page_names_and_the_daemon_starts_with_the_configuration(
    tools: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    objects = [each for each in yaml.safe_load_all(_rendered(tools[0])) if each]
    pods = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "DaemonSet"}
    daemon, keeper = (pods[f"holdfast-{name}"]["template"]["spec"] for name in ("daemon", "keeper"))
    assert (daemon["hostPID"], daemon["hostNetwork"], keeper.get("hostPID")) == (True, True, None)
    assert pods["holdfast-keeper"]["updateStrategy"] == {"type": "OnDelete"}
    assert keeper["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in keeper["containers"][0]["securityContext"]
    assert [volume["hostPath"]["path"] for volume in keeper["volumes"]] == ["/run/holdfast"]
    environment = {each["name"]: each.get("value", "a-node") for each in daemon["containers"][0]["env"]}
    (driver,) = (each for each in objects if each["kind"] == "CSIDriver")
    assert driver["metadata"]["labels"]["security.openshift.io/csi-ephemeral-volume-profile"] == "restricted"
    (data,) = (each["data"] for each in objects if each["kind"] == "ConfigMap")
    file = tmp_path / "holdfast.toml"
    file.write_text(data["holdfast.toml"])
    config = load(file, environment, {}).config
    assert config.control.pods_socket == "/run/holdfast/pods/pods.sock"
    assert config.holdings.node == "a-node"
    assert sorted(config.stores) == ["blobs", "checkpoints"]


def _end(container: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(container.pid, signal.SIGKILL)


def test_the_containers_of_a_daemons_pod_take_turns(tools: tuple[Path, Path, Path], tmp_path: Path) -> None:
    objects = [each for each in yaml.safe_load_all(_rendered(tools[0], "daemon.metricsPort=9090")) if each]
    (pod,) = (each["spec"]["template"]["spec"] for each in objects if each["metadata"]["name"] == "holdfast-daemon")
    first, second = pod["containers"]
    assert (first["name"], second["name"]) == ("daemon", "spare")
    assert {key for key in first if first[key] != second.get(key)} == {"name", "ports", "readinessProbe", "resources"}
    command = list(first["command"][: first["command"].index("holdfast")])
    lock = tmp_path / "daemon.lock"
    assert command.pop() == "/run/holdfast/daemon.lock"
    command += [str(lock), "sh", "-c", "echo begun; exec sleep infinity"]

    with ExitStack() as stack:

        def start() -> subprocess.Popen[str]:
            started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
            stack.enter_context(started)
            stack.callback(_end, started)
            return started

        def says(container: subprocess.Popen[str]) -> str:
            assert container.stdout is not None
            return container.stdout.readline()

        waiting = "another container serves the mount; this one waits until that has ended\n"
        mounts = start()
        assert says(mounts) == "begun\n"
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
        waits = start()
        assert says(waits) == waiting
        mounts.kill()
        assert says(waits) == "begun\n"
        is_ended = start()
        assert says(is_ended) == waiting
        is_ended.terminate()
        assert is_ended.wait() == -signal.SIGTERM


def test_the_examples_are_pods_that_kubernetes_would_take(tools: tuple[Path, Path, Path], tmp_path: Path) -> None:
    _, kubeconform, schemas = tools
    application = yaml.safe_load((_ROOT / "examples/spark-operator.yaml").read_text())["spec"]
    pods = [yaml.safe_load((_ROOT / "examples/driver.yaml").read_text())]
    pods += [{"apiVersion": "v1", "kind": "Pod", **application[name]["template"]} for name in ("driver", "executor")]
    command = [str(kubeconform), "-strict", "-schema-location", f"{schemas}/{LOCATION}", "-"]
    checked = subprocess.run(command, input=yaml.safe_dump_all(pods), capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert {each["csi"]["driver"] for pod in pods for each in _volumes(pod)} == {"holdfast.csi"}


def test_spark_operator_would_take_the_example_and_no_field_that_it_does_not_know(
    tools: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    try:
        write_operator_schemas(tmp_path)
    except BuildError as problem:
        pytest.skip(str(problem))
    command = [str(tools[1]), "-strict", "-schema-location", f"{tmp_path}/{LOCATION}", "-"]
    text = (_ROOT / "examples/spark-operator.yaml").read_text()
    for given, status in ((text, 0), (text.replace("serviceAccount:", "serviceAcount:"), 1)):
        checked = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert checked.returncode == status, checked.stdout + checked.stderr


def _volumes(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from pod["spec"]["volumes"]
