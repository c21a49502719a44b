"""Renders the chart for the tests of this folder."""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = None


class Chart:
    """What Helm makes of the chart with some values, by kind and name."""

    def __init__(self, values=None, release="demo"):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(values or {}, file)
            file.flush()
            done = subprocess.run(
                [OPTIONS.helm, "template", release, OPTIONS.chart, "-n", "attention",
                 "-f", file.name], capture_output=True, text=True)
        self.error = done.stderr if done.returncode else ""
        self.objects = {}
        for document in yaml.safe_load_all(done.stdout):
            if document:
                self.objects[document["kind"], document["metadata"]["name"]] = document

    def all(self, kind):
        return [value for (k, _), value in self.objects.items() if k == kind]

    def one(self, kind, name=None):
        found = [o for o in self.all(kind) if name in (None, o["metadata"]["name"])]
        if len(found) != 1:
            raise AssertionError(f"{len(found)} of {kind} {name or ''}: {self.error}")
        return found[0]

    def pod(self):
        return self.one("Deployment")["spec"]["template"]["spec"]

    def server(self):
        return next(c for c in self.pod()["containers"] if c["name"] == "attnd")

    def conf(self):
        """attnd.conf, a flag's value by its name; as text, without quotes."""
        [text] = [o["data"]["attnd.conf"] for o in self.all("ConfigMap") if "data" in o]
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        pairs = [line.split(" = ", 1) for line in lines]
        if len(dict(pairs)) != len(pairs):
            raise AssertionError(f"a flag is there twice:\n{text}")
        return {flag: value.strip('"') for flag, value in pairs}


def value_files():
    """Values by their file's name: what deploy/check.sh renders, too."""
    return {path.name: yaml.safe_load(path.read_text())
            for path in sorted((pathlib.Path(OPTIONS.chart) / "ci").glob("*-values.yaml"))}


def main(add_options=lambda parser: None):
    """Runs the tests of the calling module."""
    global OPTIONS
    parser = argparse.ArgumentParser()
    parser.add_argument("--helm", required=True)
    parser.add_argument("--chart", default=str(ROOT / "deploy/helm/attnd"))
    add_options(parser)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(module="__main__", argv=[sys.argv[0], *rest])
