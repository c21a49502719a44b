#!/usr/bin/env python3
"""That deploy/check.sh notices what is wrong: each input is broken once, in a copy.

    deploy/check.sh --self-test                    all cases
    tests/deploy/check_test.py Noticed.test_helm   some, as unittest has it

Every case runs one check over a copy of the tree and fails unless the check is OK as the
tree stands and FAILED, saying why, once the copy is broken.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What checks look at, and nothing that takes long to copy.
COPIED = ["deploy", "proto", "tests/deploy", "tests/monitoring", "tests/process", "tests/python",
          "tests/rules"]
CHART = "deploy/helm/attnd"
BUILD = ROOT / "build/release"


def replace(path, pattern, text):
    """The first match of a regular expression in a file of the copy."""
    def damage(root):
        whole = (root / path).read_text()
        broken, count = re.subn(pattern, text, whole, count=1, flags=re.MULTILINE)
        assert count == 1, f"{path} has no {pattern}"
        (root / path).write_text(broken)
    return damage


def append(path, text):
    def damage(root):
        with open(root / path, "a") as file:
            file.write(text)
    return damage


def create(path, text):
    def damage(root):
        assert not (root / path).exists(), path
        (root / path).write_text(text)
    return damage


def link(path, to):
    def damage(root):
        (root / path).unlink()
        (root / path).symlink_to(root / to)
    return damage


def remove(pattern):
    def damage(root):
        found = list(root.glob(pattern))
        assert found, f"there is no {pattern}"
        for path in found:
            path.unlink()
    return damage


def first(pattern, damage):
    """A damage of the first file that is like the pattern."""
    def damage_it(root):
        found = sorted(root.glob(pattern))
        assert found, f"there is no {pattern}"
        damage(found[0].relative_to(root).as_posix())(root)
    return damage_it


# Check, what is done to the copy, and what the check then says.
CASES = [
    ("hadolint", append("deploy/docker/Dockerfile", "RUN apt-get install curl\n"), "DL3008|DL3015"),
    ("hadolint", remove("deploy/docker/Dockerfile*"), "there is no"),
    ("compose", first("deploy/docker/docker-compose*.yml", lambda path: append(path, "servicess: {}\n")),
     "servicess"),
    ("compose", remove("deploy/docker/docker-compose*.yml"), "there is no"),
    ("helm", append(f"{CHART}/templates/service.yaml", "{{ fail \"broken\" }}\n"), "broken"),
    ("helm", append(f"{CHART}/ci/cpu-values.yaml", "gpus: 8\n"), "gpus"),
    ("helm", append(f"{CHART}/templates/service.yaml", "{{ .Release.IsNonesuch.name }}\n"), "IsNonesuch"),
    ("helm", append(f"{CHART}/templates/configmap.yaml", "  helm: {{ .Capabilities.HelmVersion.Version }}\n"),
     "differs between"),
    ("package", create(f"{CHART}/files/left_over.py", ""), "more than the chart"),
    ("package", link(f"{CHART}/files/alerts.yml", "deploy/monitoring/prometheus/alerts.yml"),
     "a symbolic link"),
    ("schemas", replace(f"{CHART}/templates/deployment.yaml", "minReadySeconds:", "minReadySecond:"),
     "Kubernetes 1.30.*minReadySecond"),
    ("schemas", replace(f"{CHART}/templates/scaledobject.yaml", "pollingInterval:", "pollInterval:"),
     "ScaledObject.*pollInterval"),
    ("schemas", replace(f"{CHART}/templates/servicemonitor.yaml", "scrapeTimeout:", "timeout:"),
     "ServiceMonitor.*timeout"),
    ("schemas", replace(f"{CHART}/templates/prometheusrule.yaml", "^spec:", "specs:"),
     "PrometheusRule.*specs"),
    ("schemas", replace(f"{CHART}/templates/poddisruptionbudget.yaml", "policy/v1", "policy/v1beta1"),
     "no schema for policy/v1beta1"),
    ("chart", replace(f"{CHART}/templates/_helpers.tpl", r" \(int64 .Values.drain.timeSeconds\)", ""),
     "test_the_grace_period_covers_the_whole_drain"),
    ("chart", replace(f"{CHART}/templates/_helpers.tpl", "readOnlyRootFilesystem: true",
                      "readOnlyRootFilesystem: false"), "test_every_container_is_confined"),
    ("chart", replace(f"{CHART}/templates/_validate.tpl", "(?s).*", '{{- define "attnd.validate" }}{{ end }}'),
     "test_values_that_would_not_work"),
    ("scaling", replace(f"{CHART}/templates/_autoscaling.tpl", ',phase="queue"', ""), "queue-time|exp:"),
    ("scaling", replace(f"{CHART}/templates/_autoscaling.tpl", r" or 0 \* count", " or 1 * count"), "exp:"),
    ("config", replace(f"{CHART}/templates/_config.tpl", "^drain_time =", "drain_times ="), "drain_times"),
    ("config", append(f"{CHART}/files/o.npy", "more"), "o.npy"),
    ("values", replace(f"{CHART}/values.yaml", "  # GPUs of each server.*\n", ""), "gpu.count: has no comment"),
    ("values", append(f"{CHART}/values.yaml", "# New.\nnewValue: 1\n"), "newValue: values.schema.json lacks it"),
    ("values", replace(f"{CHART}/values.yaml", "^minReadySeconds: 5", "minReadySeconds: 6"), "README.md"),
    ("values", replace(f"{CHART}/values.yaml", "^# Seconds that a new pod.*\nminReadySeconds.*\n", ""),
     "values.yaml lacks it"),
    ("copies", append("deploy/monitoring/prometheus/alerts.yml", "# New.\n"), "New"),
    ("copies", replace("deploy/checks/make_test_tensors.py", r"Random\(35\)", "Random(36)"), "differ"),
    ("promtool", replace("deploy/monitoring/prometheus/alerts.yml", "expr: up", "expr: up)"), "parse error"),
    ("promtool", replace("deploy/monitoring/prometheus/alerts.yml", "severity: critical", "severity: none"),
     "FAILED|exp"),
    ("promtool", append("deploy/monitoring/prometheus/prometheus.yml", "nonesuch: 1\n"), "nonesuch"),
    ("promtool", remove("tests/monitoring/*_test.yml"), "does not exist"),
    ("systemd", first("deploy/debian/*.service", lambda path: replace(path, "^ExecStart=", "ExecStarts=")),
     "ExecStart"),
    ("systemd", first("deploy/debian/*.service", lambda path: replace(
        path, r"(?s)^\[Service\].*?^ExecStart=([^\n]*).*", r"[Service]\nExecStart=\1\n")),
     "Overall exposure level.*(EXPOSED|UNSAFE)"),
    ("systemd", create("deploy/debian/new.service", "[Service]\nExecStart=/usr/bin/attnd\n"),
     "Overall exposure level for new.service.*(EXPOSED|UNSAFE)"),
    ("systemd", remove("deploy/debian/*.service"), "there is no"),
    ("shellcheck", create("deploy/new.sh", "#!/bin/bash\necho $1\n"), "SC2086"),
    ("shellcheck", create("deploy/new", "#!/usr/bin/env bash\necho $1\n"), "SC2086"),
    ("yamllint", append(f"{CHART}/ci/cpu-values.yaml", "cpu: {}\n"), "duplication of key"),
    ("json", first("deploy/monitoring/grafana/dashboards/*.json", lambda path: append(path, "}")),
     "Extra data"),
    ("json", remove("deploy/monitoring/grafana/dashboards/*.json"), "there is no"),
    ("schema", replace("proto/attn/v1/attention.proto", r"^  Tensor q = 1;", "  Tensor q = 100;"),
     "attention.proto"),
    ("schema", remove("tests/rules/schema.py"), "there is no"),
]


def copy_of_the_tree(folder):
    # What buf is in; another one for each copy would take its time.
    (folder / "build").mkdir()
    (folder / "build/venv").symlink_to(ROOT / "build/venv")
    shutil.copy(ROOT / "CHANGELOG.md", folder)
    for path in COPIED:
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, folder / path, symlinks=True,
                            ignore=shutil.ignore_patterns("__pycache__"))


def check(root, name, *flags, **environment):
    """The check's exit status and output, in the tree at root."""
    environment = {"ATTND_CHECK_TOOLS": str(ROOT / "build/tools/deploy"), **os.environ, **environment}
    done = subprocess.run([root / "deploy/check.sh", f"--only={name}", f"--build={BUILD}", *flags],
                          capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


def look_at(case):
    """What is wrong with deploy/check.sh in this case; else ''."""
    name, damage, said = case
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        copy_of_the_tree(folder)
        try:
            damage(folder)
        except AssertionError as error:
            return f"{name}: nothing to break: {error}"
        status, output = check(folder, name)
    if status != 1 or not output.startswith("FAILED") or not re.search(said, output):
        return f"{name}: not noticed, /{said}/ is not in what it says ({status}):\n{output}"
    return ""


def in_parallel(function, items):
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(function, items))


