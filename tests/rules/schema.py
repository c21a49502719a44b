#!/usr/bin/env python3
"""Checks proto/ by buf. Usage: schema.py ROOT [--record=VERSION]

The schema keeps the style of proto/buf.yaml, and nothing in it breaks clients
of the last release. proto/releases/ has the schema of every release, as buf
builds it: VERSION.binpb, a FileDescriptorSet. Prints one line for every fault,
and fails if there is one.

--record=VERSION keeps the schema as that of VERSION, one that CHANGELOG.md has
a heading for. The record of a version is final once the heading has its date.

buf is one of the modules of tests/python/requirements.txt, in ROOT/build/venv.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

RELEASES = 'proto/releases'
# "## 0.1.0 - unreleased", or a date in place of that.
HEADING = re.compile(r'^## (\d+\.\d+\.\d+) - (unreleased|\d{4}-\d\d-\d\d)$', re.MULTILINE)


def find_buf(root, required=False):
    """buf of the tree at `root`. Where it is missing this process ends, and says so."""
    buf = root / 'build/venv/bin/buf'
    if not buf.exists():
        required = required or bool(os.environ.get('ATTND_REQUIRE_TOOLS'))
        print(f'{"FAILED" if required else "SKIPPED"}: there is no {buf}; '
              'tests/python/venv.sh installs it')
        sys.exit(1 if required else 0)
    return buf


def order(version):
    return tuple(int(number) for number in version.split('.'))


def versions(root):
    """Every version that CHANGELOG.md knows, and whether it has been released."""
    found = HEADING.findall((root / 'CHANGELOG.md').read_text())
    return {version: date != 'unreleased' for version, date in found}


def records(root):
    """The versions whose schema was recorded, oldest first."""
    return sorted((path.stem for path in (root / RELEASES).glob('*.binpb')), key=order)


def run(buf, root, *arguments):
    """The lines that buf has to say, none if all is well."""
    done = subprocess.run([buf, *arguments], cwd=root, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode == 0:
        return []
    return done.stdout.splitlines() or [f'buf {arguments[0]} ended with {done.returncode}']


def faults(buf, root):
    """What is wrong with the schema in the tree at `root`, a line each."""
    yield from run(buf, root, 'lint', 'proto')
    recorded = records(root)
    for version, released in versions(root).items():
        if released and version not in recorded:
            yield f'{RELEASES}: {version} has been released, and its schema was not recorded'
    if not recorded:
        yield f'{RELEASES}: there is no schema to compare with'
        return
    last = f'{RELEASES}/{recorded[-1]}.binpb'
    for line in run(buf, root, 'breaking', 'proto', '--against', last):
        yield f'{line} (breaks clients of {recorded[-1]})'


def record(buf, root, version):
    """Writes the schema as that of `version`, or says why not."""
    known = versions(root)
    path = f'{RELEASES}/{version}.binpb'
    if version not in known:
        return [f'CHANGELOG.md has no heading for {version}']
    if known[version] and (root / path).exists():
        return [f'{version} has been released: its schema stays as it was']
    # Without comments, which no comparison looks at.
    return run(buf, root, 'build', 'proto', '--as-file-descriptor-set',
               '--exclude-source-info', '-o', path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('root', type=pathlib.Path)
    parser.add_argument('--record', metavar='VERSION')
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    buf = find_buf(root, required=bool(arguments.record))
    if arguments.record:
        found = record(buf, root, arguments.record)
    else:
        found = list(faults(buf, root))
    print('\n'.join(found) or ('recorded' if arguments.record
                              else 'the schema breaks neither style nor clients'))
    sys.exit(1 if found else 0)


if __name__ == '__main__':
    main()
