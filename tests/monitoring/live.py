#!/usr/bin/env python3
"""Runs the alerts and the dashboard as they are shipped against real servers.

  tests/monitoring/live.py [--build=build/release]
      --gpu       also demands data of the panels that need a GPU; servers compute there
      --faster=N  by how much each time of the rules is divided (10)
      --keep      leaves the folder with all logs and with Prometheus' data

A Prometheus with the shipped configuration and rules scrapes attnd under attnload. Into
servers made for it each alert's fault is injected for real: the alert must fire, and clear
once the fault is over; no other may fire, and none of the healthy server. Then every
expression of every panel must have data that is not always 0. All that differs from what is
shipped are its targets and its times: ranges, `for` and how often Prometheus looks are N times
as short, so that it takes minutes. Exits with 1 if anything is missed.
"""

import argparse
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time

import faults
import panels
import processes
import prometheus
import scene

HERE = pathlib.Path(__file__).resolve().parent
# In which an alert must fire or clear, past what its rule says. Nothing waits for as long
# unless it is broken.
PATIENCE = 150
# All of it: what has not ended by then never will.
MOST_SECONDS = 600
# What any server may raise where the machine has no time for it, which is as it should be.
BY_SPEED = {'AttndQueueSlow', 'AttndDeadlinesMissed'}
# Marks of a template that could not be expanded.
BAD_TEMPLATES = ('<error', '<no value>', '%!')


class Expected:
    """An alert that a fault must raise."""

    def __init__(self, fault, name, labels):
        self.fault, self.name, self.labels = fault, name, labels
        self.injected = self.fired = self.removed = self.cleared = None

    def is_in(self, firing):
        want = {'alertname': self.name, **self.labels}
        if self.fault.server is not None:
            want['instance'] = self.fault.server.instance
        return any(want.items() <= alert['labels'].items() for alert in firing)


class Check:
    def __init__(self, scenery, server):
        self.scene, self.prometheus = scenery, server
        self.expected = [Expected(fault, name, labels)
                         for fault in scenery.faults for name, labels in fault.alerts]
        self.names = {server.instance: server.name for server in scenery.servers}
        self.misses, self.notes = [], set()
        self.rules = server.rules()

    def miss(self, text):
        if text not in self.misses:
            self.misses.append(text)
            print(f'MISS  {text}', flush=True)

    def firing(self):
        """Those that fire now; remembers what they say, and finds those that must not."""
        alerts = [alert for alert in self.prometheus.alerts() if alert['state'] == 'firing']
        for alert in alerts:
            labels = alert['labels']
            instance = labels.get('instance')
            self.look_at_text(alert)
            allowed = any(
                (fault.server is None or fault.server.instance == instance)
                and (labels['alertname'] in fault.side_effects
                     or any(name == labels['alertname'] and want.items() <= labels.items()
                            for name, want in fault.alerts))
                for fault in self.scene.faults)
            if allowed:
                continue
            text = (f'{labels["alertname"]} fires for {self.names.get(instance)} without a '
                    f'fault: {alert["annotations"]["summary"]}')
            if labels['alertname'] in BY_SPEED:
                self.notes.add(text)
            else:
                self.miss(text)
        return alerts

    def look_at_text(self, alert):
        """Prometheus puts nothing where a label is that there is not."""
        name = alert['labels']['alertname']
        for label in re.findall(r'\$labels\.(\w+)', self.rules[name]):
            if label not in alert['labels']:
                self.miss(f'{name} speaks of its {label}, and has none')
        for text in alert['annotations'].values():
            if any(mark in text for mark in BAD_TEMPLATES):
                self.miss(f'{name} says: {text}')

    def run(self, chosen):
        """Injects all of these faults, and removes each once all of its alerts fire; returns
        when all have cleared."""
        mine = [one for one in self.expected if one.fault in chosen]
        for fault in chosen:
            now = time.monotonic()
            fault.inject()
            for one in mine:
                if one.fault is fault:
                    one.injected = now
        while not all(one.cleared for one in mine):
            firing = self.firing()
            now = time.monotonic()
            for one in mine:
                is_there = one.is_in(firing)
                if is_there and one.fired is None:
                    one.fired = now
                    self.say(f'{one.name} fires for {self.name(one)}')
                if not is_there and one.removed and one.cleared is None:
                    one.cleared = now
                    self.say(f'{one.name} has cleared for {self.name(one)}')
            for fault in chosen:
                its = [one for one in mine if one.fault is fault]
                if any(one.removed for one in its):
                    continue
                late = now - its[0].injected > PATIENCE
                if late or all(one.fired for one in its):
                    fault.remove()
                    for one in its:
                        one.removed = time.monotonic()
                        if one.fired is None:
                            self.miss(f'{one.name} does not fire for {self.name(one)}: '
                                      f'{fault.what}')
                            one.cleared = one.removed
                else:
                    fault.tick()
            for one in mine:
                if one.removed and one.cleared is None and now - one.removed > PATIENCE:
                    self.miss(f'{one.name} does not clear for {self.name(one)}')
                    one.cleared = now
            time.sleep(0.25)

    def name(self, one):
        return one.fault.server.name if one.fault.server is not None else 'all'

    def say(self, text):
        print(f'[{time.monotonic() - self.began:4.0f} s] {text}', flush=True)

    def main(self, wants_gpu):
        self.began = time.monotonic()
        start = time.time()
        for thing in self.scene.loads:
            thing.start()
        self.scene.disown_a_client()
        ready = self.prometheus.values('up{job="attnd"} == 1')
        self.say(f'{len(ready)} servers are scraped, faults begin')
        self.run([fault for fault in self.scene.faults if fault.server is not None])
        self.run([fault for fault in self.scene.faults if fault.server is None])
        self.compare_names()
        self.print_alerts()
        self.look_at_panels(start, time.time(), wants_gpu)

    def compare_names(self):
        """Every rule must have had its fault."""
        for name in sorted(self.rules.keys() - {one.name for one in self.expected}):
            self.miss(f'{name} has no fault here')

    def print_alerts(self):
        def seconds(start, end):
            return f'{end - start:7.1f}' if start and end else '      -'
        print(f'\n{"alert":28}{"server":12}{"fired":>7}{"cleared":>9}  fault')
        for one in self.expected:
            labels = ''.join(f' {value}' for value in one.labels.values())
            print(f'{one.name:28}{self.name(one):12}{seconds(one.injected, one.fired)}'
                  f'{seconds(one.removed, one.cleared):>9}  {one.fault.what}{labels}')

        for text in sorted(self.notes):
            print(f'the machine is slow: {text}')

    def look_at_panels(self, start, end, wants_gpu):
        seconds = prometheus.scrape_seconds(self.prometheus.factor)
        total, exempt = 0, []
        for row, panel in panels.panels():
            total += 1
            if panels.needs_gpu(panel) and not wants_gpu:
                exempt.append(f'{row} / {panel["title"]}')
                continue
            for target in panel['targets']:
                expression = panels.substituted(target['expr'], seconds)
                try:
                    found = panels.verdict(
                        self.prometheus.range(expression, start, end, 2 * seconds))
                except ValueError as error:
                    found = str(error)
                if found:
                    self.miss(f'{row} / {panel["title"]}: {found}: {target["expr"]}')
        print(f'\n{total} panels, {total - len(exempt)} looked at')
        for name in exempt:
            print(f'NOT LOOKED AT, needs a GPU (--gpu): {name}')


