#!/usr/bin/env python3
"""How many requests of which size a node bears.

    tests/bench/capacity.py --attnd=PROGRAM --attnload=PROGRAM [--device=cuda]
        [--seconds=3] [--json=FILE] [--transports=tcp,region]

Starts attnd on loopback and puts load on it, a shape and a way to travel at a time,
with ever more requests in flight until more bring less than 5 % more. Prints a table
in Markdown: what was borne, the latency there, and what was busy meanwhile, from
attnd's own metrics. Answers are checked against float64 as attnload does; a wrong one
or a call that failed ends the run with status 1.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

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


def start(arguments, folder):
    """attnd, its port and its admin address."""
    port_file = f'{folder}/port'
    log_path = f'{folder}/attnd.log'
    flags = [f'--device={arguments.device}', '--port=0', f'--port_file={port_file}',
             '--admin_address=127.0.0.1:0', f'--memory_limit={arguments.memory_limit}',
             f'--region_socket={folder}/region', f'--region_memory={arguments.region_memory}']
    with open(log_path, 'w', encoding='ascii') as log:
        server = subprocess.Popen([*arguments.attnd.split(), *flags], stderr=log)
    for _ in range(600):
        with open(log_path, encoding='ascii') as log:
            text = log.read()
        found = re.search(r'admin on (\S+),', text)
        if found and os.path.exists(port_file):
            with open(port_file, encoding='ascii') as file:
                return server, int(file.read()), found[1], text
        if server.poll() is not None:
            raise SystemExit(f'attnd ended:\n{text}')
        time.sleep(0.1)
    raise SystemExit(f'attnd did not start:\n{text}')


def metrics(admin):
    """Sums of attnd's metrics over their labels, by name."""
    sums = {}
    with urllib.request.urlopen(f'http://{admin}/metrics') as page:
        for line in page.read().decode().splitlines():
            if line.startswith('#'):
                continue
            name, value = line.rsplit(' ', 1)
            name = name.split('{')[0]
            sums[name] = sums.get(name, 0) + float(value)
    return sums


def measure(arguments, folder, port, admin, shape, transport, in_flight):
    """One level: what attnload says, and how busy attnd was."""
    out = f'{folder}/level.json'
    extra = []
    if transport == 'region':
        extra = ['--transport=region', f'--region_socket={folder}/region']
    connections = min(8, in_flight)
    before, begin = metrics(admin), time.monotonic()
    load = subprocess.Popen(
        [*arguments.attnload.split(), f'127.0.0.1:{port}', f'--shape={shape}',
         f'--concurrency={in_flight}', f'--connections={connections}', '--warmup=0.5',
         f'--duration={arguments.seconds}', f'--json={out}', *extra],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # The driver says how busy a GPU was of late, so it is asked in the middle.
    time.sleep(0.5 + arguments.seconds / 2)
    utilization = metrics(admin).get('attnd_gpu_utilization_ratio')
    output, _ = load.communicate()
    after, seconds = metrics(admin), time.monotonic() - begin
    if load.returncode != 0:
        raise SystemExit(f'{shape} by {transport}:\n{output}')
    with open(out, encoding='utf-8') as file:
        level = json.load(file)['levels'][0]
    if level['failed'] or level['answers_wrong']:
        raise SystemExit(f'{shape} by {transport}:\n{output}')

    def rate(name):
        return (after[name] - before[name]) / seconds

    return {
        'shape': shape, 'transport': transport, 'in_flight': in_flight,
        'requests_per_s': level['requests_per_s'],
        'gigabytes_per_s': level['gigabytes_per_s'], 'tflops': level['tflops'],
        'p50_ms': 1e3 * level['latency']['p50_s'], 'p99_ms': 1e3 * level['latency']['p99_s'],
        'server_mean_ms': {k: 1e3 * v for k, v in level['server_mean_s'].items()},
        'lanes_busy': rate('attnd_lane_busy_seconds_total') / after['attnd_lanes'],
        'server_cores': rate('process_cpu_seconds_total'),
        'gpu_utilization': utilization,
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
    parser.add_argument('--attnd', required=True)
    parser.add_argument('--attnload', required=True)
    parser.add_argument('--device', default='auto')
    parser.add_argument('--memory_limit', default='16GiB')
    parser.add_argument('--region_memory', default='16GiB')
    parser.add_argument('--seconds', type=float, default=3)
    parser.add_argument('--transports', default='tcp,region')
    parser.add_argument('--shapes', nargs='*', default=SHAPES)
    parser.add_argument('--json')
    arguments = parser.parse_args()
    levels = []
    with tempfile.TemporaryDirectory() as folder:
        server, port, admin, log = start(arguments, folder)
        try:
            print(re.search(r'device (.*)', log)[1])
            print('| shape | by | requests/s | in flight | p50, p99 ms | GB/s | TFLOP/s | lanes '
                  'busy | attnd\'s cores | GPU |\n|---|---|---|---|---|---|---|---|---|---|')
            for shape in arguments.shapes:
                for transport in arguments.transports.split(','):
                    level = saturate(arguments, folder, port, admin, shape, transport)
                    levels.append(level)
                    gpu = level['gpu_utilization']
                    print(f"| `{shape}` | {transport} | {level['requests_per_s']:.0f} | "
                          f"{level['in_flight']} | {level['p50_ms']:.2f}, {level['p99_ms']:.2f} | "
                          f"{level['gigabytes_per_s']:.1f} | {level['tflops']:.2f} | "
                          f"{level['lanes_busy']:.0%} | {level['server_cores']:.1f} | "
                          f"{'' if gpu is None else f'{gpu:.0%}'} |", flush=True)
        finally:
            server.terminate()
            server.wait()
    if arguments.json:
        with open(arguments.json, 'w', encoding='utf-8') as file:
            json.dump(levels, file, indent=1)


if __name__ == '__main__':
    sys.exit(main())
