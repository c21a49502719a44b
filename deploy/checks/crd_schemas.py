#!/usr/bin/env python3
"""Writes JSON schemas of the objects that operators bring to Kubernetes.

    deploy/checks/crd_schemas.py FOLDER    FOLDER/KIND.json, the kind in lower case

They come from the cloudcoil packages' models of the operators' own definitions. A model
ignores what it does not know; here that is made an error, as the API server would prune
it and nobody would hear of it.
"""

import importlib
import json
import pathlib
import sys

KINDS = {
    "cloudcoil.models.prometheus_operator.v1": ("PrometheusRule", "ServiceMonitor"),
    "cloudcoil.models.keda.v1alpha1": ("ScaledObject",),
}


def strict(schema):
    """The schema, in which objects with named members have no others."""
    if isinstance(schema, dict):
        schema = {key: strict(value) for key, value in schema.items()}
        if isinstance(schema.get("properties"), dict):
            schema.setdefault("additionalProperties", False)
    elif isinstance(schema, list):
        schema = [strict(value) for value in schema]
    return schema


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for module, kinds in KINDS.items():
        for kind in kinds:
            schema = getattr(importlib.import_module(module), kind).model_json_schema(by_alias=True)
            (folder / f"{kind.lower()}.json").write_text(json.dumps(strict(schema), indent=1))


if __name__ == "__main__":
    main()