class Noticed(unittest.TestCase):

    def cases_of(self, name):
        with tempfile.TemporaryDirectory() as folder:
            copy_of_the_tree(pathlib.Path(folder))
            status, output = check(pathlib.Path(folder), name)
        self.assertEqual(status, 0, f"not OK as the tree stands:\n{output}")
        faults = in_parallel(look_at, [case for case in CASES if case[0] == name])
        self.assertEqual([fault for fault in faults if fault], [])


def add_test(name):
    setattr(Noticed, f"test_{name}", lambda self: self.cases_of(name))


class Runner(unittest.TestCase):

    def list(self):
        return subprocess.run([ROOT / "deploy/check.sh", "--list"], check=True,
                              capture_output=True, text=True).stdout.split()

    def test_every_check_has_a_case(self):
        self.assertEqual(set(self.list()), {name for name, _, _ in CASES})

    def test_a_tool_that_cannot_be_installed_is_told_and_no_success(self):
        with tempfile.TemporaryDirectory() as tools:
            nowhere = {"ATTND_CHECK_TOOLS": tools, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": tools,
                       "ATTND_DEBIAN_MIRROR": "file:///nonesuch"}
            for name in ("values", "promtool"):
                status, output = check(ROOT, name, **nowhere)
                self.assertRegex(output, r"^SKIPPED .*: \S")
                self.assertEqual(status, 1, output)
                status, output = check(ROOT, name, "--allow-missing", **nowhere)
                self.assertRegex(output, r"^SKIPPED .*: \S")
                self.assertEqual(status, 0, output)

    def test_an_unknown_check_is_an_error(self):
        self.assertEqual(check(ROOT, "nonesuch")[0], 2)


for checked in sorted({name for name, _, _ in CASES}):
    add_test(checked)

if __name__ == "__main__":
    unittest.main()
