"""Programs that the live check starts, none of which outlives it."""

import http.client
import os
import random
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

# Past which something hangs; nothing is known to need a tenth of it.
HANG_SECONDS = 120

# Below those that the system takes for connections, one of which could have a server's port while
# the server is down.
PORTS = iter(random.sample(range(10000, 32000), 2000))


def free_port():
    """A TCP port that is free, each time another."""
    for port in PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(('127.0.0.1', port))
                return port
            except OSError:
                pass
    raise RuntimeError('no port is free')


def start(command, log, nofile=None, environment=None, stderr=None, yields=False):
    """Starts it, with its output in the file `log`. It is killed when this process dies. If it
    `yields`, others have the processors first."""
    prefix = ['setpriv', '--pdeathsig', 'KILL']
    if yields:
        prefix += ['nice', '-n', '10']
    if nofile is not None:
        prefix += ['prlimit', f'--nofile={nofile}']
    with open(log, 'ab') as output:
        return subprocess.Popen(prefix + [str(part) for part in command],
                                stdin=subprocess.DEVNULL, stdout=output,
                                stderr=output if stderr is None else stderr,
                                env={**os.environ, **(environment or {})})


def run(command):
    """Runs it to its end, or until it seems to hang, whatever comes of it."""
    process = start(command, os.devnull, yields=True)
    try:
        process.wait(HANG_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end(process, how=signal.SIGTERM):
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(HANG_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def said(log):
    """The last lines of a log, for an error."""
    return '' if log is None else '\n' + '\n'.join(log.read_text().splitlines()[-10:])


def wait_for(what, condition, process=None, log=None):
    """Returns once `condition` holds. RuntimeError, with what `process` has said: it does not
    hold, or the process has ended."""
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f'waited for {what}: it ended with {process.returncode}{said(log)}')
        if time.monotonic() > deadline:
            raise RuntimeError(f'waited in vain for {what}{said(log)}')
        time.sleep(0.05)


def allow_descriptors(wanted):
    """Raises this process' own limit of descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise RuntimeError(f'needs {wanted} descriptors, and may have {hard}: see ulimit -Hn')
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Server:
    """An attnd, on ports that it keeps when it is started again."""

    def __init__(self, name, program, folder, flags, **how):
        self.name, self.program, self.folder = name, program, folder
        self.flags, self.how = flags, how  # as start() has it
        self.port, self.admin_port = free_port(), free_port()
        self.process = None

    @property
    def instance(self):
        """What Prometheus calls it."""
        return f'127.0.0.1:{self.admin_port}'

    @property
    def target(self):
        return f'127.0.0.1:{self.port}'

    def start(self):
        log = self.folder / f'{self.name}.log'
        self.process = start(
            [self.program, f'--port={self.port}', f'--admin_address={self.instance}',
             *self.flags], log, **self.how)
        wait_for(f'{self.name} to be ready', self.is_ready, self.process, log)

    def is_ready(self):
        try:
            with urllib.request.urlopen(f'http://{self.instance}/readyz', timeout=5) as reply:
                return reply.status == 200
        except (OSError, http.client.HTTPException):
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()

    def stop(self):
        if self.process is not None:
            end(self.process, signal.SIGKILL)


class Repeat:
    """Calls `action` again and again on a thread of its own, until it is stopped. What goes
    wrong on the way of who attacks is of no concern."""

    def __init__(self, action, every):
        self.action, self.every = action, every
        self.over = threading.Event()
        self.thread = None

    def start(self):
        self.over.clear()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            try:
                self.action()
            except OSError:
                pass
            self.over.wait(self.every)

    def stop(self):
        if self.thread is not None:
            self.over.set()
            self.thread.join()
            self.thread = None


class Load(Repeat):
    """An attnload, until it is stopped. It is started again if it ends, as it does where its
    first call fails, which some faults see to."""

    def __init__(self, program, server, *flags):
        super().__init__(self.run_once, every=0.5)
        self.command = [program, server.target, '--warmup=0', '--duration=3600', *flags]
        self.log = server.folder / f'{server.name}.load.log'
        self.process = None

    def run_once(self):
        self.process = start(self.command, self.log, yields=True)
        if self.over.is_set():
            self.process.kill()
        self.process.wait()

    def stop(self):
        self.over.set()
        if self.process is not None:
            self.process.kill()
        super().stop()
