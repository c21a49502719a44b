"""Programs that the live check starts, none of which outlives it."""

import itertools
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / 'process'))
import attnd_process  # noqa: E402

# Past which something hangs; nothing is known to need a tenth of it.
HANG_SECONDS = 120

# Where servers and Prometheus are. No other process is given a port of this address, not even
# while the server that has it is down.
HOST = attnd_process.own_address()
# One that nobody has, each time that it is asked.
next_port = itertools.count(attnd_process.FIRST_PORT).__next__


def before(nofile=None, yields=False):
    """A command that becomes another, with so many descriptors at most, and that lets others have
    the processors first."""
    return [*(['nice', '-n', '10'] if yields else []),
            *([] if nofile is None else ['prlimit', f'--nofile={nofile}'])]


def start(command, log, yields=False):
    """Starts it, with its output in the file `log`. It is killed when this process dies."""
    with open(log, 'ab') as output:
        return subprocess.Popen([*attnd_process.TIED, *before(yields=yields), *map(str, command)],
                                stdin=subprocess.DEVNULL, stdout=output, stderr=output)


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
    """An attnd, on ports that it keeps when it is started again. `limits` are those of before();
    environment and stderr as attnd_process has them."""

    def __init__(self, name, program, folder, flags, environment=None, stderr=None, **limits):
        self.name, self.folder = name, folder
        self.address, self.admin = (HOST, next_port()), (HOST, next_port())
        self._log = folder / f'{name}.log'
        self._start = lambda: attnd_process.Attnd(
            program, f'--host={HOST}', f'--port={self.address[1]}',
            f'--admin_address={self.instance}', *flags, log=self._log, prefix=before(**limits),
            environment=environment, stderr=stderr, seconds=HANG_SECONDS)
        self._attnd = None

    @property
    def instance(self):
        """What Prometheus calls it."""
        return f'{HOST}:{self.admin[1]}'

    @property
    def target(self):
        return f'{HOST}:{self.address[1]}'

    def start(self):
        self._attnd = self._start()
        wait_for(f'{self.name} to be ready', self._attnd.is_ready, self._attnd.process, self._log)

    def metrics(self):
        """The text of its page."""
        return self._attnd.metrics()

    def end(self):
        """Drains it."""
        self._attnd.end(HANG_SECONDS)

    def kill(self):
        self._attnd.kill()

    def restart(self):
        self.kill()
        self.start()

    def stop(self):
        if self._attnd is not None:
            self.kill()


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
