#!/usr/bin/env python3
"""attnd itself reads the chart's attnd.conf, and what `helm test` runs gets its answer.

    tests/deploy/config_test.py --helm=HELM --build=build/release     deploy/check.sh runs it

For each values file of the chart a server starts on the CPU by the rendered attnd.conf,
with the Secrets that it names, and the containers of the test pod run against it.
"""

import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import chart
from chart import Chart

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "process"))
import attnd_process  # noqa: E402

# There the ports may be as in attnd.conf, and are free.
HOST = attnd_process.own_address()
# Less than in a cluster, and no GPU.
HERE = ["--device=cpu", f"--host={HOST}", f"--admin_address={HOST}:7412",
        "--memory_limit=256MiB"]


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


class Server(attnd_process.Attnd):
    """attnd by the chart's attnd.conf."""

    def __init__(self, rendered, folder):
        [text] = [o["data"]["attnd.conf"] for o in rendered.all("ConfigMap") if "data" in o]
        make_secrets(folder, rendered.conf())
        path = folder / "attnd.conf"
        path.write_text(text.replace("/run/secrets/attnd", str(folder))
                        .replace("/run/attnd", str(folder)))
        flags = list(HERE)
        if "region_memory" in rendered.conf():
            flags.append("--region_memory=64MiB")
        super().__init__(program("server/attnd"), f"--config={path}", *flags,
                         log=folder / "log", defaults=())
        if not self.is_ready():
            self.kill()
            raise AssertionError(f"attnd listens and is not ready:\n{self.said()}")


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
                    status = server.end()
                self.assertEqual(status, 0, server.log())

    def test_what_the_autoscaler_asks_for_is_there(self):
        rendered = Chart({"autoscaling": {"enabled": True}})
        queries = " ".join(trigger["metadata"]["query"]
                           for trigger in rendered.one("ScaledObject")["spec"]["triggers"])
        wanted = set(re.findall(r"\b(attnd_\w+)\{", queries))
        self.assertEqual(len(wanted), 4)
        with tempfile.TemporaryDirectory() as folder:
            server = Server(rendered, pathlib.Path(folder))
            try:
                there = set(attnd_process.totals(server.metrics()))
            finally:
                server.end()
        self.assertEqual(wanted - there, set())


def add_options(parser):
    parser.add_argument("--build", default=str(chart.ROOT / "build/release"))


if __name__ == "__main__":
    chart.main(add_options)
