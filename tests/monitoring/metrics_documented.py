#!/usr/bin/env python3
"""Whether docs/metrics.md has every metric of a running attnd, and none besides.

  tests/monitoring/metrics_documented.py [--build=build/release] [--gpu]

Asks two servers: one that has all that metrics depend on, a certificate and a token file, and
one that has nothing, where the metrics that the page has under a condition must be absent. With
--gpu the first computes on one. Compares names, types and labels, and of
attnd_refused_calls_total the reasons as well.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

import metrics_table
import processes
from processes import attnd_process

REASON = re.compile(r'^\| `(\w+)` \|')


def scraped(text):
    """{name: (type, labels)} of what has a series on a page in Prometheus' text format."""
    kinds = attnd_process.kinds(text)
    labels = collections.defaultdict(set)
    for name, found, _ in attnd_process.samples(text):
        if name not in kinds:
            name = re.sub('_(bucket|sum|count)$', '', name)
        labels[name] |= found.keys() - {'le'}
    return {name: (kinds.get(name, 'untyped'), frozenset(found)) for name, found in labels.items()}


def reasons(text):
    """Of attnd_refused_calls_total, in a page of a server."""
    return {labels['reason'] for name, labels, _ in attnd_process.samples(text)
            if name == 'attnd_refused_calls_total'}


def documented_reasons(page):
    below = page[page.index('## Why a call is refused'):]
    return {row[1] for row in map(REASON.match, below.splitlines()) if row}


def faults(page, text, conditions):
    """What is wrong with a server's page, a line each, where these conditions hold."""
    table, found = metrics_table.read(page), scraped(text)
    wanted = {name: row[:2] for name, row in table.items()
              if not row[2] or row[2] in conditions}
    for name in sorted(found.keys() - wanted.keys()):
        yield (f'{name} is there without its condition: {table[name][2]}' if name in table
               else f'{name} is not in docs/metrics.md')
    for name in sorted(wanted.keys() - found.keys()):
        yield f'{name} is in docs/metrics.md, and the server does not have it'
    for name in sorted(wanted.keys() & found.keys()):
        for what, ours, theirs in zip(('type', 'labels'), wanted[name], found[name]):
            if ours != theirs:
                ours, theirs = (value if what == 'type' else sorted(value) or 'none'
                                for value in (ours, theirs))
                yield f'{name}: the {what} in docs/metrics.md: {ours}; of a server: {theirs}'
    for reason in sorted(reasons(text) ^ documented_reasons(page)):
        yield f'attnd_refused_calls_total: the reason {reason} is only in one of the two'


def page_of(server):
    try:
        server.start()
        return server.metrics()
    finally:
        server.stop()


def bare(build, folder):
    return processes.Server('bare', build / 'server/attnd', folder,
                            ['--device=cpu', '--memory_limit=128MiB'])


def full(build, folder, gpu):
    subprocess.run([build / 'tests/make_certificate', folder / 'server', f'--ip={processes.HOST}'],
                   check=True)
    tokens = folder / 'tokens'
    tokens.write_text(f'someone sha256:{"5" * 64}\n')
    return processes.Server(
        'full', build / 'server/attnd', folder,
        [f'--device={"cuda" if gpu else "cpu"}', '--memory_limit=128MiB',
         f'--tls_cert={folder}/server.pem', f'--tls_key={folder}/server.key',
         f'--token_file={tokens}'])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2] / 'build/release')
    parser.add_argument('--gpu', action='store_true')
    arguments = parser.parse_args()
    page, build = metrics_table.PAGE.read_text(), arguments.build.resolve()
    conditions = {'with `--tls_cert`', 'with `--token_file`'}
    if arguments.gpu:
        conditions.add('GPU')
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = page_of(full(build, folder, arguments.gpu))
        wrong = list(faults(page, text, conditions))
        wrong += [f'{line} (of a server without anything)'
                  for line in faults(page, page_of(bare(build, folder)), set())]
    print('\n'.join(wrong) or f'{len(scraped(text))} metrics, all documented')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
