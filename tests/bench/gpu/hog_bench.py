#!/usr/bin/env python3
"""One client's long requests on a GPU, and what small ones beside them wait.

  hog_bench.py ATTND ATTNLOAD [--before=ATTND] [--rounds=5] [--check]

The long ones take one to two seconds. With --before, another build runs
them alone in turns with ATTND, so that what slices cost shows. The small ones are another client's,
over a unix socket.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / 'python'))
import harness  # noqa: E402

LONG = ('forward:f32:s131072:h4:d64', 'forward:bf16:s1048576:h1:d64',
        'backward:bf16:s262144:h2:d128')
SMALL = 'forward:bf16:s512:h8:d64'
FLAGS = ('--device=cuda:0', '--memory_limit=16GiB', '--max_request_flops=1e16',
         '--max_queue_flops=1e17')


class Node:
    """An attnd on the GPU."""

    def __init__(self, binary, attnload):
        self._attnload = attnload
        self._folder = tempfile.TemporaryDirectory()
        self.socket = f'unix:{self._folder.name}/socket'
        self._server = harness.Server(binary, *FLAGS, f'--unix_socket={self._folder.name}/socket')
        self.address = self._server.address

    def load(self, address, shape, *flags):
        text = subprocess.run([self._attnload, address, f'--shape={shape}', '--concurrency=1',
                               '--check=0', '--json=-', *flags], check=True, capture_output=True,
                              text=True).stdout
        return json.loads(text[text.index('{'):])['levels'][0]['latency']

    def alone(self, shape):
        """Seconds of one request, the best of two."""
        return self.load(self.address, shape, '--warmup=0', '--requests=2')['p50_s']

    def stop(self):
        self._server.stop()
        self._folder.cleanup()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('attnd')
    parser.add_argument('attnload')
    parser.add_argument('--before')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--check', action='store_true', help='fail on a miss')
    options = parser.parse_args()
    missed = 0

    def row(what, seen, bar, ok):
        nonlocal missed
        missed += not ok
        print(f'  {what:56} {seen:>12} {bar:>10} {"ok" if ok else "MISSED"}', flush=True)

    now = Node(options.attnd, options.attnload)
    before = Node(options.before, options.attnload) if options.before else None
    quiet = now.load(now.socket, SMALL, '--warmup=1', '--duration=3')
    print(f'small ones alone: p50 {quiet["p50_s"] * 1e3:.2f}, p99 {quiet["p99_s"] * 1e3:.2f} ms')
    for shape in LONG:
        print(shape)
        times, times_before = [], []
        for _ in range(options.rounds):
            times.append(now.alone(shape))
            if before:
                times_before.append(before.alone(shape))
        seconds = statistics.median(times)
        if before:
            ratio = seconds / statistics.median(times_before)
            row(f'alone {seconds:.2f} s, against before', f'{ratio:.3f}', '<= 1.05', ratio <= 1.05)
        else:
            print(f'  alone {seconds:.2f} s')
        ends = threading.Event()

        def hog():
            while not ends.is_set():
                now.load(now.address, shape, '--warmup=0', '--requests=2')

        thread = threading.Thread(target=hog)
        thread.start()
        beside = now.load(now.socket, SMALL, '--warmup=2', '--duration=6')
        ends.set()
        thread.join()
        row(f'small ones beside: p50 {beside["p50_s"] * 1e3:.2f} ms, p99',
            f'{beside["p99_s"] * 1e3:.2f} ms', '<= 200 ms', beside['p99_s'] <= 0.2)
    now.stop()
    if before:
        before.stop()
    if missed:
        print(f'{missed} missed')
    return 1 if missed and options.check else 0


if __name__ == '__main__':
    sys.exit(main())
