"""Descriptions of objects, as kubeconform reads them: Kubernetes' own and spark-operator's, from their Go modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.support.kubernetes.programs import SPARK_OPERATOR, module_directory

_DEFINITIONS = "_definitions.json"
LOCATION = "{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json"
"""The name of an object's file, in kubeconform's words."""
_SPARK_APPLICATION = "config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml"


def write_schemas(directory: Path) -> None:
    """Write a schema for each kind of object to ``directory``; unknown fields are mistakes. Raises ``BuildError``."""
    swagger = module_directory() / "api/openapi-spec/swagger.json"
    definitions: dict[str, dict[str, Any]] = json.loads(swagger.read_text())["definitions"]
    for name, definition in definitions.items():
        if "properties" in definition:
            definition["additionalProperties"] = False
        if definition.get("format") == "int-or-string":
            del definition["type"]
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            group = kind["group"] or kind["version"]  # as kubeconform has it
            file = directory / f"{kind['kind'].lower()}-{group}-{kind['version']}.json"
            file.write_text(json.dumps({"$ref": f"{_DEFINITIONS}#/definitions/{name}"}))
    (directory / _DEFINITIONS).write_text(json.dumps({"definitions": definitions}))


def write_operator_schemas(directory: Path) -> None:
    """Write a schema for spark-operator's applications, in which unknown fields are mistakes too. Raises ``BuildError``."""
    definition = yaml.safe_load((module_directory(SPARK_OPERATOR) / _SPARK_APPLICATION).read_text())["spec"]
    kind, group = definition["names"]["kind"].lower(), definition["group"]
    for version in definition["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        schema["properties"]["metadata"]["additionalProperties"] = True
        _refuse_unknown_fields(schema)
        (directory / f"{kind}-{group}-{version['name']}.json").write_text(json.dumps(schema))


def _refuse_unknown_fields(schema: Any) -> None:
    if isinstance(schema, list):
        for each in schema:
            _refuse_unknown_fields(each)
    if isinstance(schema, dict):
        if (
            schema.get("type") == "object"
            and "properties" in schema
            and "x-kubernetes-preserve-unknown-fields" not in schema
        ):
            schema.setdefault("additionalProperties", False)
        for each in schema.values():
            _refuse_unknown_fields(each)
