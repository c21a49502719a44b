#!/usr/bin/env python3
"""Mixed load for half an hour, and whether the server holds more at its end.

  tests/faults/soak.py                     30 minutes, of build/release
      --minutes=3      another time; of at least three rounds
      --round=60       seconds of load, after each of which everybody pauses
      --rate=1         how much load: so many times what two busy cores bear beside others
      --build=FOLDER   another build
      --out=FOLDER     where samples.jsonl, soak.json and attnd.log go (build/soak)
      --leaky          a server that loses 8 KiB a request, which must be found

Forward and backward of many sizes, in messages, chunks and regions, over TCP and the unix
socket, from a dozen clients that come and go; and injected: deadlines that pass (a cancel on the
wire), clients that are killed, and connections that are reset. Every other call must be answered,
and right. Each two seconds, and at rest after each round, memory, descriptors and threads are
sampled; soak_verdict.py says how they are judged.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import signal
import sys
import threading
import time

from bench import ROOT, Bench, Failed, processors, require
from clients import LARGE, LONG, SMALL, Attnload, attnctl, check_real_data
from idle import busy_with
from proxy import Proxy
from server import Server
from soak_verdict import HEAD, judge

MIXED = ('forward:f32:s64:h4:d64:causal@0.4', 'forward:bf16:s17:h2:d32@0.2',
         'forward:f16:s256:h8/2:d64:w64/0@0.1', 'backward:f32:s40:h2:d32@0.15',
         'backward:bf16:s128:h4:d64:causal:det@0.1', 'forward:f32:s700:h4:d64@0.05')
ENDLESS = ('forward:f32:s131072:h1:d1',)  # seconds of a core
SAMPLE_SECONDS = 2
# How long free memory may stay with the C library (server/program/program.cc), and a sample.
SETTLE_SECONDS = 6
# Counted beside what is held, for whoever looks at the samples.
SHOWN = ('attnd_queue_requests', 'attnd_running_requests', 'attnd_account_bytes',
         'attnd_upload_bytes', 'attnd_connections', 'attnd_accepted_connections_total',
         'attnd_region_leases', 'attnd_region_slabs_replaced_total')


class Tally:
    """How all calls ended, by client. Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self.codes = collections.defaultdict(collections.Counter)
        self.checked = self.killed = 0
        self.failures = []
        self.failed = threading.Event()  # from the first failure on

    def add(self, name, outcome):
        with self._lock:
            self.codes[name].update(outcome.codes)
            self.checked += outcome.checked

    def add_killed(self):
        with self._lock:
            self.killed += 1

    def fail(self, text):
        with self._lock:
            self.failures.append(text)
            self.failed.set()

    def total(self):
        with self._lock:
            return sum(sum(codes.values()) for codes in self.codes.values())


