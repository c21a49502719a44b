"""What a fault is, and those that take more than to start and stop something."""

import fcntl
import os

from processes import Repeat


class Fault:
    """`alerts` are (name, labels) that must fire for this server while the fault lasts, and
    clear once it is over. `side_effects` are names that may fire as well, by how fast the
    machine is."""

    def __init__(self, server, alerts, inject, remove, what, side_effects=(), tick=None):
        self.server, self.alerts, self.what = server, alerts, what
        self.inject, self.remove = inject, remove
        self.side_effects = set(side_effects)
        self.tick = tick or (lambda: None)  # called while it lasts


def all_of(things, method):
    """A function that starts, or stops, all of them."""
    def call():
        for thing in things:
            getattr(thing, method)()
    return call


def lasting(server, alerts, what, *things, side_effects=()):
    """A fault that is there while `things` run."""
    return Fault(server, alerts, all_of(things, 'start'), all_of(things, 'stop'), what,
                 side_effects)


class SlowReader:
    """A log's reader, which stops to read between start() and stop()."""

    def __init__(self):
        self.end_to_read, self.end_to_write = os.pipe()
        os.set_blocking(self.end_to_read, False)
        fcntl.fcntl(self.end_to_read, fcntl.F_SETPIPE_SZ, 4096)
        self.reading = Repeat(lambda: os.read(self.end_to_read, 65536), 0.02)
        self.reading.start()

    def start(self):
        self.reading.stop()

    def stop(self):
        self.reading.start()


class Restarts:
    """Kills a server and starts it again, each time that Prometheus has seen the last start,
    until it has seen as many as the alert takes."""
    TIMES = 2

    def __init__(self, server, prometheus):
        self.server, self.prometheus = server, prometheus
        self.seen = set()
        self.done = 0

    def fault(self):
        return Fault(self.server, [('AttndRestarting', {})], lambda: None, lambda: None,
                     f'kill -9 and a start, {self.TIMES} times', tick=self.tick)

    def tick(self):
        start = self.prometheus.values('process_start_time_seconds').get(self.server.instance)
        if start is None or start in self.seen:
            return
        self.seen.add(start)
        if self.done < self.TIMES:
            self.done += 1
            self.server.restart()
