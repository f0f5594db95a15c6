"""Kubernetes' own description of its objects, from the Go module of its source, as kubeconform reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.kubernetes.programs import module_directory

_DEFINITIONS = "_definitions.json"
LOCATION = "{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json"
"""The name of an object's file, in kubeconform's words."""


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
