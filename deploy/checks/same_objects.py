#!/usr/bin/env python3
"""Fails unless two folders of rendered manifests have the same objects.

    deploy/checks/same_objects.py ONE OTHER

Helm 3 and 4 indent and order differently, so what is compared is the content.
"""

import pathlib
import sys

import yaml


def objects(path):
    """By kind and name."""
    found = {}
    for document in yaml.safe_load_all(path.read_text()):
        if document:
            found[document["kind"], document["metadata"]["name"]] = document
    return found


def main():
    one, other = map(pathlib.Path, sys.argv[1:])
    names = {path.name for folder in (one, other) for path in folder.iterdir()}
    differ = 0
    for name in sorted(names):
        a, b = objects(one / name), objects(other / name)
        for key in sorted(a.keys() | b.keys()):
            if a.get(key) != b.get(key):
                print(f"{name}: {' '.join(key)} differs between {one.name} and {other.name}")
                differ = 1
    print(f"{len(names)} files compared")
    sys.exit(differ or not names)


if __name__ == "__main__":
    main()
