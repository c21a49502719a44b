"""What every case stands on: how long it waits, how it fails, and its processes."""

import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / 'tests' / 'process'))
import attnd_process  # noqa: E402


class Failed(Exception):
    """The server, or a client, did what it must not."""


class Skipped(Exception):
    """The case cannot be made on this machine."""


class Bench:
    """A build's programs, a folder for a case's files, and the processes that it started.

    Nothing here depends on how fast the machine is: what is waited for comes, however slowly,
    or else there is a bug. `slow` is how many times longer than a release a build takes, a
    sanitizer's say; it stretches the limits that bound a hang and thins out the load.
    """

    HANG_SECONDS = 120

    def __init__(self, build, slow=1):
        build = pathlib.Path(build).resolve()
        self.attnd = build / 'server' / 'attnd'
        self.attnctl = build / 'client' / 'attnctl'
        self.attnload = build / 'client' / 'attnload' / 'attnload'
        self.leaky_attnd = build / 'tests' / 'integration' / 'leaky_attnd'
        for program in (self.attnd, self.attnctl, self.attnload):
            if not program.exists():
                raise Failed(f'{program} is not there: build it first')
        self.slow = slow
        self.hang_seconds = self.HANG_SECONDS * slow
        self._folder = tempfile.TemporaryDirectory(prefix='attnd-faults.')
        self.folder = pathlib.Path(self._folder.name)
        self._numbers = itertools.count(1)
        self._processes = []
        self._closers = []
        self.begun = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self._processes):
            if process.poll() is None:
                process.kill()
            process.wait()
        for close in reversed(self._closers):
            close()
        self._folder.cleanup()

    def file(self, name):
        """A path that no other file of this case has."""
        return self.folder / f'{next(self._numbers)}.{name}'

    def closes(self, close):
        """`close` is called when the case is over, after its processes have ended."""
        self._closers.append(close)

    def spawn(self, command, **options):
        """A process that ends with this one, however this one ends.

        It is tied to the thread that calls: a thread must outlive what it spawns.
        """
        process = subprocess.Popen([*options.pop('inside', ()), *attnd_process.TIED,
                                    *map(str, command)], stdin=subprocess.DEVNULL, **options)
        self.adopt(process)
        return process

    def adopt(self, process):
        """Ends it, if it goes on, when the case is over."""
        self._processes.append(process)

    def say(self, text):
        print(f'[{time.monotonic() - self.begun:5.1f}s] {text}', flush=True)

    def fewer(self, requests):
        """So many requests as a slow build does in the time that a release takes for these."""
        return max(1, requests // self.slow)

    def eventually(self, condition, what, seconds=None):
        """Waits until `condition()` is true, and returns what it returned.

        Fails after `seconds` (the hang limit, unless given) with `what`, a text or a function
        that returns one.
        """
        give_up = time.monotonic() + (seconds or self.hang_seconds)
        while not (value := condition()):
            if time.monotonic() > give_up:
                raise Failed(f'not within {seconds or self.hang_seconds:.0f} s: '
                             f'{what() if callable(what) else what}')
            time.sleep(0.01)
        return value


def require(condition, what):
    if not condition:
        raise Failed(what)


def processors():
    return len(os.sched_getaffinity(0))
