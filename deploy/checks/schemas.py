#!/usr/bin/env python3
"""Validates rendered manifests against Kubernetes' own schemas, and operators'.

    deploy/checks/schemas.py --crds=FOLDER --versions=1.30,1.37 FILE...

Strict: a field that a kind does not have is an error, as the API server would drop it and
nobody would hear of it. A kind that has no schema is an error, too. `all` stands for every
version that the package kubernetes-validate has.
"""

import argparse
import json
import pathlib
import re
import sys

import jsonschema
import kubernetes_validate
import referencing
import yaml

SCHEMAS = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"


class Kubernetes:
    """The schemas of one version."""

    def __init__(self, version):
        self.folder = SCHEMAS / f"v{version}.0-local-strict"
        definitions = self._read("_definitions.json")
        self.registry = definitions @ referencing.Registry()
        self.validators = {}

    def _read(self, name):
        return referencing.Resource.from_contents(json.loads((self.folder / name).read_text()))

    def validator(self, document):
        """None: this version has no such kind."""
        # networking.k8s.io/v1 is networking-v1 in a file's name.
        group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", document["apiVersion"])
        name = f"{document['kind'].lower()}-{group}.json"
        if name not in self.validators:
            found = None
            if (self.folder / name).exists():
                schema = self._read(name)
                found = jsonschema.Draft202012Validator(schema.contents,
                                                        registry=schema @ self.registry)
            self.validators[name] = found
        return self.validators[name]


def crd_validator(folder, document):
    path = folder / f"{document['kind'].lower()}.json"
    if not path.exists():
        return None
    return jsonschema.Draft202012Validator(json.loads(path.read_text()))


def faults(document, kubernetes, crds):
    """What is wrong with one document, one line each."""
    validator = kubernetes.validator(document) or crd_validator(crds, document)
    if validator is None:
        yield f"no schema for {document['apiVersion']} {document['kind']}"
        return
    for error in validator.iter_errors(document):
        yield f"{error.json_path}: {error.message}"


def all_versions():
    found = [re.match(r"v(\d+\.\d+)\.0-local-strict$", path.name) for path in SCHEMAS.iterdir()]
    return sorted((m[1] for m in found if m), key=lambda v: tuple(map(int, v.split("."))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--crds", type=pathlib.Path, required=True)
    parser.add_argument("--versions", default="all", help="or from 1.30 on: 1.30-")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()

    versions = all_versions()
    if options.versions.endswith("-"):
        versions = versions[versions.index(options.versions[:-1]):]
    elif options.versions != "all":
        versions = options.versions.split(",")
    documents = [(path, document) for path in options.files
                 for document in yaml.safe_load_all(path.read_text()) if document]
    wrong = 0
    for version in versions:
        kubernetes = Kubernetes(version)
        for path, document in documents:
            for fault in faults(document, kubernetes, options.crds):
                wrong += 1
                print(f"{path.name}: {document['kind']} {document['metadata']['name']}, "
                      f"Kubernetes {version}: {fault}")
    if not documents:
        sys.exit("no documents to validate")
    print(f"{len(documents)} objects, Kubernetes {', '.join(versions)}: {wrong} faults")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
