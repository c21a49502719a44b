#!/usr/bin/env python3
"""How many requests of which size a node bears.

    tests/bench/capacity.py [--attnd=PROGRAM --attnload=PROGRAM] [--device=cuda]
        [--seconds=3] [--json=FILE] [--transports=tcp,region] [--shapes SHAPE...]

Starts attnd on loopback and puts load on it, a shape and a way to travel at a time,
with ever more requests in flight until more bring less than 5 % more. Prints a table
in Markdown: what was borne, the latency there, and what was busy meanwhile, from
attnd's own metrics at both ends of the measured time. Answers are checked against
float64 as attnload does; a wrong one or a call that failed ends the run with status 1.
Programs are those of build/release, unless others are named, which may be behind a
command like taskset.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / 'tests' / 'process'))
import attnd_process  # noqa: E402

# Decode steps of one and of many sequences, a short and a long prompt, training.
SHAPES = [
    'forward:bf16:s1/4096:h32/8:d128',
    'forward:bf16:b16:s1/4096:h32/8:d128',
    'forward:bf16:s512:h32/8:d128:causal',
    'forward:bf16:s4096:h32/8:d128:causal',
    'forward:bf16:s16384:h32/8:d128:causal',
    'backward:bf16:s4096:h32/8:d128:causal',
]
IN_FLIGHT = [1, 2, 4, 8, 16, 32, 64]
GAIN = 1.05  # less is no reason to have more requests in flight
WARM_UP = 0.5  # seconds that attnload does not count
# What says that attnload's first call is there, or has been.
UNDER_WAY = ('attnd_upload_bytes', 'attnd_queue_requests', 'attnd_running_requests')
WORK_DONE = 'attnd_floating_point_operations_total'
MARGIN = 0.2  # seconds before the end of the measured time, in which a busy attnd answers


def start(arguments, folder):
    """attnd, sharing memory at folder/region."""
    *prefix, program = arguments.attnd.split()
    return attnd_process.Attnd(
        program, f'--device={arguments.device}', f'--memory_limit={arguments.memory_limit}',
        f'--region_socket={folder}/region', f'--region_memory={arguments.region_memory}',
        prefix=prefix, log=f'{folder}/attnd.log')


def look(server):
    """(when, sums of attnd's metrics over their labels by name)."""
    asked = time.monotonic()
    sums = attnd_process.totals(server.metrics())
    return (asked + time.monotonic()) / 2, sums


def busy_within(server, idle, load, seconds):
    """Two looks at attnd, both within the `seconds` that attnload measures; `idle` is one before.

    Before these it makes data, which takes seconds for large shapes, leases memory and warms up,
    and after them it waits for answers and checks them. None of that is what attnd was busy with,
    and an average over it would be too low.
    """
    quiet, before = idle
    began = quiet
    while load.poll() is None:
        began, sums = look(server)
        if sums[WORK_DONE] > before[WORK_DONE] or any(sums[name] > 0 for name in UNDER_WAY):
            break
        quiet = began
        time.sleep(0.02)
    # The first call came between `quiet` and `began`.
    time.sleep(max(0, began + WARM_UP - time.monotonic()))
    first = look(server)
    time.sleep(max(0, quiet + WARM_UP + seconds - MARGIN - time.monotonic()))
    return first, look(server)


def measure(arguments, folder, server, shape, transport, in_flight):
    """One level: what attnload says, and how busy attnd was."""
    out = f'{folder}/level.json'
    extra = []
    if transport == 'region':
        extra = ['--transport=region', f'--region_socket={folder}/region']
    connections = min(8, in_flight)
    idle = look(server)
    load = subprocess.Popen(
        [*arguments.attnload.split(), server.target, f'--shape={shape}',
         f'--concurrency={in_flight}', f'--connections={connections}', f'--warmup={WARM_UP}',
         f'--duration={arguments.seconds}', f'--json={out}', *extra],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    (begin, before), (end, after) = busy_within(server, idle, load, arguments.seconds)
    output, _ = load.communicate()
    if load.returncode != 0:
        raise SystemExit(f'{shape} by {transport}:\n{output}')
    with open(out, encoding='utf-8') as file:
        level = json.load(file)['levels'][0]
    if level['failed'] or level['answers_wrong']:
        raise SystemExit(f'{shape} by {transport}:\n{output}')

    def rate(name):
        return (after[name] - before[name]) / (end - begin)

    return {
        'shape': shape, 'transport': transport, 'in_flight': in_flight,
        'requests_per_s': level['requests_per_s'],
        'gigabytes_per_s': level['gigabytes_per_s'], 'tflops': level['tflops'],
        'p50_ms': 1e3 * level['latency']['p50_s'], 'p99_ms': 1e3 * level['latency']['p99_s'],
        'server_mean_ms': {k: 1e3 * v for k, v in level['server_mean_s'].items()},
        'looked_s': end - begin,
        'lanes_busy': rate('attnd_lane_busy_seconds_total') / after['attnd_lanes'],
        'server_cores': rate('process_cpu_seconds_total'),
        'gpu_utilization': after.get('attnd_gpu_utilization_ratio'),  # of late, says the driver
    }


def saturate(*where):
    """The level from which more requests in flight bring less than GAIN more."""
    best = None
    for in_flight in IN_FLIGHT:
        level = measure(*where, in_flight)
        if best and level['requests_per_s'] < GAIN * best['requests_per_s']:
            break
        best = level
    return best


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    build = ROOT / 'build' / 'release'
    parser.add_argument('--attnd', default=str(build / 'server' / 'attnd'))
    parser.add_argument('--attnload', default=str(build / 'client' / 'attnload' / 'attnload'))
    parser.add_argument('--device', default='auto')
    parser.add_argument('--memory_limit', default='16GiB')
    parser.add_argument('--region_memory', default='16GiB')
    parser.add_argument('--seconds', type=float, default=3)
    parser.add_argument('--transports', default='tcp,region')
    parser.add_argument('--shapes', nargs='*', default=SHAPES)
    parser.add_argument('--json')
    arguments = parser.parse_args()
    if arguments.seconds < 1:
        parser.error('--seconds: less than 1 leaves no time to look at attnd')
    levels = []
    with tempfile.TemporaryDirectory() as folder:
        server = start(arguments, folder)
        try:
            print(re.search(r'device (.*)', server.log())[1])
            print('| shape | by | requests/s | in flight | p50, p99 ms | GB/s | TFLOP/s | lanes '
                  'busy | attnd\'s cores | GPU |\n|---|---|---|---|---|---|---|---|---|---|')
            for shape in arguments.shapes:
                for transport in arguments.transports.split(','):
                    level = saturate(arguments, folder, server, shape, transport)
                    levels.append(level)
                    gpu = level['gpu_utilization']
                    print(f"| `{shape}` | {transport} | {level['requests_per_s']:.0f} | "
                          f"{level['in_flight']} | {level['p50_ms']:.2f}, {level['p99_ms']:.2f} | "
                          f"{level['gigabytes_per_s']:.1f} | {level['tflops']:.2f} | "
                          f"{level['lanes_busy']:.0%} | {level['server_cores']:.1f} | "
                          f"{'' if gpu is None else f'{gpu:.0%}'} |", flush=True)
        finally:
            server.end()
    if arguments.json:
        with open(arguments.json, 'w', encoding='utf-8') as file:
            json.dump(levels, file, indent=1)


if __name__ == '__main__':
    sys.exit(main())
