#!/usr/bin/env python3
"""Plants includes that run upward, sideways and in circles, and some that do not."""

import pathlib
import tempfile
import unittest

import layers


def check(files):
    """What is said of a tree of `files` (path: what each of its lines includes)."""
    with tempfile.TemporaryDirectory() as root:
        for path, headers in files.items():
            file = pathlib.Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(''.join(f'#include "{header}"\n' for header in headers))
        return layers.check(pathlib.Path(root))


class LayersTest(unittest.TestCase):

    def test_refuses_an_include_that_runs_upward_and_says_where(self):
        for path, header in [
                ('kernels/attention.h', 'kernels/cpu/cpu_backend.h'),
                ('kernels/cuda/fused/forward.h', 'kernels/cuda/forward.h'),
                ('server/work/work.h', 'server/scheduling/scheduler.h'),
                ('server/front/call.cc', 'server/server.h'),
                ('client/call.cc', 'client/attnctl/npy.h'),
                ('client/include/attnd/client.h', 'client/core.h'),
        ]:
            with self.subTest(path=path, header=header):
                wrong, _, _ = check({path: ['vector', header]})
                self.assertEqual(len(wrong), 1, wrong)
                self.assertTrue(wrong[0].startswith(f'{path}:2: {header}: runs upward'), wrong)

    def test_refuses_an_include_of_a_room_of_the_same_level(self):
        wrong, _, _ = check({'kernels/cuda/sm80/a.cuh': ['kernels/cuda/sm90/b.cuh']})
        self.assertEqual(wrong, ['kernels/cuda/sm80/a.cuh:1: kernels/cuda/sm90/b.cuh: '
                                 'kernels/cuda/sm80 and kernels/cuda/sm90 are side by side'])

    def test_allows_a_room_its_own_files_and_lower_rooms(self):
        wrong, files, arrows = check({
            'kernels/cuda/sm90/forward.cuh': ['kernels/cuda/sm90/backward/a.cuh',
                                              'kernels/cuda/tile/ptx.cuh', 'kernels/attention.h'],
            'server/program/main.cc': ['server/server.h', 'server/work/work.h', 'base/clock.h'],
            'client/core.cc': ['attnd/client.h', 'absl/status/status.h'],
        })
        self.assertEqual((wrong, files, arrows), ([], 3, 7))

    def test_refuses_a_circle_of_files_within_a_room(self):
        wrong, _, _ = check({
            'server/work/a.h': ['server/work/b.h'],
            'server/work/b.h': ['server/work/c.h'],
            'server/work/c.h': ['server/work/a.h'],
        })
        self.assertEqual(wrong, ['a circle: server/work/a.h -> server/work/b.h -> '
                                 'server/work/c.h -> server/work/a.h'])

    def test_allows_a_source_that_includes_a_user_of_its_header(self):
        wrong, _, _ = check({
            'server/work/a.cc': ['server/work/a.h', 'server/work/b.h'],
            'server/work/b.h': ['server/work/a.h'],
        })
        self.assertEqual(wrong, [])

    def test_refuses_a_file_and_a_header_in_no_room(self):
        wrong, _, _ = check({'proto/stray.h': []})
        self.assertEqual(wrong, ['proto/stray.h: is in no room of LEVELS'])
        wrong, _, _ = check({'server/server.cc': ['proto/stray.h']})
        self.assertEqual(wrong, ['server/server.cc:1: proto/stray.h is in no room of LEVELS'])


if __name__ == '__main__':
    unittest.main()
