"""The part `dram` of the study: bytes of device memory that go over its pins, as ncu counts them."""

import csv
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict

import cases
import sides

READ, WRITE = 'dram__bytes_read.sum', 'dram__bytes_write.sum'
MARKER = 'erfinv'  # in the name of the kernel before each case: see dram_probe.py
TIMEOUT_S = 400
# [heads, len, dim] of PyTorch's operations one by one.
EAGER_SHAPE = (8, 4096, 128)


def shapes():
    """Unmasked, as the model counts them: the fused-kernel study's, and a long one."""
    return [cases.baseline(), cases.Case(8192, 8192, 16, 16)]


def wanted(of):
    """The cases for dram_probe.py."""
    found = [{'what': 'eager', 'direction': direction, 'shape': EAGER_SHAPE}
             for direction in sides.DIRECTIONS]
    for case in shapes():
        for direction in sides.DIRECTIONS:
            found += [{'what': side, 'direction': direction, 'shape': asdict(case)}
                      for side in of if sides.algorithm(side, direction)]
    return found


def command(ncu, log, library, ran):
    probe = pathlib.Path(__file__).resolve().parent / 'dram_probe.py'
    return [ncu, '--profile-from-start', 'off', '--clock-control', 'none', '--cache-control', 'none',
            '--metrics', f'{READ},{WRITE}', '--csv', '--page', 'raw', '--print-units', 'base',
            '--log-file', log, sys.executable, '-B', str(probe), library, ran]


def kernels(text):
    """[(name, bytes read, bytes written)] of what ncu printed, in order. It prints a line for each
    kernel, or one for each number of a kernel; other lines do not begin with a quote."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    number = lambda text: float(text.replace(',', ''))
    found = {}
    for row in csv.DictReader(lines):
        if not row['ID']:
            continue  # the units
        numbers = found.setdefault(row['ID'], {'name': row['Kernel Name']})
        if 'Metric Name' in row:
            if row['Metric Name'] in (READ, WRITE):
                numbers[row['Metric Name']] = number(row['Metric Value'])
        else:
            numbers.update({metric: number(row[metric]) for metric in (READ, WRITE)})
    return [(k['name'], k[READ], k[WRITE]) for k in found.values()]


def sums(ran, launched):
    """The cases with what their kernels read and wrote, launched after the case's marker."""
    rows = []
    for name, read, written in launched:
        if MARKER in name:
            rows.append({**ran[len(rows)], 'kernels': 0, 'read_bytes': 0, 'write_bytes': 0})
        elif rows:
            rows[-1]['kernels'] += 1
            rows[-1]['read_bytes'] += read
            rows[-1]['write_bytes'] += written
    if len(rows) != len(ran):
        raise ValueError(f'{len(ran)} cases ran, and ncu saw {len(rows)} of them')
    return rows


def _why(text):
    """The first error that ncu speaks of, or its last words."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if 'ERROR' in line or 'rror:' in line]
    return (errors or lines[-1:] or ['it said nothing'])[0].replace('==ERROR==', '').strip()[:200]


def run(library, of):
    """{'rows': ...}, or {'skipped': why}."""
    ncu = shutil.which('ncu')
    if ncu is None:
        return {'skipped': 'there is no ncu on this machine'}
    with tempfile.TemporaryDirectory() as folder:
        log, ran_path = (pathlib.Path(folder) / name for name in ('ncu.csv', 'ran.json'))
        try:
            ended = subprocess.run(command(ncu, str(log), str(library), str(ran_path)),
                                   input=json.dumps(wanted(of)), capture_output=True, text=True,
                                   timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return {'skipped': f'ncu was not done within {TIMEOUT_S} s'}
        text = log.read_text(encoding='utf-8') if log.exists() else ''
        if ended.returncode != 0 or not ran_path.exists():
            return {'skipped': 'ncu: ' + _why(text + '\n' + ended.stdout + '\n' + ended.stderr)}
        ran = json.loads(ran_path.read_text(encoding='utf-8'))
    try:
        return {'rows': sums(ran, kernels(text)),
                'notes': [line for line in ended.stdout.splitlines() if line.startswith('{')]}
    except (KeyError, IndexError, ValueError) as error:
        return {'skipped': f'ncu: {error}; {_why(text)}'}
