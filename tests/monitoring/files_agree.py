#!/usr/bin/env python3
"""Whether the files that watch attnd agree with each other. Prints a line for whatever does
not, and fails if there is one.

  rules       every alert has what people need, a section in docs/alerts.md and a test
  dashboard   it is what dashboard.py writes, panels do not overlap, and every metric of
              docs/metrics.md is on it
  both        use no metric that docs/metrics.md does not have, and docs/alerts.md neither
"""

import itertools
import json
import pathlib
import re
import subprocess
import sys

import metrics_table
import panels

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / 'deploy/monitoring/prometheus/alerts.yml'
RULE_TESTS = ROOT / 'tests/monitoring/alerts_test.yml'
GUIDE = ROOT / 'docs/alerts.md'
GENERATOR = ROOT / 'deploy/monitoring/dashboard.py'

METRIC = re.compile(r'\b(?:attnd|process)_[a-z_]+')
# What a histogram's name has behind it.
PARTS = re.compile('_(bucket|sum|count)$')


def alerts(rules):
    """{name: its part of the file}."""
    parts = re.split(r'^ +- alert: (\w+)$', rules, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def used(text):
    """The metrics that a text names."""
    return {PARTS.sub('', name) for name in METRIC.findall(text)}


def faults_of_rules(rules, guide, tests):
    found = alerts(rules)
    sections = re.findall(r'^## (Attnd\w+)$', guide, re.MULTILINE)
    for name, text in found.items():
        severity = re.search(r'severity: (\w+)', text)
        if not severity or severity[1] not in ('critical', 'warning'):
            yield f'{name} is neither critical nor a warning'
        elif (severity[1] == 'critical') != (f'[{name}](#{name.lower()})'
                                             in critical_row(guide)):
            yield f'{name} is {severity[1]}, and docs/alerts.md says otherwise'
        for part in ('expr', 'summary', 'description'):
            if not re.search(rf'^ +{part}: \S', text, re.MULTILINE):
                yield f'{name} has no {part}'
        if f'runbook_url: docs/alerts.md#{name.lower()}\n' not in text:
            yield f'{name} does not lead to docs/alerts.md#{name.lower()}'
        if f'alertname="{name}", alertstate="firing", severity=' not in tests:
            yield f'{name} has no test in which it fires'
    if sections != list(found):
        yield f'docs/alerts.md has other sections, or another order: {sections}'


def critical_row(guide):
    rows = [line for line in guide.splitlines() if line.startswith('| critical |')]
    return rows[0] if rows else ''


def faults_of_dashboard(dashboard, documented):
    boxes = {}
    ids = [panel['id'] for panel in dashboard['panels']]
    if len(set(ids)) != len(ids):
        yield 'two panels have the same id'
    for panel in dashboard['panels']:
        place, name = panel['gridPos'], f'panel "{panel["title"]}"'
        if place['x'] + place['w'] > 24:
            yield f'{name} reaches beyond the 24 columns'
        for x, y in itertools.product(range(place['x'], place['x'] + place['w']),
                                      range(place['y'], place['y'] + place['h'])):
            if (x, y) in boxes:
                yield f'{name} covers a part of {boxes[x, y]}'
                break
            boxes[x, y] = name
        for target in panel.get('targets', []):
            if '$instance' not in target['expr']:
                yield f'{name} shows servers that were not chosen: {target["expr"]}'
    shown = used(json.dumps(dashboard))
    for name in sorted(documented - shown):
        yield f'{name} is not on the dashboard'


def faults_of_names(texts, documented):
    for file, text in texts.items():
        for name in sorted(used(text) - documented):
            yield f'{file} uses {name}, which docs/metrics.md does not have'


def main():
    rules = RULES.read_text()
    documented = set(metrics_table.read(metrics_table.PAGE.read_text()))
    dashboard = panels.DASHBOARD.read_text()
    wrong = [*faults_of_rules(rules, GUIDE.read_text(), RULE_TESTS.read_text()),
             *faults_of_dashboard(json.loads(dashboard), documented),
             *faults_of_names({'alerts.yml': rules, 'attnd.json': dashboard,
                               'docs/alerts.md': GUIDE.read_text()}, documented)]
    if subprocess.run([sys.executable, GENERATOR, '--check'], check=False).returncode:
        wrong.append('dashboard.py would write another attnd.json')
    print('\n'.join(wrong) or f'{len(alerts(rules))} alerts and {len(documented)} metrics agree')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
