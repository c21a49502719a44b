#!/usr/bin/env python3
"""Faults under load: each case makes one, to real programs, and looks at what it leaves.

  tests/faults/faults_test.py                    every case, of build/release
  tests/faults/faults_test.py ClientKilled ...   these
      --list          their names, a line each
      --build=FOLDER  another build
      --slow=4        of a sanitizer: waits longer, and sends less

Every call must be answered, and right, or end with a code that explains the fault; nothing may
hang; clients that have no part in the fault must not notice it; and afterwards the server must
hold no more than before. README.md has the faults in a table. A case that this machine cannot
make says "SKIPPED: " and why.
"""

import argparse
import os
import sys
import time

import client_cases  # noqa: F401
import control_cases  # noqa: F401
import link_cases  # noqa: F401
import network_cases  # noqa: F401
import resource_cases  # noqa: F401
import server_cases  # noqa: F401
from bench import ROOT, Bench, Failed, Skipped
from cases import CASES

OWN_NAMESPACES = 'ATTND_FAULTS_NAMESPACES'


def in_namespaces(kinds):
    """Runs this process again in namespaces of its own, as root of them."""
    command = ['unshare', *(f'--{kind}' for kind in kinds)]
    if os.geteuid() != 0:
        command += ['--user', '--map-root-user']
    # A mount is seen in this namespace alone, unless shared.
    os.environ[OWN_NAMESPACES] = '1'
    os.execvp(command[0], [*command, sys.executable, *sys.argv])


def run(name, arguments):
    """'passed', 'skipped' or 'FAILED'."""
    case = CASES[name]
    if case.namespaces and OWN_NAMESPACES not in os.environ:
        # In a process of its own, so that other cases stay where they are.
        child = os.fork()
        if child == 0:
            sys.argv = [sys.argv[0], name, f'--build={arguments.build}', f'--slow={arguments.slow}']
            in_namespaces(case.namespaces)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return {0: 'passed', SKIPPED: 'skipped'}.get(status, 'FAILED')
    print(f'--- {name}: {case.__doc__.splitlines()[0]}', flush=True)
    begun = time.monotonic()
    try:
        with Bench(arguments.build, arguments.slow) as bench:
            case(bench)
    except Skipped as why:
        print(f'SKIPPED: {name}: {why}')
        return 'skipped'
    except Failed as failure:
        print(f'FAILED: {name}: {failure}')
        return 'FAILED'
    print(f'passed: {name} in {time.monotonic() - begun:.1f} s', flush=True)
    return 'passed'


SKIPPED = 77


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('cases', nargs='*', metavar='CASE')
    parser.add_argument('--list', action='store_true')
    parser.add_argument('--build', default=ROOT / 'build' / 'release')
    parser.add_argument('--slow', type=int, default=1)
    arguments = parser.parse_args()
    if arguments.list:
        print('\n'.join(CASES))
        return 0
    unknown = set(arguments.cases) - set(CASES)
    if unknown:
        parser.error(f'no such case: {", ".join(sorted(unknown))}')
    verdicts = {name: run(name, arguments) for name in arguments.cases or CASES}
    if len(verdicts) > 1:
        for name, verdict in verdicts.items():
            print(f'{verdict:8} {name}')
    if 'FAILED' in verdicts.values():
        return 1
    return SKIPPED if set(verdicts.values()) == {'skipped'} else 0


if __name__ == '__main__':
    sys.exit(main())
