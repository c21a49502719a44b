"""What every test of attnd as a client has: stubs and a server of its own.

A client in another language: knows nothing of attnd but its .proto and its
command line. Stubs are generated from the one, a server is started with the
other.
"""

import argparse
import os
import sys
import tempfile
import unittest

import harness

OPTIONS = argparse.Namespace(server=None)

with tempfile.TemporaryDirectory() as _folder:
  pb, pb_grpc = harness.generate_stubs(_folder)


class ClientTest(unittest.TestCase):
  """Tests that share an attnd, which must exit with 0 after the last."""

  FLAGS = ()  # of that attnd

  @classmethod
  def setUpClass(cls):
    cls.server = harness.Server(OPTIONS.server, *cls.FLAGS)
    cls.channel = cls.server.channel()
    cls.stub = pb_grpc.AttentionServiceStub(cls.channel)

  @classmethod
  def tearDownClass(cls):
    cls.channel.close()
    status, log = cls.server.stop()
    # Also where a sanitizer reports what it found while the tests ran.
    if status != 0:
      raise AssertionError(f"attnd exited {status}:\n{log}")

  def forward(self, request):
    return self.stub.Forward(request, timeout=60)

  def backward(self, request):
    return self.stub.Backward(request, timeout=60)


def main(doc, programs=(), **numbers):
  """Runs the tests of the main module, which `doc` describes.

  Its flags are in OPTIONS: --server and the other `programs`, which are paths,
  and one for each of `numbers` with their defaults.
  """
  parser = argparse.ArgumentParser(description=doc.splitlines()[0])
  for program in ("server", *programs):
    parser.add_argument(f"--{program}", type=os.path.abspath, required=True,
                        help="path of attnd" if program == "server" else "path")
  for name, default in numbers.items():
    parser.add_argument(f"--{name}", type=int, default=default,
                        help="(default %(default)s)")
  _, rest = parser.parse_known_args(namespace=OPTIONS)
  unittest.main(argv=sys.argv[:1] + rest)
