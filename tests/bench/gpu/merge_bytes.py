#!/usr/bin/env python3
"""Whether a step of a ring reads and writes its state once, as Nsight Compute counts it.

  merge_bytes.py --program=PROGRAM [--ncu=ncu] [--save=FILE] [-- --len=N ...]
  merge_bytes.py --csv=FILE    judges what such a run has printed, which --save has kept

Runs merge_bytes with the arguments under Nsight Compute, on one GPU. Each of its launches must run
the same kernels as the plain one, in the same order: so no other pass goes over a state. And the
bytes that its threads read and write beyond the plain one's must be those that it says it should,
but for a twentieth. Reads count where they miss the L1 cache (merge_bytes.cc says why); `asked` is
all that threads ask for, descriptors included. Exits with 1 if a launch moves more or less.
"""

import argparse
import csv
import dataclasses
import json
import pathlib
import subprocess
import sys

LAUNCHES = ('plain', 'first', 'middle', 'last')
ASKED = 'l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum'
MISSED = 'l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_miss.sum'
WRITTEN = 'l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum'
TIME = 'gpu__time_duration.sum'
METRICS = (ASKED, MISSED, WRITTEN, TIME)
# Bytes, or seconds.
UNITS = {'byte': 1, 'Kbyte': 1e3, 'Mbyte': 1e6, 'Gbyte': 1e9, 'sector': 32, 'nsecond': 1e-9,
         'ns': 1e-9, 'usecond': 1e-6, 'us': 1e-6, 'msecond': 1e-3, 'ms': 1e-3, 'second': 1, 's': 1}
# What is measured may be so much more or less than what is expected, in parts of that. Where
# nothing is expected, in parts of a state.
TOLERANCE = 0.05
TIMEOUT_SECONDS = 540
MIB = 1 << 20


class Unreadable(Exception):
    """The text is not what a run prints."""


@dataclasses.dataclass
class Kernel:
    name: str
    values: dict = dataclasses.field(default_factory=dict)  # by metric, in bytes or seconds


@dataclasses.dataclass
class Run:
    launches: list  # what the program says of each, in order
    results: dict  # what it says of their results
    kernels: list


def objects(lines, name):
    """The objects `name` that the program has printed, be it behind something of ncu's."""
    start = f'{{"{name}": '
    return [json.JSONDecoder().raw_decode(line, line.index(start))[0][name]
            for line in lines if start in line]


def value(row):
    """A metric's value, in bytes or seconds. Integers have separators of thousands."""
    text, unit = row['Metric Value'], row['Metric Unit']
    try:
        return float(text.replace(',', '')) * UNITS[unit]
    except (ValueError, KeyError):
        raise Unreadable(f'{row["Metric Name"]} is {text!r}, in {unit!r}') from None


def read_kernels(lines):
    """What ran, in order. The table has a row for each metric of each kernel."""
    kernels = {}
    for row in csv.DictReader(lines):
        if not row['ID'].isdigit():
            continue  # a line after the table
        kernel = kernels.setdefault(int(row['ID']), Kernel(row['Kernel Name']))
        if row['Metric Name'] in METRICS:
            kernel.values[row['Metric Name']] = value(row)
    kernels = [kernels[number] for number in sorted(kernels)]
    for kernel in kernels:
        missing = set(METRICS) - set(kernel.values)
        if missing:
            raise Unreadable(f'{kernel.name} has no {", ".join(sorted(missing))}')
    return kernels


def parse(text):
    lines = text.splitlines()
    table = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if table is None:
        raise Unreadable('there is no table')
    launches = objects(lines[:table], 'merge_bytes')
    results = objects(lines[:table], 'merge_bytes_results')
    if tuple(launch['launch'] for launch in launches) != LAUNCHES or len(results) != 1:
        raise Unreadable('the program has not run to its end')
    return Run(launches, results[0], read_kernels(lines[table:]))


def by_launch(kernels):
    """The kernels of each launch, which are as many."""
    if not kernels or len(kernels) % len(LAUNCHES) != 0:
        raise Unreadable(f'{len(kernels)} kernels are not as many for each launch: ' +
                         ', '.join(kernel.name for kernel in kernels))
    each = len(kernels) // len(LAUNCHES)
    return [kernels[i:i + each] for i in range(0, len(kernels), each)]


def total(kernels, metric):
    return sum(kernel.values[metric] for kernel in kernels)


def is_held(measured, expected, state):
    return abs(measured - expected) <= TOLERANCE * (expected or state)


def columns(measured, expected):
    ratio = f'{measured / expected:.3f}' if expected else '-'
    return f'{measured / MIB:9.2f} {expected / MIB:9.2f} {ratio:>6}'


def judge(run):
    """Lines of a table, and whether all is as it should be."""
    state = max(launch['read'] for launch in run.launches)
    try:
        groups = by_launch(run.kernels)
    except Unreadable as error:
        return [f'MISSED: {error}'], False
    plain = groups[0]
    lines = ['MiB beyond the plain launch, of threads\' loads and stores', '',
             f'{"launch":7} {"ms":>7} {"asked":>9} {"read":>9} {"expected":>9} {"ratio":>6} '
             f'{"written":>9} {"expected":>9} {"ratio":>6}  held?']
    held = True
    for launch, kernels in zip(run.launches, groups):
        asked, read, written = (total(kernels, metric) - total(plain, metric)
                                for metric in (ASKED, MISSED, WRITTEN))
        good = is_held(read, launch['read'], state) and is_held(written, launch['written'], state)
        held &= good
        lines.append(f'{launch["launch"]:7} {total(kernels, TIME) * 1e3:7.3f} {asked / MIB:9.2f} '
                     f'{columns(read, launch["read"])} {columns(written, launch["written"])}  '
                     f'{"yes" if good else "MISSED"}')
    names = [[kernel.name for kernel in kernels] for kernels in groups]
    alike = all(these == names[0] for these in names)
    right = run.results['right']
    lines += ['', f'no other pass: {len(plain)} kernels each' if alike else
              f'MISSED: other kernels: {names}',
              f'results: O differs by {run.results["o"]}, LSE by {run.results["lse"]}' +
              ('' if right else ', WRONG')]
    return lines, held and alike and right


def measure(options):
    """What the program and ncu print; the process ends where they fail."""
    command = [options.ncu, '--csv', '--print-units', 'base', '--metrics', ','.join(METRICS),
               options.program, *options.arguments]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False,
                              timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f'{error}')
    if options.save:
        pathlib.Path(options.save).write_text(done.stdout)
    if done.returncode != 0:
        sys.exit(f'{done.stdout}{" ".join(command)}: exited with {done.returncode}')
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--ncu', default='ncu')
    parser.add_argument('--save', metavar='FILE', help='keeps what was printed, for --csv')
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument('--program')
    what.add_argument('--csv', metavar='FILE')
    parser.add_argument('arguments', nargs='*', help='for the program, behind --')
    options = parser.parse_args()
    text = pathlib.Path(options.csv).read_text() if options.csv else measure(options)
    try:
        lines, held = judge(parse(text))
    except Unreadable as error:
        sys.exit(f'{text}{error}')
    print('\n'.join(lines))
    return 0 if held else 1


if __name__ == '__main__':
    sys.exit(main())
