"""Faults of resources: a full queue, memory, descriptors and a disk that run out."""

import os
import pathlib
import re
import resource
import signal
import subprocess
import time

from bench import Skipped, require
from cases import case
from clients import SMALL, attnctl
from scene import Scene

MIB = 1 << 20


@case
def queue_full(bench):
    """Far more calls at once than may wait: the rest is refused, at once and with a delay."""
    scene = Scene(bench, '--max_queue_requests=4', '--max_batch_requests=2',
                  '--run_here_flops=0', warm=False)
    plain = scene.load(requests=bench.fewer(2000), concurrency=64, connections=2)
    outcome = plain.end()
    bench.say(f'no retries: {outcome}')
    outcome.account(plain.requests, ('RESOURCE_EXHAUSTED',))
    require(outcome.codes['RESOURCE_EXHAUSTED'] > 0, 'the queue was never full')
    # A call is counted once its client has been answered.
    bench.eventually(lambda: scene.server.ended_calls()['RESOURCE_EXHAUSTED'] ==
                     outcome.codes['RESOURCE_EXHAUSTED'],
                     lambda: f'the server counts {dict(scene.server.ended_calls())}')
    scene.check_counts(outcome)
    # What a queue has room for is answered, once there is none of the others.
    few = scene.load(requests=bench.fewer(100), concurrency=2)
    few.end().account(few.requests, least_ok=few.requests)
    scene.check_idle('after the fault', memory=True)
    scene.server.end()


# 6 MiB in, of which account and uploads have room for a handful.
HEAVY = ('forward:f32:s2/6144:h1:d128',)
LITTLE_MEMORY = 64 * MIB
# What a server takes beside --memory_limit at most (server/config/options.h).
BESIDE_LIMIT = 64 * MIB


def _press(bench, scene):
    """Far more than fits, from eight clients at once. No call fails but with RESOURCE_EXHAUSTED."""
    # Messages of up to 64 KiB do not wait for large ones.
    neighbour = scene.neighbour(shapes=SMALL[1:2])
    loads = [scene.load(target, HEAVY, requests=bench.fewer(60), concurrency=16,
                        transport=transport, connections=2)
             for target in (scene.server.tcp, scene.server.unix)
             for transport in ('unary', 'stream')]
    retrying = scene.load(shapes=HEAVY, requests=bench.fewer(60), concurrency=16, attempts=20)
    bench.eventually(lambda: scene.server.metric('attnd_uploads_waiting') > 0, 'memory was enough')
    refused = 0
    for load in [*loads, retrying]:
        outcome = load.end()
        bench.say(f'{"retries" if load is retrying else "no retries"}: {outcome}')
        outcome.account(load.requests, ('RESOURCE_EXHAUSTED',))
        refused += outcome.codes['RESOURCE_EXHAUSTED']
    bench.say(f'{refused} were refused')
    scene.end_neighbour(neighbour)


@case
def memory_pressure(bench):
    """Requests that need many times --memory_limit at once: it is kept, whoever is refused."""
    scene = Scene(bench, f'--memory_limit={LITTLE_MEMORY}', warm=False)
    _press(bench, scene)
    peak = scene.server.usage().peak_bytes
    bench.say(f'{peak / MIB:.0f} MiB resident at the most')
    # A sanitizer has memory of its own.
    require(bench.slow > 1 or peak <= LITTLE_MEMORY + BESIDE_LIMIT,
            f'{peak / MIB:.0f} MiB resident, and {(LITTLE_MEMORY + BESIDE_LIMIT) / MIB:.0f} are '
            'promised')
    scene.check_idle('after the fault', memory=True)
    scene.server.end()


