"""Results of the ring study that are made up, of every part, with which every claim holds that can
hold by them. For tests."""

from ring import gpu, plans, published

DEVICES = 4


def trace(kind, devices=DEVICES, length=64, heads=1, causal=True):
    """A plan as ring_study would trace it, by hand: ring or striped, forward."""
    dim, n = 128, length // devices
    where = ([[[r * n, n, 1]] for r in range(devices)] if kind == 'ring' else
             [[[r, n, devices]] for r in range(devices)])
    steps, computed = [], {}
    for t in range(devices):
        for r in range(devices):
            block = (r - t) % devices
            if kind == 'ring' and causal and block > r:
                continue
            after = [computed[r]] if r in computed else []
            if t > 0:
                steps.append({'device': r, 'after': after, 'do': 'pull', 'blocks': [block],
                              'peer': (r - 1) % devices, 'bytes': 4 * n * dim * heads})
                after = [len(steps) - 1]
            pairs = n * n
            if causal and (kind == 'striped' or block == r):
                pairs = n * (n + 1) // 2 - (n if block > r else 0)
            steps.append({'device': r, 'after': after, 'do': 'compute', 'blocks': [block],
                          'pairs': heads * pairs, 'tiles': heads,
                          'flops': 4 * heads * dim * pairs})
            computed[r] = len(steps) - 1
    return {'plan': kind, 'ran_as': kind, 'op': 'forward', 'devices': devices, 'batch': 1,
            'len': length, 'heads': heads, 'dim': dim, 'causal': causal, 'rows': where,
            'columns': where, 'cost': [], 'steps': steps}


def _balance():
    rows = []
    for devices, length in ((2, 16384), (4, 4096), (4, 16384), (8, 4096), (8, 16384)):
        pairs = length * (length + 1) / 2
        share = {'ring': [(2 * r + 1) / devices**2 * pairs for r in range(devices)],
                 'striped': [pairs / devices] * devices, 'zigzag': [pairs / devices] * devices,
                 'gather': [pairs / devices] * devices}
        rows += [{'plan': kind, 'ran_as': kind, 'devices': devices, 'len': length, 'pairs': of,
                  'tiles': [n / 128**2 for n in of], 'pulled_bytes': 1 << 20}
                 for kind, of in share.items()]
    return rows


def _errors(most, mean, rms, one):
    return {'max': most, 'mean': mean, 'rms': rms, 'one_rms': one}


def accuracy_row(plan, op, ratio, mean, partials='f32', devices=8):
    one = {'o': 1e-4, 'lse': 1e-7, 'dq': 1e-4, 'dk': 1e-4, 'dv': 1e-4}
    names = ('o', 'lse') if op == 'forward' else ('dq', 'dk', 'dv')
    low, high = sorted(published.ACCURACY['mean'])
    means = [0] + [high + (low - high) * r / max(devices - 2, 1) for r in range(devices - 1)]
    tensors = {}
    for name in names:
        of = _errors(0 if mean == 0 else 1e-3, mean, ratio * one[name], one[name])
        ranks = [{**of, 'mean': means[r] if partials == 'bf16' else mean} for r in range(devices)]
        tensors[name] = {**of, 'ranks': ranks}
    unit = 3816 // 8 * 5 * 128
    row = {'plan': plan, 'ran_as': plan, 'partials': partials, 'op': op, 'devices': devices,
           'device': 'a CPU', 'len': 3816, 'heads': 5, 'dim': 128, 'causal': True,
           'tensors': tensors}
    if plan != 'blocks':
        row.update(planned_bytes=[6 * unit] * devices, allocated_bytes=[6 * unit] * devices,
                   planned_pulls=1 << 20, copied_bytes=1 << 20)
    return row


