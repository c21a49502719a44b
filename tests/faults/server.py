"""attnd in a process of its own, and what it says and holds."""

import collections
import dataclasses
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess

from bench import Failed, require

# gRPC starts these under load, up to two a processor, and keeps them.
GRPC_POOLS = ('default-execut', 'grpc_global_tim')


@dataclasses.dataclass
class Usage:
    """What /proc says of a process."""
    descriptors: collections.Counter  # by kind: 'socket', 'anon_inode:[eventpoll]', a path
    threads: int  # without gRPC's pools
    all_threads: int
    resident_bytes: int
    heap_bytes: int  # resident, and of no file
    peak_bytes: int

    @property
    def descriptor_count(self):
        return sum(self.descriptors.values())


def _tcp_sockets(pid):
    """(local port, state, inode) of each socket of IPv4 in the namespace of process `pid`."""
    for line in pathlib.Path('/proc', str(pid), 'net', 'tcp').read_text().splitlines()[1:]:
        row = line.split()
        yield int(row[1].rpartition(':')[2], 16), row[3], row[9]


_LISTENS = '0A'


def usage_of(pid, but_port=None):
    """The usage of process `pid`, without connections to `but_port`; Failed where it is gone."""
    folder = pathlib.Path('/proc', str(pid))
    kinds = collections.Counter()
    try:
        ignored = {f'socket:[{inode}]' for port, state, inode in _tcp_sockets(pid)
                   if port == but_port and state != _LISTENS}
        for entry in os.scandir(folder / 'fd'):
            try:
                target = os.readlink(entry.path)
            except FileNotFoundError:
                continue  # closed meanwhile
            if target not in ignored:
                kinds[re.sub(r'^(socket|pipe):.*', r'\1', target)] += 1
        names = []
        for task in os.scandir(folder / 'task'):
            try:
                names.append(pathlib.Path(task.path, 'comm').read_text().strip())
            except (FileNotFoundError, ProcessLookupError):
                pass  # ended meanwhile
        sizes = dict(re.findall(r'^(\w+):\s+(\d+) kB$', (folder / 'status').read_text(), re.M))
        return Usage(kinds, sum(not name.startswith(GRPC_POOLS) for name in names), len(names),
                     *(int(sizes[name]) << 10 for name in ('VmRSS', 'RssAnon', 'VmHWM')))
    except (FileNotFoundError, ProcessLookupError, KeyError) as error:
        raise Failed(f'process {pid} has ended: {error}') from error


def listening_ports(pid):
    """The TCP ports of IPv4 on which process `pid` listens."""
    sockets = set()
    for entry in os.scandir(pathlib.Path('/proc', str(pid), 'fd')):
        sockets.update(re.findall(r'^socket:\[(\d+)\]', os.readlink(entry.path)))
    return {port for port, state, inode in _tcp_sockets(pid)
            if state == _LISTENS and inode in sockets}


def parse_metrics(text):
    """Prometheus' text as {'name{label="value"}': number}, labels in alphabetical order."""
    series = {}
    for line in text.splitlines():
        if line and not line.startswith('#'):
            name, value = line.rsplit(' ', 1)
            labels = sorted(re.findall(r'\w+="[^"]*"', name))
            name = name.partition('{')[0]
            series[f'{name}{{{",".join(labels)}}}' if labels else name] = float(value)
    return series


def latest(flags):
    """Of flags that are given twice, the later one."""
    return {flag.partition('=')[0]: flag for flag in flags}.values()


class Server:
    """An attnd on the processor, listening on TCP, a unix socket, and for operators.

    `flags` come after those that every case needs, and a later flag wins. `log`: a file for its
    stderr, else one of the case's folder. `inside`: a command that runs it, nsenter say.
    `sockets`: the folder of its sockets, where another server's may have been.
    """

    def __init__(self, bench, *flags, host='127.0.0.1', port=0, log=None, inside=(),
                 sockets=None, program=None, regions=False):
        self._bench = bench
        self.log_file = pathlib.Path(log or bench.file('log'))
        self.folder = pathlib.Path(sockets or bench.file('sockets'))
        self.folder.mkdir(exist_ok=True)
        port_file = bench.file('port')
        command = [program or bench.attnd, '--device=cpu', f'--host={host}', f'--port={port}',
                   f'--port_file={port_file}', '--admin_address=127.0.0.1:0',
                   f'--unix_socket={self.folder}/grpc', *latest(flags)]
        if regions:
            command += [f'--region_socket={self.folder}/regions', '--region_memory=64MiB',
                        '--region_slab=2MiB']
        with open(self.log_file, 'ab') as log_end:
            self.process = bench.spawn(command, stdout=log_end, stderr=log_end, inside=inside)
        self.pid = self.process.pid  # nsenter and setpriv become what they run
        bench.eventually(lambda: port_file.exists() or self.process.poll() is not None,
                         lambda: f'attnd does not listen:\n{self.log()}')
        require(port_file.exists(), f'attnd ended with {self.process.poll()}:\n{self.log()}')
        self.port = int(port_file.read_text())
        self.tcp = f'{host}:{self.port}'
        self.unix = f'unix:{self.folder}/grpc'
        self.region_socket = f'{self.folder}/regions'
        self.admin_port, = listening_ports(self.pid) - {self.port}

    def log(self):
        """What it has logged; nothing where that is no file, as /dev/full is none."""
        return self.log_file.read_text(errors='replace') if self.log_file.is_file() else ''

    def page(self, path):
        """(HTTP status, text) of a page for operators."""
        connection = http.client.HTTPConnection('127.0.0.1', self.admin_port,
                                                timeout=self._bench.hang_seconds)
        try:
            connection.request('GET', path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError as error:
            raise Failed(f'{path}: {error}; attnd: {self.process.poll()}\n{self.log()}') from error
        finally:
            connection.close()

    def metrics(self):
        return parse_metrics(self.page('/metrics')[1])

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
        return usage_of(self.pid, self.admin_port)

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

    def kill(self):
        self.signal(signal.SIGKILL)
        self.wait()

    def end(self):
        """Drains it; a crash, a leak that a sanitizer found, or a failed assertion is a failure."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        status = self.wait()
        log = self.log()
        require(status == 0, f'attnd ended with {status}:\n{log}')
        for sign in ('Sanitizer', 'runtime error:', 'assertion failed'):
            require(sign not in log, f'attnd says "{sign}":\n{log}')
