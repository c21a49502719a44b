"""What overload_bench and stalled_bench share: a server under watch, who calls it, and rows."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / 'python'))
import harness  # noqa: E402

MIB = 1 << 20


def places():
    """Prefixes of the commands that run the server, who sends small ones and who sends large ones.

    They give the server half of the cores, an eighth to small ones, the rest to large ones. A core's
    two processors stay together, as one's load slows the other.
    """
    cores = {}
    for processor in sorted(os.sched_getaffinity(0)):
        folder = pathlib.Path(f'/sys/devices/system/cpu/cpu{processor}/topology')
        core = [(folder / name).read_text() for name in ('physical_package_id', 'core_id')]
        cores.setdefault(tuple(core), []).append(str(processor))
    cores = list(cores.values())
    if len(cores) < 8:
        return (), (), ('nice', '-n10')
    half, eighth = len(cores) // 2, len(cores) // 8
    groups = cores[:half], cores[half:half + eighth], cores[half + eighth:]
    return [('taskset', '-c', ','.join(sum(group, []))) for group in groups]


class Watch:
    """The most that a process has had in memory since it began, in MiB."""

    def __init__(self, pid):
        self._path = f'/proc/{pid}/statm'
        self.most, self._ends = 0, False
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def now(self):
        with open(self._path, encoding='ascii') as file:
            return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / MIB

    def _loop(self):
        while not self._ends:
            self.most = max(self.most, self.now())
            time.sleep(0.02)

    def end(self):
        self._ends = True
        self._thread.join()
        return self.most


class Bench:
    """`options` has attnd, its further flags, and rest: seconds before memory is looked at again."""

    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.misses = 0
        self.server_place, self.small_place, self.large_place = places()
        self.stubs = harness.generate_stubs(self.folder)[0]

    def row(self, what, seen, bar, ok):
        print(f'  {what:58} {seen:>16} {bar:>16} {"ok" if ok else "MISSED"}', flush=True)
        self.misses += not ok

    def sender(self, place, *arguments):
        process = subprocess.Popen([*place, sys.executable, HERE / 'senders.py', *map(str, arguments)],
                                   stdout=subprocess.PIPE, text=True)
        return lambda: json.loads(process.communicate()[0])

    def server(self, limit, *flags):
        return harness.Server(self.options.attnd, f'--memory_limit={limit}MiB', *flags,
                              *self.options.flags, prefix=self.server_place)

    def peak(self, peak, limit):
        self.row('  peak resident', f'{peak:.0f} MiB', f'<= {limit + 64} MiB', peak <= limit + 64)

    def at_rest(self, watch, idle):
        time.sleep(self.options.rest)
        rest = watch.now()
        self.row(f'  resident {self.options.rest:.0f} s later, idle {idle:.0f} MiB before',
                 f'{rest:.0f} MiB', f'<= {idle + 64:.0f} MiB', rest <= idle + 64)


def run(bench, sections):
    """Runs the sections that its options name; the exit status."""
    for name, (title, section) in sections.items():
        if bench.options.only in (None, name):
            print(f'{name}: {title}', flush=True)
            section(bench)
    if bench.misses:
        print(f'{bench.misses} missed')
    return 1 if bench.misses and bench.options.check else 0


def add_options(parser, sections):
    parser.add_argument('--only', choices=sections)
    parser.add_argument('--rest', type=float, default=30, help='before memory is looked at again')
    parser.add_argument('--flags', action='append', default=[], help="more of attnd's")
    parser.add_argument('--check', action='store_true', help='fail on a miss')
