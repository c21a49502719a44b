#!/usr/bin/env python3
"""Plants includes that break each rule, and some that break none."""

import pathlib
import tempfile
import unittest

import dependencies

REFUSED = [
    ('base/a.cc', '"client/attnctl/npy.h"'),
    ('base/a.cc', '"server/config/options.h"'),
    ('kernels/a.cc', '"base/flags.h"'),
    ('proto/a.cc', '"base/flag_file.h"'),
    ('proto/a.cc', '"base/flags.h"'),
    ('kernels/a.cc', '"CLI/CLI.hpp"'),
    ('kernels/a.cc', '"server/config/options.h"'),
    ('kernels/a.cc', '"proto/wire/codec.h"'),
    ('kernels/a.cc', '"client/core.h"'),
    ('kernels/cpu/a.h', '<grpcpp/grpcpp.h>'),
    ('kernels/reference/a.cc', '"google/protobuf/message.h"'),
    ('kernels/a.h', '"attn/v1/attention.pb.h"'),
    ('kernels/cpu/a.cc', '<cuda_runtime.h>'),
    ('server/a.cc', '<cuda.h>'),
    ('proto/a.cc', '"kernels/attention.h"'),
    ('proto/a.cc', '"server/work/work.h"'),
    ('proto/wire/codec.cc', '<grpc/byte_buffer.h>'),
    ('server/a.cc', '"client/core.h"'),
    ('server/a.cc', '"attnd/client.h"'),
    ('server/scheduling/scheduler.cc', '<grpcpp/server.h>'),
    ('server/scheduling/scheduler.cc', '"attn/v1/attention.grpc.pb.h"'),
    ('client/a.cc', '"server/config/options.h"'),
    ('client/a.cc', '"kernels/attention.h"'),
    ('client/a.cc', '"kernels/cuda/device/gpu.h"'),
    ('client/core.cc', '"grpcpp/channel.h"'),
    ('client/include/attnd/client.h', '"attn/v1/attention.pb.h"'),
    ('client/include/attnd/client.h', '"proto/wire/codec.h"'),
    ('server/a.cc', '"tests/server/fakes/device.h"'),
    ('kernels/a.cc', '"../server/options.h"'),
    ('base/a.h', '"kernels/attention.h"'),
    ('base/a.h', '"proto/wire/codec.h"'),
    ('server/scheduling/scheduler.cc', '"absl/time/clock.h"'),
    ('client/executor.h', '"absl/time/clock.h"'),
]
ALLOWED = [
    ('base/a.cc', '"base/flags.h"'),
    ('kernels/a.cc', '"base/decimal.h"'),
    ('proto/a.cc', '"base/decimal.h"'),
    ('server/a.cc', '"base/flags.h"'),
    ('client/a.cc', '"base/flags.h"'),
    ('base/a.h', '"absl/time/time.h"'),
    ('kernels/a.cc', '"base/clock.h"'),
    ('proto/a.cc', '"base/clock.h"'),
    ('client/a.cc', '"base/clock.h"'),
    ('server/admin_server.cc', '"absl/time/clock.h"'),
    ('kernels/a.cc', '"kernels/attention.h"'),
    ('kernels/cpu/a.cc', '"hwy/highway.h"'),
    ('kernels/cuda/sm90/a.cu', '<cuda_runtime.h>'),
    ('proto/a.cc', '"base/field_error.h"'),
    ('proto/wire/grpc_bytes.h', '<grpcpp/support/slice.h>'),
    ('server/a.cc', '"kernels/backend.h"'),
    ('server/a.cc', '"proto/wire/codec.h"'),
    ('client/a.cc', '"attnd/client.h"'),
    ('client/a.cc', '"proto/wire/codec.h"'),
    ('client/grpc_transport.cc', '<grpcpp/channel.h>'),
    ('client/include/attnd/client.h', '"absl/status/status.h"'),
]


def found(path, include):
    """What is said of a tree that holds this one file."""
    with tempfile.TemporaryDirectory() as root:
        file = pathlib.Path(root) / path
        file.parent.mkdir(parents=True)
        file.write_text(f'#include <vector>\n#include {include}\n')
        return list(dependencies.violations(pathlib.Path(root)))


class DependenciesTest(unittest.TestCase):

    def test_refuses_what_breaks_a_rule_and_says_where(self):
        for path, include in REFUSED:
            with self.subTest(path=path, include=include):
                lines = found(path, include)
                self.assertEqual(len(lines), 1)
                self.assertTrue(lines[0].startswith(f'{path}:2: {include[1:-1]}: '), lines[0])

    def test_allows_what_breaks_none(self):
        for path, include in ALLOWED:
            with self.subTest(path=path, include=include):
                self.assertEqual(found(path, include), [])


if __name__ == '__main__':
    unittest.main()
