#!/usr/bin/env python3
"""How attnd bears more than it has memory for: honest clients, slow ones, liars.

  overload_bench.py ATTND ATTNLOAD [--check] [--only=SECTION] [--seconds=8] [--flags=FLAG]

Needs tests/python/requirements.txt. Large requests come from 127.0.0.1 by TCP, in C++ (with the
hint that the client library sends) or Python (generated stubs' way: no hint). Small ones beside
them are another client's, over a unix socket. All three would be on machines of their own. Here
each has processor cores of its own where there are eight or more; where there are fewer, they
share all, and who sends large ones yields.
"""

import argparse
import json
import re
import subprocess
import sys
import time

import bench

SMALL = 'forward:s32:h1:d64'  # 24 KiB


class OverloadBench(bench.Bench):

    def message(self, tokens, dim=128):
        """A file with a ForwardRequest of 2 queries, its bytes."""
        path = self.folder / f'{tokens}x{dim}'
        if not path.exists():
            pb = self.stubs
            queries, request = min(tokens, 2), pb.ForwardRequest()
            for name, length in (('q', queries), ('k', tokens), ('v', tokens)):
                tensor = getattr(request, name)
                tensor.dtype = pb.DATA_TYPE_F32
                tensor.shape.extend([1, length, 1, dim])
                tensor.data = bytes(4 * length * dim)
            path.write_bytes(request.SerializeToString())
        return path

    # Processes; each of the next three returns what ends it and gives its result.

    def attnload(self, place, address, shape, concurrency, seconds):
        process = subprocess.Popen(
            [*place, self.options.attnload, address, f'--shape={shape}', f'--concurrency={concurrency}',
             '--check=0', '--warmup=0', f'--duration={seconds}', '--json=-'],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        def end():
            text = process.communicate()[0]
            level = json.loads(text[text.index('{'):])['levels'][0]
            return {'codes': level['sent_by_code'], 'seconds': level['elapsed_s'],
                    'p99': level['latency'].get('p99_s'),
                    'said': re.findall(r'RST_STREAM[^\n"]*|GOAWAY[^\n"]*', text)}

        return end

    def small(self, seconds):
        """What became of another client's small calls, in C++ and in Python."""
        address = f'unix:{self.socket}'
        ends = [self.attnload(self.small_place, address, SMALL, 1, seconds),
                self.sender(self.small_place, 'honest', address, self.message(32, 64), 1, seconds)]
        return [end() for end in ends]

    def server(self, limit, *flags):
        self.socket = self.folder / f'socket{time.monotonic_ns()}'
        return super().server(limit, f'--unix_socket={self.socket}', *flags)

    # Sections.

    def honest(self, language, limit, tokens, processes, in_flight, room_load):
        """Uploads of 2 x `tokens` x 512 bytes, all at once, against few with room."""
        def load(server, processes, in_flight):
            begin = []
            for _ in range(processes):
                if language == 'C++':
                    begin.append(self.attnload(self.large_place, server.address,
                                               f'forward:s2/{tokens}:h1:d128', in_flight,
                                               self.options.seconds))
                else:
                    begin.append(self.sender(self.large_place, 'honest', server.address,
                                             self.message(tokens), in_flight,
                                             self.options.seconds))
            return begin

        def rate(results):
            return sum(r['codes'].get('OK', 0) / r['seconds'] for r in results)

        with_room = self.server(8 * 1024)
        room = rate([end() for end in load(with_room, *room_load)])
        with_room.stop()
        server = self.server(limit)
        watch = bench.Watch(server.process.pid)
        alone = self.small(self.options.seconds / 2)
        idle = watch.now()
        running = load(server, processes, in_flight)
        beside = self.small(self.options.seconds)
        results = [end() for end in running]
        peak = watch.end()
        got = rate(results)
        self.row(f'{language}: answers a second, {got:.1f} of {room:.1f} with room',
                 f'{got / room:.2f}', '>= 0.70', got >= 0.7 * room)
        codes = {}
        for result in results:
            for code, count in result['codes'].items():
                codes[code] = codes.get(code, 0) + count
        refused = codes.get('RESOURCE_EXHAUSTED', 0)
        other = sum(codes.values()) - codes.get('OK', 0) - refused
        self.row(f'  of {sum(codes.values())}: refused / ended otherwise',
                 f'{refused} / {other}', 'any / 0', other == 0)
        without = sum(result.get('without_delay', 0) for result in results)
        said = sorted({line for result in results for line in result['said']})
        self.row('  refused without RetryInfo', str(without), '0', without == 0)
        for line in said:
            print(f'    {line}')
        self.compare_small(alone, beside)
        self.memory(watch, peak, idle, limit)
        server.stop()

    def compare_small(self, alone, beside):
        for name, a, b in zip(('C++', 'Python'), alone, beside):
            failed = sum(b['codes'].values()) - b['codes'].get('OK', 0)
            self.row(f'  small calls ({name}): failed of {sum(b["codes"].values())}',
                     str(failed), '0', failed == 0)
            for line in b['said']:
                print(f'    {line}')
            ratio = b['p99'] / a['p99']
            self.row(f'    p99 {b["p99"] * 1e3:.2f} ms, alone {a["p99"] * 1e3:.2f} ms',
                     f'{ratio:.2f}', '<= 3', ratio <= 3)

    def memory(self, watch, peak, idle, limit):
        self.peak(peak, limit)
        self.at_rest(watch, idle)

    def attack(self, limit, *attackers):
        server = self.server(limit)
        watch = bench.Watch(server.process.pid)
        alone = self.small(self.options.seconds / 2)
        idle = watch.now()
        running = [self.sender(self.large_place, a[0], server.address, *a[1:],
                               self.options.seconds + 3)
                   for a in attackers]
        time.sleep(2)
        beside = self.small(self.options.seconds)
        for end in running:
            print(f'    {end()}')
        peak = watch.end()
        self.compare_small(alone, beside)
        self.memory(watch, peak, idle, limit)
        server.stop()


# The honest ask for at least eight times what may be on its way: 96 MiB at 256 MiB, 2,016 at 4 GiB
# (DivideMemory in server/config/options.cc).
SECTIONS = {
    'cpp': ('4 x 8 uploads of 40 MiB at 256 MiB, C++',
            lambda b: b.honest('C++', 256, 40000, 4, 8, (4, 8))),
    'python': ('4 x 8 uploads of 40 MiB at 256 MiB, Python without the hint',
               lambda b: b.honest('Python', 256, 40000, 4, 8, (4, 8))),
    'cpp4g': ('4 x 31 uploads of 134 MiB at 4 GiB, C++',
              lambda b: b.honest('C++', 4096, 131072, 4, 31, (1, 4))),
    'python4g': ('4 x 31 uploads of 134 MiB at 4 GiB, Python without the hint',
                 lambda b: b.honest('Python', 4096, 131072, 4, 31, (1, 4))),
    'slow_few': ('200 writers of a byte a second from 2 addresses',
                 lambda b: b.attack(256, ('slow', 2, 200, 'mixed'))),
    'slow_many': ('600 writers of a byte a second from 300 addresses',
                  lambda b: b.attack(256, ('slow', 300, 600, 'mixed'))),
    'liars': ('100 calls from 100 addresses that say 100 bytes and send 40 MiB',
              lambda b: b.attack(256, ('liars', 100, 100, 40 * bench.MIB))),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('attnd')
    parser.add_argument('attnload')
    parser.add_argument('--seconds', type=float, default=8)
    bench.add_options(parser, SECTIONS)
    return bench.run(OverloadBench(parser.parse_args()), SECTIONS)


if __name__ == '__main__':
    sys.exit(main())