def _accuracy():
    rows = []
    for op in ('forward', 'backward'):
        rows += [accuracy_row('gather', op, 1.0, 0), accuracy_row('ring', op, 1.001, 1e-5),
                 accuracy_row('striped', op, 1.002, 2e-5), accuracy_row('zigzag', op, 1.003, 3e-5),
                 accuracy_row('blocks', op, 1.01, 8e-5, 'bf16'),
                 accuracy_row('blocks', op, 1.0, 1e-5)]
    return {'rows': rows, 'machine': {'processor': 'a CPU', 'date': '2026-01-01'}}


def time_row(plan, op, length, ms, devices=2):
    return {'plan': plan, 'ran_as': plan, 'op': op, 'devices': devices, 'device': 'a GPU',
            'batch': 2, 'len': length, 'heads': 16, 'dim': 128, 'causal': True, 'sections': 1,
            'ms': ms, 'kernel_ms': [ms] * devices, 'runs': 9, 'flops': 4e12, 'pulled_bytes': 1,
            'planned_pulls': 1, 'planned_bytes': [1 << 20] * devices,
            'allocated_bytes': [1 << 20] * devices, 'right': True, 'difference': 0}


MS = {'one_device': 4.0, 'heads': 2.0, 'gather': 2.1, 'ring': 3.0, 'striped': 2.4, 'zigzag': 2.2}


def _gpu():
    rows = [time_row(plan, op, length, ms, 1 if plan == 'one_device' else 2)
            for length in published.LENGTHS for op in ('forward', 'backward')
            for plan, ms in MS.items()]
    predicted = gpu.predicted_hiding(published.MEASURED['flops'] / published.MEASURED['link'])
    hiding = [{'what': what, 'tokens': round(tokens), 'measured': [
        {'tokens': 512, 'copy_ms': 0.2, 'step_ms': 0.1}]} for what, tokens in predicted.items()]
    connections = [{**time_row('ring', 'forward', 16384, 1.0 if n == 1 else 2.0), 'connections': n}
                   for n in gpu.CONNECTIONS]
    spans = [[0, 'kernel', 0.0, 1.0], [1, 'copy', 0.0, 0.5], [1, 'kernel', 0.5, 2.0]]
    return {'devices': 2, 'device': 'a GPU', 'why_not': {},
            'table': {'rows': rows, 'failed': {}}, 'hiding': hiding, 'connections': connections,
            'timelines': [{'plan': 'ring', 'ran_as': 'ring', 'spans': spans}],
            'accuracy': [accuracy_row('ring', 'forward', 1.0, 1e-5, devices=2)],
            'machine': {'date': '2026-01-01'}}


def formulas():
    return {
        'softmax': {'scores': 1e4, 'finite': True, 'plain_finite': False, 'zeros': 0,
                    'elements': 9, 'error_by_lse': 1e-4, 'error': 1e-7},
        'gradient': {'step': 1e-5, 'error': 1e-11},
        'recurrence': {'error': 1e-7, 'plain_error': 1e-7},
        'exact': [{'shards': n, 'f32': 1e-7, 'f64': 1e-16, 'rows_f64': 1e-16}
                  for n in range(1, 9)],
        'merges': {'difference': 1e-7, 'overflow': {'exp': None, 'sigmoid': None},
                   'example': {'out': 2, 'lse': 1.7, 'block_out': 5, 'block_lse': 0, 'exp': 2.4634,
                               'sigmoid': 2.4634, 'derived': 2.4634},
                   'empty_is_nan': {'exp': False, 'sigmoid': False}},
        'tokens': {'striped': [1, 9, 17], 'zigzag': [4, 5, 6]}}


def every():
    timelines = [plans.summary(trace(kind, 8, 64)) for kind in ('ring', 'striped')]
    return {'formulas': formulas(),
            'plans': {'timelines': timelines,
                      'full': plans.summary(trace('ring', 8, 64, causal=False)),
                      'balance': _balance(),
                      'tokens': [{'plan': 'striped', 'rows': [[], [[1, 3, 8]]]},
                                 {'plan': 'zigzag', 'rows': [[], [[4, 3, 1]]]}]},
            'accuracy': _accuracy(), 'gpu': _gpu()}