class _ControlGroup:
    """A control group below this process' own with a limit on memory, of either version."""

    def __init__(self, bench, limit_bytes):
        if bench.slow > 1:
            raise Skipped('a sanitizer takes memory of its own')
        groups = pathlib.Path('/proc/self/cgroup').read_text()
        mounts = [line.split() for line in pathlib.Path('/proc/self/mounts').read_text()
                  .splitlines()]
        for kind, pattern, limit in (('cgroup', r'\d+:memory:(.*)', 'memory.limit_in_bytes'),
                                     ('cgroup2', r'0::(.*)', 'memory.max')):
            found = re.search(f'^{pattern}$', groups, re.M)
            for _, mounted, file_system, options, *_ in mounts:
                if not found or file_system != kind or (
                        kind == 'cgroup' and 'memory' not in options.split(',')):
                    continue
                self._folder = pathlib.Path(mounted, found[1].lstrip('/'),
                                            f'attnd-faults-{os.getpid()}')
                try:
                    self._folder.mkdir()
                    bench.closes(self._folder.rmdir)
                    (self._folder / limit).write_text(str(limit_bytes))
                except OSError:
                    continue
                self.inside = ('sh', '-c', f'echo $$ >{self._folder}/cgroup.procs && exec "$@"',
                               'sh')
                return
        raise Skipped('no control group may be made that limits memory')

    def kills(self):
        """How many processes it has ended for want of memory."""
        for name in 'memory.oom_control', 'memory.events':
            if (self._folder / name).exists():
                return int(re.search(r'^oom_kill (\d+)$', (self._folder / name).read_text(),
                                     re.M)[1])
        raise Skipped('the control group does not tell whom it has ended')


@case
def memory_limit_of_a_container(bench):
    """The same in a control group that has no more than the server says that it needs."""
    group = _ControlGroup(bench, LITTLE_MEMORY + BESIDE_LIMIT)
    scene = Scene(bench, f'--memory_limit={LITTLE_MEMORY}', warm=False, inside=group.inside)
    _press(bench, scene)
    require(group.kills() == 0, 'the server was ended for want of memory')
    scene.check_idle('after the fault', memory=True)
    scene.server.end()


@case
def descriptors_exhausted(bench):
    """The limit on descriptors is lowered under load to what is open, and raised again.

    Who connects then is closed at once, and told; calls over connections that there are go on.
    """
    scene = Scene(bench)
    neighbour = scene.neighbour()
    limits = resource.prlimit(scene.server.pid, resource.RLIMIT_NOFILE)
    refused = 'attnd_refused_connections_total{reason="descriptors"}'
    require(scene.server.metric(refused) == 0, 'refused before')
    # As if the process had opened them all: there is not one left for a connection.
    resource.prlimit(scene.server.pid, resource.RLIMIT_NOFILE, (16, limits[1]))
    strangers = [bench.spawn([bench.attnctl, 'info', f'--server={scene.server.tcp}',
                              f'--timeout={bench.hang_seconds}s'], stderr=subprocess.PIPE,
                             text=True) for _ in range(4)]
    for stranger in strangers:
        said = stranger.communicate(timeout=2 * bench.hang_seconds)[1]
        require(stranger.returncode == 3, f'not refused: {stranger.returncode}: {said}')
    resource.prlimit(scene.server.pid, resource.RLIMIT_NOFILE, limits)
    bench.say(f'{scene.server.metric(refused):.0f} connections were refused')
    require(scene.server.metric(refused) >= 4, 'the server does not count them')
    attnctl(bench, 'info', f'--server={scene.server.tcp}')
    scene.end_neighbour(neighbour)
    scene.finish()