class Round:
    """The clients of one round, each a thread that ends by itself when the time is up, or is
    ended with the first failure of any."""

    def __init__(self, soak, number):
        self._soak = soak
        self._bench = soak.bench
        self._server = soak.server
        self._until = time.monotonic() + soak.round_seconds
        self._random = random.Random(number)
        self._loads = []
        self._over = False
        tcp, unix = self._server.tcp, self._server.unix
        region = {'transport': 'region', 'region_socket': self._server.region_socket}
        steady = [('mixed', tcp, 25, MIXED, {'connections': 2}, ()),
                  ('unix socket', unix, 10, MIXED, {}, ()),
                  ('regions', unix, 10, MIXED, region, ()),
                  ('chunks', tcp, 1, LARGE, {'transport': 'stream', 'connections': 2}, ()),
                  ('large messages', tcp, 0.5, LARGE, {'transport': 'unary'}, ()),
                  # A passed deadline resets the stream: what a cancelled call does.
                  ('late', tcp, 0.3, ENDLESS, {'timeout': 0.5}, ('DEADLINE_EXCEEDED',)),
                  ('reset', soak.proxy.address, 5, MIXED, {}, ('UNAVAILABLE',)),
                  ('reset, retries', soak.proxy.address, 5, MIXED, {'attempts': 10},
                   ('UNAVAILABLE',))]
        self._threads = [threading.Thread(target=self._guard, args=(self._steady, *client))
                         for client in steady]
        self._threads += [threading.Thread(target=self._guard, args=(client,))
                          for client in (self._churn, self._kill, self._reset)]

    def run(self):
        for thread in self._threads:
            thread.start()
        while any(thread.is_alive() for thread in self._threads):
            if self._soak.tally.failed.wait(0.1):
                # What its clients say of that is no failure of theirs.
                self._over = True
                for load in list(self._loads):
                    load.kill()
                break
        for thread in self._threads:
            thread.join()

    def _guard(self, client, *arguments):
        try:
            client(*arguments)
        except Exception as error:  # a thread's failure is the soak's
            if not self._over:
                self._soak.tally.fail(f'{client.__name__} {arguments[:1]}: {error}')

    def _left(self):
        return 0 if self._over else self._until - time.monotonic()

    def _load(self, *arguments, **options):
        load = Attnload(self._bench, *arguments, seed=self._random.randrange(2**31), **options)
        self._loads.append(load)
        if self._over:  # or else whoever set it has found it in the list
            load.kill()
        return load

    def _steady(self, name, target, rate, shapes, options, codes):
        rate *= self._soak.rate
        load = self._load(target, shapes, rate=rate,
                          requests=max(1, int(rate * self._soak.round_seconds)), **options)
        # Every 5 s it says how many calls have failed; of wrong answers it tells at its end.
        while not codes and load.running() and self._left() > 0:
            if re.search(r' [1-9]\d* failed$', load.log(), re.M):
                load.process.send_signal(signal.SIGINT)
                load.end().account(None)
            time.sleep(1)
        outcome = load.end(may_not_begin=bool(codes))
        self._soak.tally.add(name, outcome)
        if outcome.sent > 0:
            outcome.account(load.requests, codes, least_ok=0 if codes else load.requests)

    def _churn(self):
        """Clients that connect, ask for little, and go."""
        while self._left() > 0:
            target = self._random.choice((self._server.tcp, self._server.unix))
            load = self._load(target, SMALL, requests=5, concurrency=2)
            outcome = load.end()
            self._soak.tally.add('churn', outcome)
            outcome.account(5, least_ok=5)
            attnctl(self._bench, 'info', f'--server={target}')
            time.sleep(0.5 / self._soak.rate)

    def _kill(self):
        """Clients that die while their calls are under way."""
        kinds = (('unary', LARGE), ('stream', LARGE), ('region', SMALL), ('unary', LONG))
        while self._left() > 0:
            transport, shapes = self._random.choice(kinds)
            more = {'region_socket': self._server.region_socket} if transport == 'region' else {}
            victim = self._load(self._server.tcp, shapes, requests=10**9, concurrency=2,
                                transport=transport, **more)
            time.sleep(self._random.uniform(0.2, 1))
            require(victim.running(), f'a client that nobody killed has ended: {victim.log()}')
            victim.kill()
            self._soak.tally.add_killed()
            time.sleep(3 / self._soak.rate)

    def _reset(self):
        while self._left() > 0:
            time.sleep(1)
            self._soak.proxy.reset()


