"""An attnd in a process of its own: started, waited for, looked at and ended.

Python's own library and util-linux are all that it needs, so that tests and benchmarks of every
folder may use it:

    sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / 'process'))
    import attnd_process
"""

import http.client
import os
import pathlib
import re
import socket
import struct
import subprocess
import tempfile
import time

# A command behind this is killed when the thread that started it ends, however that comes: a test
# that was killed leaves no server behind.
TIED = ('setpriv', '--pdeathsig', 'KILL')
# The first of the ports that a server has on own_address() if it keeps them when it is started
# again: below those that the system gives to whoever asks for any.
FIRST_PORT = 17411
# What a server listens to that was not told otherwise.
DEFAULTS = ('--device=cpu', '--port=0', '--admin_address=127.0.0.1:0')


class DidNotStart(RuntimeError):
    """attnd has ended, or does not listen; the text has what it logged."""


def own_address():
    """An address of this machine that no other process of it takes, by this one's id.

    A port of 127.0.0.1 whose server is down may be given to any process that connects to something
    there, to a client of that very server even, which then talks to itself; and who still calls
    the server reaches whoever has its port next. Nobody is given a port of this address unasked.
    """
    pid = os.getpid()  # below 2^22
    return f'127.{128 + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}'


def descriptors(pid):
    """What each descriptor of process `pid` leads to, of those that are not closed meanwhile.
    FileNotFoundError: the process is gone."""
    for entry in os.scandir(f'/proc/{pid}/fd'):
        try:
            yield os.readlink(entry.path)
        except FileNotFoundError:
            pass


def tcp_sockets(pid):
    """((address, port), whether it listens, inode) of each socket of IPv4 in the network namespace
    of process `pid`."""
    for line in pathlib.Path('/proc', str(pid), 'net', 'tcp').read_text().splitlines()[1:]:
        row = line.split()
        host, port = row[1].split(':')
        address = socket.inet_ntoa(struct.pack('=I', int(host, 16))), int(port, 16)
        yield address, row[3] == '0A', row[9]


def listening(pid):
    """The (address, port) of IPv4 to which process `pid` listens."""
    own = set(descriptors(pid))
    return {address for address, listens, inode in tcp_sockets(pid)
            if listens and f'socket:[{inode}]' in own}


def samples(text):
    """(name, {label: value}, number) of each line of Prometheus' text format."""
    for line in text.splitlines():
        if line and not line.startswith('#'):
            name, labels, value = re.fullmatch(r'([\w:]+)(?:\{(.*)\})? (\S+)', line).groups()
            found = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or '')
            yield name, dict(found), float(value)


def series(text):
    """{'name{label="value"}': number}, labels in alphabetical order."""
    return {name + ('{%s}' % ','.join(f'{label}="{labels[label]}"' for label in sorted(labels))
                    if labels else ''): value for name, labels, value in samples(text)}


def totals(text):
    """{name: number}, the sum over all labels."""
    sums = {}
    for name, _, value in samples(text):
        sums[name] = sums.get(name, 0) + value
    return sums


def kinds(text):
    """{name: 'counter', 'gauge' or 'histogram'}, as the text declares them."""
    return dict(re.findall(r'^# TYPE (\S+) (\w+)$', text, re.MULTILINE))


class Attnd:
    """A process of `program`, which listens when this returns; DidNotStart if it does not.

    flags: those of attnd; they come after `defaults`, and a later one wins.
    log: a file, to whose end its output goes; with `stderr`, a descriptor, only what is not that.
    prefix: a command that becomes the program, like taskset or nsenter.
    environment: variables besides those of this process.
    seconds: after which it is taken for one that does not start.

    host, port, target: where it listens; target is HOST:PORT.
    admin: the address for operators, as (host, port); None where it has none, or listens to more.
    """

    # Past which something hangs: a sanitizer's build on a busy machine takes its time.
    START_SECONDS = 60
    END_SECONDS = 60

    def __init__(self, program, *flags, log, defaults=DEFAULTS, prefix=(), environment=None,
                 stderr=None, seconds=START_SECONDS):
        self.log_path = pathlib.Path(log)
        given = {flag.partition('=')[0]: flag for flag in map(str, (*defaults, *flags))}
        with tempfile.TemporaryDirectory(prefix='attnd-port.') as folder, \
                open(self.log_path, 'ab') as output:
            port_file = pathlib.Path(folder) / 'port'
            self.process = subprocess.Popen(
                [*map(str, (*prefix, *TIED, program)), f'--port_file={port_file}', *given.values()],
                stdin=subprocess.DEVNULL, stdout=output,
                stderr=output if stderr is None else stderr,
                env={**os.environ, **(environment or {})})
            try:
                self._find_ports(port_file, seconds)
            except BaseException:
                self.kill()
                raise

    def _find_ports(self, port_file, seconds):
        deadline = time.monotonic() + seconds
        # The file appears whole, and once attnd listens; there is nothing to wait on for that.
        while not port_file.exists():
            if self.process.poll() is not None:
                raise DidNotStart(f'attnd ended with {self.process.returncode}:\n{self.said()}')
            if time.monotonic() > deadline:
                raise DidNotStart(f'attnd does not listen:\n{self.said()}')
            time.sleep(0.01)
        self.port = int(port_file.read_text())
        try:
            addresses = listening(self.process.pid)
        except FileNotFoundError:
            raise DidNotStart(f'attnd ended:\n{self.said()}') from None
        # Not from the log, which may be full, or JSON, or read by nobody.
        self.host = next((host for host, port in addresses if port == self.port), None)
        others = [address for address in addresses if address[1] != self.port]
        self.admin = others[0] if len(others) == 1 else None

    @property
    def pid(self):
        return self.process.pid

    @property
    def target(self):
        return f'{self.host}:{self.port}'

    def log(self):
        """What it has logged; nothing where that is no file, as /dev/full is none."""
        return self.log_path.read_text(errors='replace') if self.log_path.is_file() else ''

    def said(self):
        """The last lines of the log, for an error."""
        return '\n'.join(self.log().splitlines()[-20:])

    def page(self, path, seconds=30):
        """(HTTP status, text) of a page for operators. OSError: it does not answer."""
        connection = http.client.HTTPConnection(*self.admin, timeout=seconds)
        try:
            connection.request('GET', path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except http.client.HTTPException as error:  # it has ended in the middle
            raise OSError(f'{path}: {error!r}') from error
        finally:
            connection.close()

    def is_ready(self):
        try:
            return self.page('/readyz')[0] == 200
        except OSError:
            return False

    def metrics(self):
        """The text of /metrics, for samples(), series() or totals()."""
        return self.page('/metrics')[1]

    def end(self, seconds=END_SECONDS):
        """Drains it: its exit status, which is negative where it had to be killed."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self):
        """Ends it, whatever it does: its exit status."""
        self.process.kill()
        return self.process.wait()