def absence(server, targets):
    """The fault that Prometheus has no targets at all."""
    def set_targets(chosen):
        def call():
            server.configure(chosen)
            server.reload()
        return call
    return faults.Fault(None, [('AttndAbsent', {})], set_targets([]), set_targets(targets),
                        'a scrape job without targets')


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', type=pathlib.Path, default=HERE.parents[1] / 'build/release')
    parser.add_argument('--gpu', action='store_true')
    parser.add_argument('--faster', type=int, default=10)
    parser.add_argument('--keep', action='store_true')
    return parser.parse_args()


def give_up(*_):
    raise RuntimeError(f'it has taken longer than {MOST_SECONDS} s')


def main():
    arguments = parse()
    signal.signal(signal.SIGALRM, give_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    signal.alarm(MOST_SECONDS)
    folder = pathlib.Path(tempfile.mkdtemp(prefix='attnd_live_'))
    server = prometheus.Prometheus(folder, arguments.faster)
    scenery = None
    try:
        scenery = scene.Scene(arguments.build.resolve(), folder, server, arguments.gpu)
        for one in scenery.servers:
            one.start()
        targets = [one.instance for one in scenery.servers]
        server.configure(targets)
        server.start()
        processes.wait_for(
            'all servers to be scraped',
            lambda: len(server.values('up{job="attnd"} == 1')) == len(targets), server.process)
        scenery.faults.append(absence(server, targets))
        check = Check(scenery, server)
        check.main(arguments.gpu)
    finally:
        if scenery is not None:
            scenery.close()
        server.stop()
        if arguments.keep:
            print(f'logs and data are in {folder}')
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if check.misses:
        sys.exit(f'FAILED, {len(check.misses)} misses:\n  ' + '\n  '.join(check.misses))
    print('every alert fired and cleared, every panel has data')


if __name__ == '__main__':
    main()
