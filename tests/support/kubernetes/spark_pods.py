"""The demo's job by ``spark-submit`` in cluster mode: driver and executors as pods, with the templates of the examples."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import yaml

from holdfast_spark.kubernetes import executor_template
from holdfast_spark.pipeline.data import arrive, split_flights
from tests.support.daemons.node import wait_until
from tests.support.kubernetes.application_pods import PodVolume, programs, programs_environment
from tests.support.kubernetes.cluster import API_SERVER, KubernetesCluster
from tests.support.kubernetes.images import APPLICATION_IMAGE
from tests.support.kubernetes.kubectl import wait_for_kubernetes
from tests.support.kubernetes.release import MOUNTPOINT

UID, GID = 185, 0
"""The user of Spark's pods, as in Spark's image."""
_ROOT = Path(__file__).parents[3]
_NAME = "flights"
SPARK_HOME = Path(pyspark.__file__).parent
_PIPELINE = _ROOT / "spark_integration/holdfast_spark/pipeline/__main__.py"
_ENTERED, _DONE = re.compile(r'^\{"entered": (\d+)', re.MULTILINE), re.compile(r'^\{"done": (\d+)', re.MULTILINE)
PATIENCE_SECONDS = 1200
"""For what the job does, and for a driver to start, beside much other work."""
_OTHERS = {"labelSelector": {"matchLabels": {"spark-role": "executor"}}, "topologyKey": "kubernetes.io/hostname"}
_APART = {
    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": _OTHERS}]}
}
_RIGHTS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "spark"}},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "spark"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "spark"}],
    },
]
SETTINGS = {
    "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
    "spark.kubernetes.driver.master": API_SERVER,
    "spark.kubernetes.container.image": APPLICATION_IMAGE,
    "spark.kubernetes.container.image.pullPolicy": "Never",
    "spark.kubernetes.driver.podTemplateContainerName": "driver",
    "spark.kubernetes.executor.podTemplateContainerName": "executor",
    "spark.kubernetes.driver.request.cores": "100m",
    "spark.kubernetes.executor.request.cores": "100m",
    "spark.driver.memory": "768m",
    "spark.executor.memory": "768m",
    "spark.driver.memoryOverhead": "768m",
    "spark.executor.memoryOverhead": "768m",
    "spark.executor.instances": "2",
    "spark.executor.cores": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # or the first executor to come gets all of the state
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    "spark.kubernetes.submission.waitAppCompletion": "false",
}


def spark_programs() -> list[PodVolume]:
    """Return the volumes with the node's programs, Java too, which is reached by links in ``/etc``."""
    return [*programs(), PodVolume.of_node("etc", Path("/etc"), readOnly=True)]


