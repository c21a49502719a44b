#!/usr/bin/env python3
"""Runs a benchmark and keeps what it printed, with when, where and of which commit, as JSON.

  tests/bench/record.py NAME -- COMMAND...     writes tests/bench/history/DATE-NAME.json
      --folder=FOLDER    another folder
      --commit=COMMIT    where the sources are a copy without git

RESULTS.md says what the figures mean; the history has the runs themselves, one file each. It
ends with the command's exit status.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def said(*command):
    """What a command prints, or '' where it fails or is not there."""
    try:
        return subprocess.run(command, cwd=HERE, check=True, capture_output=True,
                              text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ''


def commit():
    """HEAD's, with '+' where tracked files differ from it; '' without git."""
    head = said('git', 'rev-parse', 'HEAD')
    return head + '+' if head and said('git', 'status', '--porcelain', '-uno') else head


def processor():
    try:
        names = re.findall(r'^model name\s*: (.*)$', pathlib.Path('/proc/cpuinfo').read_text(),
                           re.MULTILINE)
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def gpus():
    return said('nvidia-smi', '--query-gpu=name,driver_version', '--format=csv,noheader').splitlines()


def run(command):
    """(exit status, lines): shows them as they come."""
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors='replace') as process:
        for line in process.stdout:
            print(line, end='', flush=True)
            lines.append(line.rstrip('\n'))
    return process.returncode, lines


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('name')
    parser.add_argument('--folder', type=pathlib.Path, default=HERE / 'history')
    parser.add_argument('--commit')
    parser.add_argument('command', nargs='+')
    arguments = parser.parse_args()
    if not re.fullmatch(r'[a-z0-9_-]+', arguments.name):
        parser.error(f'NAME: {arguments.name!r} has more than a-z, 0-9, _ and -')
    load, start = os.getloadavg()[0], datetime.datetime.now(datetime.timezone.utc)
    record = {
        'name': arguments.name,
        'date': start.isoformat(timespec='seconds'),
        'commit': arguments.commit or commit(),
        'command': arguments.command,
        'processor': processor(),
        'cores': len(os.sched_getaffinity(0)),
        'load_before': round(load, 2),
        'gpus': gpus(),
    }
    try:
        record['exit_status'], record['output'] = run(arguments.command)
    except OSError as error:
        sys.exit(f'{arguments.command[0]}: {error.strerror}')
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / f'{start:%Y-%m-%d}-{arguments.name}.json'
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')
    print(f'kept in {path}', file=sys.stderr)
    sys.exit(record['exit_status'])


if __name__ == '__main__':
    main()