@case
def few_descriptors_from_the_start(bench):
    """A hard limit that leaves room for eight connections, and a client that wants sixteen."""
    tried = bench.spawn([bench.attnd, '--device=cpu', '--port=0', '--admin_address=127.0.0.1:0'],
                        inside=('prlimit', '--nofile=64:64'), stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE, text=True)
    said = tried.communicate(timeout=bench.hang_seconds)[1]
    needed = re.search(r'of (\d+) descriptors that a server needs for a single connection', said)
    require(tried.returncode == 1 and needed, f'attnd ended with {tried.returncode}: {said}')
    most = int(needed[1]) + 7
    scene = Scene(bench, warm=False, inside=('prlimit', f'--nofile={most}:{most}'))
    allowed = scene.server.status()['limits']['max_connections']
    # Unless it was told otherwise, the unix socket's and the region socket's need none.
    require(1 <= allowed <= 8, f'{allowed} connections are allowed by {most} descriptors')
    load = scene.load(concurrency=16, connections=16, attempts=20)
    load.await_start()

    def refused():
        return sum(value for series, value in scene.server.metrics().items()
                   if series.startswith('attnd_refused_connections_total'))
    bench.eventually(lambda: refused() > 0, 'no connection was refused')
    outcome = load.end()
    bench.say(f'with sixteen connections, {refused():.0f} times refused, {allowed} allowed: '
              f'{outcome}')
    outcome.account(load.requests, ('UNAVAILABLE',))
    scene.check_idle('after the fault', memory=True)
    scene.server.end()


def _fill(folder):
    """Fills the disk of `folder` to the last byte: the file that does."""
    filler = folder / 'filler'
    with open(filler, 'wb', buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return filler


@case(namespaces=('mount',))
def log_disk_full(bench):
    """The disk under the log fills up, and has room again.

    Calls do not notice. Lines that found no room are counted, and the log says how many they
    were; those that come later are whole.
    """
    folder = bench.file('disk')
    folder.mkdir()
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=64k', 'none', folder], check=True)
    bench.closes(lambda: subprocess.run(['umount', folder], check=True))
    scene = Scene(bench, log=folder / 'log')
    signals = 0

    def say_lines(count):
        """Has the server log a line for each signal, which are queued and none lost."""
        nonlocal signals
        signals += count
        for _ in range(count):
            scene.server.signal(signal.SIGRTMIN + 1)
        pending = pathlib.Path('/proc', str(scene.server.pid), 'status')
        bench.eventually(lambda: re.search(r'^ShdPnd:\s+0+$', pending.read_text(), re.M),
                         'signals are not taken')
    say_lines(1)
    bench.eventually(lambda: 'Real-time signal 1: ignored' in scene.server.log(), 'no line')
    filler = _fill(folder)
    neighbour = scene.neighbour()
    left_out = 'attnd_log_lines_left_out_total{reason="reader",source="server"}'
    # More than the last page of the log's file has room for, which is the log's already.
    for _ in range(3):
        say_lines(100)
        time.sleep(0.6)  # more than once past the second at which lines left out are told of
    require(scene.server.metric(left_out) >= 100, 'the disk was not full')
    full = scene.server.log()
    filler.unlink()
    scene.end_neighbour(neighbour)
    say_lines(1)

    def accounted():
        """Lines of signals that are there, and those that the log says are not."""
        log = scene.server.log()
        return (len(re.findall(r'^\S+Z info Real-time signal 1: ignored$', log, re.M)) +
                sum(int(n) for n in re.findall(r'^\S+Z warning (\d+) lines left out$', log, re.M)))
    bench.eventually(lambda: accounted() == signals,
                     lambda: f'of {signals} lines {accounted()} are accounted for:\n'
                             f'{scene.server.log()}')
    log = scene.server.log()
    require(scene.server.metric(left_out) < signals, 'more left out than there were')
    torn = [line for line in log.splitlines() if not re.match(r'\S+Z (info|warning) \S', line)
            or line.count('Z info') + line.count('Z warning') > 1]
    # Of one line a part may have found room.
    require(len(torn) <= 1 and not log[len(full):].strip() in torn, f'torn lines: {torn}')
    bench.say(f'{signals} lines, all accounted for; the log since it was full:\n'
              f'{log[len(full):].strip()}')
    scene.finish()


@case
def log_always_full(bench):
    """A log on /dev/full, where no line ever finds room."""
    scene = Scene(bench, log='/dev/full')
    load = scene.load(requests=bench.fewer(100), concurrency=8)
    load.end().account(load.requests, least_ok=load.requests)
    scene.finish()