class SparkPods:
    """The job's files, its result, and its driver's pod, of which there is one at a time."""

    def __init__(self, cluster: KubernetesCluster, files: int) -> None:
        self._cluster, self._kubectl = cluster, cluster.kubectl
        self._directory = cluster.shared / "job"
        self._input, self._output = self._directory / "arriving", self._directory / "output"
        self._staged = split_flights(self._directory / "flights", files)
        self._arrived = 0
        self._drivers = 0
        self._following: subprocess.Popen[bytes]
        for directory in (self._input, self._output):
            directory.mkdir(exist_ok=True)
            os.chown(directory, UID, GID)
        cluster.kubectl.apply(_RIGHTS)
        self._write_template("driver", (_ROOT / "systemd/kubernetes/examples/driver.yaml").read_text())
        self._write_template("executor", executor_template(_NAME, str(MOUNTPOINT), UID, GID))

    def arrive(self, files: int) -> int:
        """Let so many more files arrive, one a batch; return the number of the last batch."""
        for path in self._staged[self._arrived : self._arrived + files]:
            arrive(path, self._input)
            self._arrived += 1
        return self._arrived - 1

    @property
    def driver(self) -> str:
        """The name of the driver's pod."""
        return f"driver-{self._drivers}"

    def submit(self) -> None:
        """Submit the job, which runs until it is ended."""
        self._drivers += 1
        settings = {
            **SETTINGS,
            "spark.kubernetes.driver.pod.name": self.driver,
            **{f"spark.kubernetes.{role}.podTemplateFile": str(self._template(role)) for role in ("driver", "executor")},
        }
        command = [str(SPARK_HOME / "bin/spark-submit"), "--master", f"k8s://{API_SERVER}", "--deploy-mode", "cluster"]
        command += ["--name", _NAME, *(word for each in settings.items() for word in ("--conf", "=".join(each)))]
        environment = {**os.environ, "KUBECONFIG": str(self._cluster.access), "SPARK_LOCAL_IP": "127.0.0.1"}
        command += self._command()
        told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr[-3000:]
        self._kubectl.run("wait", f"pod/{self.driver}", "--for=condition=Ready", f"--timeout={PATIENCE_SECONDS}s")
        self._follow()

    def executors(self) -> list[Any]:
        """Return the executors' pods that run."""
        found = self._kubectl.pods("spark-role=executor")
        return [pod for pod in found if pod["status"]["phase"] == "Running"]

    def executors_nodes(self) -> list[str]:
        """Return the nodes that these are on."""
        return sorted(pod["spec"]["nodeName"] for pod in self.executors())

    def enters(self, batch: int) -> None:
        """Wait until this batch, or a later one, is computed and its result written."""
        self._wait(_ENTERED, batch)

    def does(self, batch: int) -> None:
        """Wait until this batch, or a later one, is committed."""
        self._wait(_DONE, batch)

    def kill(self, pod: Any) -> None:
        """SIGKILL the processes of a pod's containers."""
        node = next(node for node in self._cluster.nodes if node.name == pod["spec"]["nodeName"])
        node.kill_pod(pod["metadata"]["uid"])

    def replace_driver(self) -> None:
        """SIGKILL the driver, and submit the job again when its pod has ended, and its executors' with it."""
        self.kill(self._kubectl.get("pod", self.driver))
        wait_for_kubernetes(lambda: self._kubectl.get("pod", self.driver)["status"]["phase"] == "Failed", PATIENCE_SECONDS)
        self._following.wait()
        self._kubectl.delete("pod", self.driver)  # its executors are deleted with it, as its dependents
        wait_for_kubernetes(lambda: not self.executors(), PATIENCE_SECONDS)
        self.submit()

    def differences(self) -> dict[str, int]:
        """Compare with a batch computation over the same files."""
        command = [sys.executable, "-P", "-m", "holdfast_spark.pipeline.check"]
        command += ["--input", str(self._input), "--output", str(self._output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        answer: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def said(self) -> str:
        """Return what the driver has said."""
        return self._log.read_text(errors="replace")

    def _command(self) -> list[str]:
        """Return the job's program, and its arguments."""
        job = ["--master", f"k8s://{API_SERVER}", "--input", str(self._input), "--output", str(self._output)]
        return [f"local://{_PIPELINE}", *job, "--until", "1000000"]

    def _follow(self) -> None:
        """Write what the driver says from now on, and has said, to its log."""
        self._following = self._kubectl.follow(self.driver, self._log)

    def _wait(self, milestone: re.Pattern[str], batch: int) -> None:
        def is_reached() -> bool:
            return any(int(found) >= batch for found in milestone.findall(self._log.read_text(errors="replace")))

        try:
            wait_until(lambda: is_reached() or self._following.poll() is not None, PATIENCE_SECONDS)
            assert is_reached(), self.said()[-5000:]
        except AssertionError as problem:
            problem.add_note(self._kubectl.run("get", "pods", "--output=wide") + self._kubectl.run("get", "events")[-3000:])
            raise

    @property
    def _log(self) -> Path:
        return self._directory / f"{self.driver}.log"

    def _template(self, role: str) -> Path:
        return self._directory / f"{role}.yaml"

    def _write_template(self, role: str, text: str) -> None:
        pod = yaml.safe_load(text)
        self._add_programs(role, pod)
        self._template(role).write_text(yaml.safe_dump(pod))

    def _add_programs(self, role: str, pod: dict[str, Any]) -> None:
        """Add to a template what Spark's image would have: programs, and the one that a pod begins with."""
        (container,) = pod["spec"]["containers"]
        volumes = [*spark_programs(), PodVolume.of_node("job", self._directory)]
        container["volumeMounts"] += [volume.mounted for volume in volumes]
        pod["spec"]["volumes"] += [volume.declared for volume in volumes]
        variables = {**programs_environment(), "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable}
        container["env"] += [{"name": name, "value": value} for name, value in variables.items()]
        container["command"] = [sys.executable, "-P", "-m", "tests.support.kubernetes.spark_entry"]
        pod["spec"]["securityContext"] = {"runAsUser": UID, "runAsGroup": GID}
        pod["spec"]["affinity"] = _APART if role == "executor" else {}
