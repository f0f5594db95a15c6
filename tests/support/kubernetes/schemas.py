"""Kubernetes' own description of its objects, from the Go module of its source, as kubeconform reads it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.tools.go_programs import BuildError

_MODULE = "k8s.io/kubernetes@v1.34.4"
_DEFINITIONS = "_definitions.json"
LOCATION = "{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json"
"""The name of an object's file, in kubeconform's words."""


def write_schemas(directory: Path) -> None:
    """Write a schema for each kind of object to ``directory``; unknown fields are mistakes. Raises ``BuildError``."""
    try:
        told = subprocess.run(["go", "mod", "download", "-json", _MODULE], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BuildError("there is no Go, which fetches Kubernetes' description of its objects") from None
    if told.returncode != 0:
        raise BuildError(f"can't fetch {_MODULE}: {told.stdout}{told.stderr}")
    swagger = Path(json.loads(told.stdout)["Dir"], "api/openapi-spec/swagger.json")
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
