"""The part `cpu` of the study: the reference algorithms and the CPU's own kernels, by
reference_study."""

import csv
import subprocess

NUMBERS = {'len': int, 'heads': int, 'dim': int, 'threads': int, 'seconds': float, 'flops': float,
           'heap_bytes': int, 'scratch_bytes': int}


def parse(text):
    """{'processor': its name, 'rows': one dict a line}"""
    lines = text.splitlines()
    rows = [{name: NUMBERS.get(name, str)(value) for name, value in row.items()}
            for row in csv.DictReader(lines[1:])]
    return {'processor': lines[0].removeprefix('# '), 'rows': rows}


def run(program, lens, rounds):
    """{'processor': ..., 'rows': ...}, or {'skipped': why}."""
    if program is None:
        return {'skipped': 'no program was given (--cpu)'}
    command = [program, '--lens=' + ','.join(map(str, lens)), f'--rounds={rounds}']
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
    except OSError as error:
        return {'skipped': str(error)}
    except subprocess.CalledProcessError as error:
        return {'skipped': f'{program}: {error.stderr.strip()[:200] or error.returncode}'}
    return parse(ended.stdout)
