"""Callers from the shell, grpcurl and `buf curl`, as they are installed.

Both know of a server what its reflection tells them, and speak JSON. Each class
says how its tool is told the same thing.
"""

import dataclasses
import pathlib
import subprocess
import sys

INSTALLED = pathlib.Path(sys.executable).parent
SECONDS = 120  # a sanitizer build on a busy machine takes its time


@dataclasses.dataclass
class Answer:
  """How a call ended: with a response, or with a status and its details."""
  response: str | None = None  # JSON
  code: int = 0                # of gRPC
  said: str = ""               # what the tool printed of a failure


@dataclasses.dataclass
class Target:
  """Where to call, and as whom."""
  address: str
  cacert: str | None = None    # over TLS, with a certificate of this authority
  token: str | None = None
  schema: str | None = None    # a file in place of reflection


class Tool:
  """What both have in common; see Grpcurl."""

  name = None  # of its program

  @classmethod
  def program(cls):
    """Its path, or None where it is not installed."""
    path = INSTALLED / cls.name
    return path if path.exists() else None

  def run(self, *arguments, data=None):
    return subprocess.run([self.program(), *arguments], input=data, text=True,
                          capture_output=True, timeout=SECONDS)

  def lines(self, *arguments):
    """What it prints, which must be all that it has to say."""
    done = self.run(*arguments)
    if done.returncode != 0 or done.stderr:
      raise AssertionError(f"{arguments}: {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


class Grpcurl(Tool):

  name = "grpcurl"

  def _to(self, target):
    flags = ["-cacert", target.cacert] if target.cacert else ["-plaintext"]
    if target.token:
      flags += ["-H", f"authorization: Bearer {target.token}"]
    if target.schema:
      flags += ["-protoset", target.schema]
    return flags

  def services(self, target):
    return self.lines(*self._to(target), target.address, "list")

  def methods(self, target, service):
    """Their full names, service.method."""
    return self.lines(*self._to(target), target.address, "list", service)

  def describe(self, target, symbol):
    """Its part of the .proto, as text."""
    return "\n".join(
        self.lines(*self._to(target), target.address, "describe", symbol))

  def call(self, target, method, request="{}"):
    """Calls service/method with a request in JSON."""
    done = self.run(*self._to(target), "-d", "@", target.address, method,
                    data=request)
    if done.returncode == 0:
      return Answer(response=done.stdout)
    return Answer(code=done.returncode - 64, said=done.stderr)


class BufCurl(Tool):

  name = "buf"

  def _to(self, target, path=""):
    scheme = "https" if target.cacert else "http"
    flags = ["curl", "--protocol", "grpc", f"{scheme}://{target.address}{path}"]
    if target.cacert:
      flags += ["--cacert", target.cacert]
    if target.token:
      flags += ["-H", f"authorization: Bearer {target.token}"]
    if target.schema:
      flags += ["--schema", target.schema]
    return flags

  def services(self, target):
    return self.lines(*self._to(target), "--list-services")

  def methods(self, target, service):
    listed = self.lines(*self._to(target), "--list-methods")
    return [name.replace("/", ".") for name in listed
            if name.startswith(service + "/")]

  def call(self, target, method, request="{}"):
    done = self.run(*self._to(target, f"/{method}"), "-d", "@-", data=request)
    if done.returncode == 0:
      return Answer(response=done.stdout)
    return Answer(code=done.returncode >> 3, said=done.stderr)
