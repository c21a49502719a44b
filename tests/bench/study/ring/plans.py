"""The part `plans` of the ring study: what plans of N devices do, step by step."""

import json
import subprocess

from ring import published

KINDS = ('gather', 'ring', 'striped', 'zigzag')
GO_ROUND = KINDS[1:]


def run_program(program, what, environment=None, **flags):
    """The objects that ring_study prints. OSError, or RuntimeError: why it failed."""
    flags = [f'--{name}={",".join(map(str, value)) if isinstance(value, (list, tuple)) else value}'
             for name, value in flags.items()]
    ended = subprocess.run([program, what, *flags], capture_output=True, text=True, check=False,
                           env=environment)
    if ended.returncode != 0:
        why = ended.stderr.strip().splitlines()
        raise RuntimeError(why[-1][:200] if why else f'it ended with {ended.returncode}')
    rows = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{')]
    if rows and 'skipped' in rows[0]:
        raise RuntimeError(rows[0]['skipped'])
    return rows


def schedule(steps, flops=published.MEASURED['flops'], link=published.MEASURED['link'],
             latency=published.MEASURED['latency']):
    """[(begin, end)] in seconds of steps as ring_study traces them: each begins when those that it
    waits for are over, and its device does nothing else of its kind."""
    free, times = {}, []
    for step in steps:
        begin = max((times[i][1] for i in step['after']), default=0)
        seconds = {'compute': step.get('flops', 0) / flops,
                   'pull': latency + step.get('bytes', 0) / link}.get(step['do'])
        if seconds is None:  # inputs are there, and where results go is not looked at
            times.append((begin, begin))
            continue
        queue = step['device'], step['do']
        begin = max(begin, free.get(queue, 0))
        free[queue] = begin + seconds
        times.append((begin, begin + seconds))
    return times


def ring_step(device, block, devices):
    """When it has the block, which goes from each device to the next."""
    return (device - block) % devices


def summary(trace):
    """What is kept of a trace. Of gather a compute's step is how many came before it."""
    devices, goes_round = trace['devices'], trace['ran_as'] in GO_ROUND
    kept = {key: trace[key] for key in ('plan', 'ran_as', 'op', 'devices', 'batch', 'len', 'heads',
                                        'dim', 'causal', 'rows', 'columns', 'cost')}
    kept['computes'], kept['pulls'] = [], []
    before = [0] * devices
    for step, (begin, end) in zip(trace['steps'], schedule(trace['steps'])):
        device = step['device']
        of = {'device': device, 'blocks': step.get('blocks'),
              'begin_ms': round(1e3 * begin, 4), 'end_ms': round(1e3 * end, 4)}
        if step['do'] == 'compute':
            number = ring_step(device, step['blocks'][0], devices) if goes_round else before[device]
            before[device] += 1
            kept['computes'].append({**of, 'step': number, 'pairs': step['pairs'],
                                     'tiles': step['tiles'], 'flops': step['flops']})
        elif step['do'] == 'pull':
            kept['pulls'].append({**of, 'peer': step['peer'], 'bytes': step['bytes']})
    return kept


def totals(kept, key):
    """Of each device."""
    of = [0] * kept['devices']
    for compute in kept['computes']:
        of[compute['device']] += compute[key]
    return of


def brief(kept):
    """Without steps, for what only totals are asked of."""
    return {**{key: value for key, value in kept.items() if key not in ('computes', 'pulls')},
            'pairs': totals(kept, 'pairs'), 'tiles': totals(kept, 'tiles'),
            'pulled_bytes': sum(pull['bytes'] for pull in kept['pulls'])}


def run(program, quick=False):
    """{'timelines': 8 devices of 8192 tokens, causal; 'full': a ring of them without a mask;
    'balance': totals at several lengths and numbers of devices; 'tokens': who has which of 64}"""
    if program is None:
        return {'skipped': 'no program was given (--ring)'}
    local = 64 if quick else 8192

    def trace(devices, length, **flags):
        rows = run_program(program, 'trace', device=f'cpu*{devices}', lens=length,
                           tflops=round(published.MEASURED['flops'] / 1e12),
                           link_gb=round(published.MEASURED['link'] / 1e9), **flags)
        return [summary(row) for row in rows]

    try:
        return {
            'timelines': trace(8, 8 * local, batch=1, heads=16, plans=KINDS),
            'full': trace(8, 8 * local, heads=1, causal=0, plans='ring')[0],
            'balance': [brief(row) for devices, length in
                        ((2, 16384), (4, 4096), (4, 16384), (8, 4096), (8, 16384))
                        for row in trace(devices, length, heads=1, plans=KINDS)],
            'tokens': [{key: row[key] for key in ('plan', 'devices', 'len', 'rows')}
                       for row in trace(8, 64, heads=1, plans=('striped', 'zigzag'))]}
    except (OSError, RuntimeError) as error:
        return {'skipped': str(error)}