class Soak:

    def __init__(self, bench, arguments):
        self.bench = bench
        self.round_seconds = arguments.round
        self.rate = arguments.rate
        self.minutes = arguments.minutes
        self.out = pathlib.Path(arguments.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.tally = Tally()
        self.samples = []
        self._phase = 'load'
        self._samples_file = open(self.out / 'samples.jsonl', 'w')
        self.server = Server(bench, '--memory_limit=512MiB', '--keepalive_time=2s',
                             '--keepalive_timeout=2s', regions=True, log=self._fresh('attnd.log'),
                             program=bench.leaky_attnd if arguments.leaky else None)
        self.proxy = Proxy(bench, self.server.tcp)
        self._begun = time.monotonic()

    def _fresh(self, name):
        path = self.out / name
        path.unlink(missing_ok=True)
        return path

    def _sample(self, phase):
        usage, metrics = self.server.usage(), self.server.metrics()
        sample = {'seconds': round(time.monotonic() - self._begun, 2), 'phase': phase,
                  'resident_bytes': usage.resident_bytes, 'heap_bytes': usage.heap_bytes,
                  'descriptors': usage.descriptor_count, 'threads': usage.threads,
                  'all_threads': usage.all_threads, 'calls': self.tally.total(),
                  **{name: metrics[name] for name in SHOWN}}
        self.samples.append(sample)
        print(json.dumps(sample), file=self._samples_file, flush=True)
        return sample

    def run(self):
        """Rounds until the time is up. Failed as soon as something is not as it must be."""
        stop = threading.Event()
        loaded = threading.Event()

        def watch():
            while not stop.wait(SAMPLE_SECONDS):
                if loaded.is_set():
                    try:
                        self._sample('load')
                    except Failed as failure:
                        self.tally.fail(str(failure))
                        return
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            number = 0
            while time.monotonic() - self._begun < self.minutes * 60:
                number += 1
                loaded.set()
                Round(self, number).run()
                loaded.clear()
                if self.tally.failures:
                    raise Failed('\n'.join(self.tally.failures))
                self._rest(number)
        finally:
            stop.set()
            watcher.join()
            self._samples_file.close()
        self.server.end()

    def _rest(self, number):
        self.bench.eventually(lambda: not busy_with(self.server),
                              lambda: f'not at rest: {busy_with(self.server)}')
        check_real_data(self.bench, self.server.tcp)
        self.bench.eventually(lambda: not busy_with(self.server), 'not at rest')
        time.sleep(SETTLE_SECONDS)
        held = self._sample('rest')
        self.bench.say(f'round {number}: {held["calls"]} calls; at rest '
                       f'{held["resident_bytes"] / 2**20:.1f} MiB, {held["descriptors"]} '
                       f'descriptors, {held["threads"]} threads ({held["all_threads"]} with '
                       "gRPC's)")

    def report(self):
        """Prints what was seen, writes soak.json, and returns whether all of it is good."""
        judgements = judge(self.samples)
        tally = self.tally
        print(f'\n{self.samples[-1]["seconds"] / 60:.1f} minutes, {tally.total()} calls, '
              f'{tally.checked} answers checked, none wrong; {tally.killed} clients killed, '
              f'{self.proxy.resets} connections reset; {len(self.samples)} samples')
        for name, codes in tally.codes.items():
            print(f'  {name:16} ' + ', '.join(f'{code} {n}' for code, n in sorted(codes.items())))
        print(f'\n{HEAD}')
        for judgement in judgements:
            print(judgement)
        flat = all(judgement.flat for judgement in judgements)
        print('\nflat, and no error that was not injected' if flat else '\nIT GROWS')
        with open(self.out / 'soak.json', 'w') as file:
            json.dump({'flat': flat, 'minutes': self.minutes, 'processors': processors(),
                       'calls': {name: dict(codes) for name, codes in tally.codes.items()},
                       'answers_checked': tally.checked, 'clients_killed': tally.killed,
                       'connections_reset': self.proxy.resets,
                       'judgements': [vars(judgement) for judgement in judgements]}, file, indent=2)
        return flat


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--minutes', type=float, default=30)
    parser.add_argument('--round', type=float, default=60)
    parser.add_argument('--rate', type=float, default=1)
    parser.add_argument('--build', default=ROOT / 'build' / 'release')
    parser.add_argument('--out', default=ROOT / 'build' / 'soak')
    parser.add_argument('--leaky', action='store_true')
    arguments = parser.parse_args()
    with Bench(arguments.build) as bench:
        soak = Soak(bench, arguments)
        try:
            soak.run()
        except Failed as failure:
            print(f'FAILED: {failure}')
            return 1
        return 0 if soak.report() else 1


if __name__ == '__main__':
    sys.exit(main())
