#!/usr/bin/env python3
"""attnd itself reads the chart's attnd.conf, and what `helm test` runs gets its answer.

    tests/deploy/config_test.py --helm=HELM --build=build/release     deploy/check.sh runs it

For each values file of the chart a server starts on the CPU by the rendered attnd.conf,
with the Secrets that it names, and the containers of the test pod run against it.
"""

import hashlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request

import chart
from chart import Chart

# An address of this process' own, so that the ports are as in attnd.conf and free.
PID = os.getpid()
HOST = f"127.{64 + (PID >> 16) % 128}.{PID >> 8 & 255}.{PID & 255}"
# Less than in a cluster, and no GPU.
HERE = ["--device=cpu", f"--host={HOST}", f"--admin_address={HOST}:7412",
        "--memory_limit=256MiB"]
START_SECONDS = 60


def program(path):
    return str(pathlib.Path(chart.OPTIONS.build) / path)


def make_secrets(folder, conf):
    """The files that attnd.conf names, and those of the test pod."""
    def certificate(out, *flags):
        subprocess.run([program("tests/make_certificate"), folder / out, *flags], check=True)

    certificate("authority", "--authority")
    signed = f"--ca={folder}/authority"
    certificate("server", signed, "--dns=demo-attnd.attention.svc", "--dns=attention.example")
    certificate("client", signed, "--cn=test")
    token = "a-token-of-the-test"
    files = {
        "tls/tls.crt": "server.pem", "tls/tls.key": "server.key",
        "ca/ca.crt": "authority.pem",
        "client/tls.crt": "client.pem", "client/tls.key": "client.key",
    }
    if "tls_client_ca" in conf:
        files["client-ca/" + pathlib.Path(conf["tls_client_ca"]).name] = "authority.pem"
    for path, source in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes((folder / source).read_bytes())
    for path, text in (("tokens/tokens",
                        f"test sha256:{hashlib.sha256(token.encode()).hexdigest()}\n"),
                       ("token/token", token + "\n")):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)


class Server:
    """attnd by the chart's attnd.conf, ready when this returns."""

    def __init__(self, rendered, folder):
        [text] = [o["data"]["attnd.conf"] for o in rendered.all("ConfigMap") if "data" in o]
        make_secrets(folder, rendered.conf())
        self.path = folder / "attnd.conf"
        self.path.write_text(text.replace("/run/secrets/attnd", str(folder))
                             .replace("/run/attnd", str(folder)))
        flags = list(HERE)
        if "region_memory" in rendered.conf():
            flags.append("--region_memory=64MiB")
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [program("server/attnd"), f"--config={self.path}", *flags], stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while self.page("readyz") is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"attnd does not start:\n{self.log.read_text()}")
            time.sleep(0.02)

    def page(self, name):
        """A page of the admin port; None: it is not ready."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:7412/{name}", timeout=10) as page:
                return page.read().decode()
        except OSError:
            return None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def pod_commands(rendered, folder):
    """Command lines of the test pod's containers, their files in `folder`."""
    pod = rendered.one("Pod")["spec"]
    for container in pod["initContainers"] + pod["containers"]:
        [name] = container["command"]
        arguments = [re.sub(r"^--server=.*", f"--server={HOST}:7411", argument)
                     .replace("/run/secrets/attnd", str(folder))
                     .replace("/test/", chart.OPTIONS.chart + "/files/")
                     for argument in container["args"]]
        named = any(argument.startswith("--tls_server_name=") for argument in arguments)
        if not named and any(argument.startswith("--tls_ca=") for argument in arguments):
            # In a cluster it is the name by which the service is reached.
            arguments.append("--tls_server_name=demo-attnd.attention.svc")
        yield [program(f"client/{name}"), *arguments]


class ConfigTest(unittest.TestCase):

    def test_attnd_starts_by_it_and_answers_helm_test(self):
        for name, values in {"defaults": {}, **chart.value_files()}.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                rendered = Chart(values)
                server = Server(rendered, folder)
                try:
                    for command in pod_commands(rendered, folder) if rendered.all("Pod") else ():
                        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
                        self.assertEqual(done.returncode, 0, f"{command}\n{done.stderr}{done.stdout}")
                finally:
                    status = server.stop()
                self.assertEqual(status, 0, server.log.read_text())

    def test_what_the_autoscaler_asks_for_is_there(self):
        rendered = Chart({"autoscaling": {"enabled": True}})
        queries = " ".join(trigger["metadata"]["query"]
                           for trigger in rendered.one("ScaledObject")["spec"]["triggers"])
        wanted = set(re.findall(r"\b(attnd_\w+)\{", queries))
        self.assertEqual(len(wanted), 4)
        with tempfile.TemporaryDirectory() as folder:
            server = Server(rendered, pathlib.Path(folder))
            try:
                there = set(re.findall(r"^(attnd_\w+)\{", server.page("metrics"), re.MULTILINE))
            finally:
                server.stop()
        self.assertEqual(wanted - there, set())


def add_options(parser):
    parser.add_argument("--build", default=str(chart.ROOT / "build/release"))


if __name__ == "__main__":
    chart.main(add_options)
