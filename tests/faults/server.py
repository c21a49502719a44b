"""attnd in a process of its own, and what it says and holds."""

import collections
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess

from bench import Failed, attnd_process, require


@dataclasses.dataclass
class Usage:
    """What /proc says of a process."""
    descriptors: collections.Counter  # by kind: 'socket', 'anon_inode:[eventpoll]', a path
    threads: int  # of its name, as its own are; gRPC gives those of its pools names
    all_threads: int
    resident_bytes: int
    heap_bytes: int  # resident, and of no file
    peak_bytes: int

    @property
    def descriptor_count(self):
        return sum(self.descriptors.values())


def usage_of(pid, but_address=None):
    """The usage of process `pid`, without connections to `but_address`, an (address, port) of its
    own; Failed where it is gone."""
    folder = pathlib.Path('/proc', str(pid))
    kinds = collections.Counter()
    try:
        ignored = {f'socket:[{inode}]' for local, listens, inode in attnd_process.tcp_sockets(pid)
                   if local == but_address and not listens}
        for target in attnd_process.descriptors(pid):
            if target not in ignored:
                kinds[re.sub(r'^(socket|pipe):.*', r'\1', target)] += 1
        names = []
        for task in os.scandir(folder / 'task'):
            try:
                names.append(pathlib.Path(task.path, 'comm').read_text())
            except (FileNotFoundError, ProcessLookupError):
                pass  # ended meanwhile
        sizes = dict(re.findall(r'^(\w+):\s+(\d+) kB$', (folder / 'status').read_text(), re.M))
        return Usage(kinds, names.count((folder / 'comm').read_text()), len(names),
                     *(int(sizes[name]) << 10 for name in ('VmRSS', 'RssAnon', 'VmHWM')))
    except (FileNotFoundError, ProcessLookupError, KeyError) as error:
        raise Failed(f'process {pid} has ended: {error}') from error


class Server(attnd_process.Attnd):
    """An attnd on the processor, listening on TCP, a unix socket, and for operators.

    TCP is on this process' own address unless `flags` say otherwise: many cases run at once, and
    clients go on calling a server that has ended. `log`: a file for its stderr, else one of the
    case's folder. `inside`: a command that runs it, nsenter say. `sockets`: the folder of its
    sockets, where another server's may have been.
    """

    def __init__(self, bench, *flags, log=None, inside=(), sockets=None, program=None,
                 regions=False):
        self._bench = bench
        self.folder = pathlib.Path(sockets or bench.file('sockets'))
        self.folder.mkdir(exist_ok=True)
        self.unix = f'unix:{self.folder}/grpc'
        self.region_socket = f'{self.folder}/regions'
        own = attnd_process.own_address()
        defaults = [*attnd_process.DEFAULTS, f'--host={own}', f'--admin_address={own}:0',
                    f'--unix_socket={self.folder}/grpc']
        if regions:
            defaults += [f'--region_socket={self.region_socket}', '--region_memory=64MiB',
                         '--region_slab=2MiB']
        try:
            super().__init__(program or bench.attnd, *flags, log=log or bench.file('log'),
                             defaults=defaults, prefix=inside, seconds=bench.hang_seconds)
        except attnd_process.DidNotStart as error:
            raise Failed(str(error)) from error
        bench.adopt(self.process)
        self.tcp = self.target

    def page(self, path):
        """(HTTP status, text) of a page for operators."""
        try:
            return super().page(path, self._bench.hang_seconds)
        except OSError as error:
            raise Failed(f'{path}: {error}; attnd: {self.process.poll()}\n{self.log()}') from error

    def metrics(self):
        """{'name{label="value"}': number}, labels in alphabetical order."""
        return attnd_process.series(super().metrics())

    def metric(self, series):
        metrics = self.metrics()
        require(series in metrics, f'there is no metric {series}')
        return metrics[series]

    def status(self):
        return json.loads(self.page('/status')[1])

    def ended_calls(self):
        """How many calls ended by each code, as the server counts them, but for GetServerInfo."""
        codes = collections.Counter()
        for series, value in self.metrics().items():
            found = re.fullmatch(r'attnd_requests_total\{code="(\w+)",method="(\w+)"\}', series)
            if found and found[2] != 'GetServerInfo' and value:
                codes[found[1]] += int(value)
        return codes

    def usage(self):
        """What it holds, without what looking at its pages takes."""
        return usage_of(self.pid, self.admin)

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        """Stops it, and returns once every thread has stopped."""
        self.signal(signal.SIGSTOP)
        tasks = pathlib.Path('/proc', str(self.pid), 'task')
        self._bench.eventually(
            lambda: all(') T ' in (task / 'stat').read_text() for task in tasks.iterdir()),
            'attnd does not stop')

    def resume(self):
        self.signal(signal.SIGCONT)

    def wait(self, seconds=None):
        """Its exit status, negative where a signal ended it; Failed where it goes on."""
        try:
            return self.process.wait(seconds or self._bench.hang_seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f'attnd does not end\n{self.log()}') from None

    def end(self):
        """Drains it; a crash, a leak that a sanitizer found, or a failed assertion is a failure."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        status = self.wait()
        log = self.log()
        require(status == 0, f'attnd ended with {status}:\n{log}')
        for sign in ('Sanitizer', 'runtime error:', 'assertion failed'):
            require(sign not in log, f'attnd says "{sign}":\n{log}')
