#!/usr/bin/env python3
"""Checks which part of the tree includes what. Usage: dependencies.py ROOT

Prints one line for every #include that breaks a rule, and fails if there is one.
"""

import pathlib
import re
import sys

PARTS = ('base', 'kernels', 'proto', 'server', 'client')
SUFFIXES = {'.h', '.cc', '.cu', '.cuh'}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')

# Whose headers each part may include, as path prefixes: its own, and those of
# the parts below it.
MAY_INCLUDE = {
    'base': ('base/',),
    'kernels': ('kernels/', 'base/'),
    'proto': ('proto/', 'base/'),
    'server': ('server/', 'proto/', 'base/', 'kernels/'),
    'client': ('client/', 'attnd/', 'proto/', 'base/'),
}
OURS = ('base/', 'kernels/', 'proto/', 'server/', 'client/', 'attnd/')

# Messages that gRPC's own services exchange are Protocol Buffers' alone.
GRPC = re.compile(r'(grpc|grpcpp|grpc\+\+)/(?!.*\.pb\.h$)|.*\.grpc\.pb\.h$')
PROTOBUF = re.compile(r'google/|.*\.pb\.h$')
FLAGS = re.compile(r'base/flag(s|_file)\.h$|CLI/')
CUDA = re.compile(r'cuda|cublas|cudnn|nvrtc|nccl|cute/|cutlass/|cooperative_groups')

# The edges that speak RPC: nothing else knows gRPC.
GRPC_EDGES = {
    'client/connection',
    'client/grpc_attempt',
    'client/grpc_headers',
    'client/grpc_stream',
    'client/grpc_transport',
    'client/socket_mutator',
    'client/stream_queue',
    'proto/wire/grpc_bytes',
    'proto/wire/grpc_status',
    'proto/wire/grpc_time',
    'server/admin/channelz_service',
    'server/admin/reflection_service',
    'server/admin_server',
    'server/front/exchange_stream',
    'server/front/grpc_call',
    'server/front/grpc_header',
    'server/front/health_service',
    'server/front/io_threads',
    'server/front/raw_service',
    'server/front/small_call',
    'server/front/unary_stream',
    'server/program/library_log',
    'server/server',
    'server/front/service',
    'server/transport',
}

# What tells the time of day: nothing else may know a clock that someone can set.
WALL_CLOCK = 'absl/time/clock.h'
WALL_CLOCK_USERS = {'server/admin_server'}  # pages for people


def broken_rule(path, header):
    """Why the file at `path` (from the root) must not include `header`, or None."""
    part = path.parts[0]
    if header.startswith('tests/'):
        return 'only tests include tests'
    if header.startswith('.') or '..' in header.split('/'):
        return 'includes are written from the root'
    if CUDA.match(header) and path.parts[:2] != ('kernels', 'cuda'):
        return 'CUDA headers belong in kernels/cuda'
    if part == 'client' and path.parts[1] == 'include' and (
            GRPC.match(header) or PROTOBUF.match(header) or header.startswith('proto/')):
        return 'public headers know neither gRPC nor protobuf'
    if GRPC.match(header) and str(path.with_suffix('')) not in GRPC_EDGES:
        return 'gRPC headers belong at the edges'
    if FLAGS.match(header) and part in ('kernels', 'proto'):
        return 'flags are for programs'
    if header == WALL_CLOCK and str(path.with_suffix('')) not in WALL_CLOCK_USERS:
        return 'the time of day can be set: base/clock.h'
    if PROTOBUF.match(header) and part == 'kernels':
        return 'kernels know nothing of protobuf'
    if header.startswith(OURS) and not header.startswith(MAY_INCLUDE[part]):
        return f'{part} may not depend on {header.split("/")[0]}'
    return None


def violations(root):
    """Lines "path:line: header: rule" for the tree at `root`."""
    for part in PARTS:
        for path in sorted((root / part).rglob('*')):
            if path.suffix not in SUFFIXES:
                continue
            relative = path.relative_to(root)
            for number, line in enumerate(path.read_text().splitlines(), 1):
                found = INCLUDE.match(line)
                rule = found and broken_rule(relative, found.group(1))
                if rule:
                    yield f'{relative}:{number}: {found.group(1)}: {rule}'


def main():
    root = pathlib.Path(sys.argv[1])
    if not (root / 'kernels' / 'attention.h').is_file():
        sys.exit(f'{root} is not the root of the tree')
    found = list(violations(root))
    print('\n'.join(found) or 'no rule is broken')
    sys.exit(1 if found else 0)


if __name__ == '__main__':
    main()
