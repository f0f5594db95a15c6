"""Kubeflow's spark-operator on a cluster, by its own chart, and the demo's job as an application of the example.

Its image has the operator, built from its Go module, and no Spark: that is a volume of the node's, as in all pods of tests.
There is no name service and no kube-proxy, so the operator gets the API server's address, and has no webhook.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.kubernetes.application_pods import programs_environment
from tests.support.kubernetes.cluster import API_SERVER, KubernetesCluster
from tests.support.kubernetes.images import APPLICATION_IMAGE, write_program_image
from tests.support.kubernetes.kubectl import KubectlError, is_ready, wait_for_kubernetes
from tests.support.kubernetes.programs import SPARK_OPERATOR, module_directory, operator_program
from tests.support.kubernetes.spark_pods import PATIENCE_SECONDS, SETTINGS, SPARK_HOME, SparkPods, spark_programs

OPERATOR_IMAGE = "localhost/spark-operator:1"
_NAMESPACE = "spark-operator"
_OPERATOR = "spark-operator-controller"
_MORE_RIGHTS = {  # Spark 4.3 makes a network policy for a driver; the operator's own Spark, which is older, does not
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": f"{_OPERATOR}-of-a-newer-spark"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
    "subjects": [{"kind": "ServiceAccount", "name": _OPERATOR, "namespace": _NAMESPACE}],
}
_EXAMPLE = Path(__file__).parents[3] / "systemd/kubernetes/examples/spark-operator.yaml"


def install_operator(cluster: KubernetesCluster) -> None:
    """Install the operator, for applications in the namespace ``default``; return when it is ready."""
    image = cluster.directory / "spark-operator.tar"
    write_program_image(image, operator_program(), OPERATOR_IMAGE)
    for node in cluster.nodes:
        node.ctr("images", "import", str(image))
    registry, _, rest = OPERATOR_IMAGE.partition("/")
    repository, _, tag = rest.partition(":")
    host, _, port = API_SERVER.removeprefix("https://").partition(":")
    volumes = spark_programs()
    variables = {
        **programs_environment(),
        "SPARK_HOME": str(SPARK_HOME),
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
    }
    temporary = {"name": "tmp", "emptyDir": {}}
    values = {
        "image": {"registry": registry, "repository": repository, "tag": tag, "pullPolicy": "Never"},
        "webhook": {"enable": False},
        "spark": {"jobNamespaces": ["default"]},
        "controller": {
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "volumes": [temporary, *(volume.declared for volume in volumes)],
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *(volume.mounted for volume in volumes)],
            "securityContext": {"runAsUser": 185, "runAsNonRoot": True},
        },
    }
    file = cluster.directory / "spark-operator.yaml"
    file.write_text(yaml.safe_dump(values))
    cluster.kubectl.make_namespace(_NAMESPACE, profile="privileged")
    chart = module_directory(SPARK_OPERATOR) / "charts/spark-operator-chart"
    cluster.helm("install", "spark-operator", str(chart), f"--namespace={_NAMESPACE}", f"--values={file}")
    cluster.kubectl.apply([_MORE_RIGHTS])
    cluster.kubectl.within(_NAMESPACE).wait_ready("app.kubernetes.io/name=spark-operator")


class OperatedJob(SparkPods):
    """The job as the application of the example; when its driver has ended, the operator makes another one."""

    @property
    def driver(self) -> str:
        """The name of the driver's pod, whichever it is."""
        return "flights-driver"

    def submit(self) -> None:
        """Make the application, which runs until it is deleted."""
        self._kubectl.apply([self._application()])
        self._follow_another(but_not="")

    def replace_driver(self) -> None:
        """SIGKILL the driver; return when the operator has made another one."""
        pod = self._kubectl.get("pod", self.driver)
        self.kill(pod)
        self._following.wait()
        self._follow_another(but_not=pod["metadata"]["uid"])

    def _follow_another(self, but_not: str) -> None:
        def is_there() -> bool:
            try:
                pod = self._kubectl.get("pod", self.driver)
            except KubectlError:
                return False
            return pod["metadata"]["uid"] != but_not and is_ready(pod)

        wait_for_kubernetes(is_there, PATIENCE_SECONDS)
        self._follow()

    def _application(self) -> dict[str, Any]:
        application: dict[str, Any] = yaml.safe_load(_EXAMPLE.read_text())
        spec = application["spec"]
        for role in ("driver", "executor"):
            self._add_programs(role, spec[role]["template"])
            spec[role].update(memory=SETTINGS[f"spark.{role}.memory"], coreRequest="100m")
        spec["executor"]["cores"] = int(SETTINGS["spark.executor.cores"])
        spec["driver"]["kubernetesMaster"] = API_SERVER
        own = {key: value for key, value in SETTINGS.items() if "podTemplate" not in key}
        spec["sparkConf"] = {**spec.get("sparkConf", {}), **own}
        program, *arguments = self._command()
        spec.update(image=APPLICATION_IMAGE, imagePullPolicy="Never", mainApplicationFile=program, arguments=arguments)
        return application
