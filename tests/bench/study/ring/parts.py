"""The parts of the ring study, one after another, and how what they found is kept."""

import datetime
import json
import time

from ring import accuracy, gpu, plans

PARTS = ('formulas', 'plans', 'accuracy', 'gpu')
# Of cpu*N in the place of GPUs, lengths are this part of what they are.
CPU_SHRINK = 512


def _formulas():
    try:
        import numpy
    except ImportError:
        return {'skipped': 'numpy is not installed'}
    from ring import formulas
    return {**formulas.run(), 'machine': {'numpy': numpy.__version__}}


def _accuracy(options):
    found = accuracy.run(options.ring, options.quick)
    processor = {row['device'] for row in found.get('rows', [])}
    return {**found, 'machine': {'processor': ', '.join(processor)}} if processor else found


def _gpu(options, kept, keep):
    on_cpu = options.ring_device.startswith('cpu')
    recorder = gpu.Recorder(options.ring, options.ring_device, options.ring_trace, options.quick,
                            CPU_SHRINK if on_cpu else 1)
    return gpu.run(recorder, kept, keep, options.ring_gpu)


def _dated(found):
    if 'skipped' not in found:
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        found['machine'] = {**found.get('machine', {}), 'date': today}
    return found


def measure(options, results, keep):
    """Replaces the parts of the results that could be computed, and keeps them as soon as they are
    there; whether all that a machine without GPUs can do were."""
    all_ran = True
    for part in options.ring_parts:
        start = time.monotonic()
        print(f'# ring: {part}', flush=True)

        def keep_part(found, part=part):
            results[part] = _dated(found)
            keep(results)

        found = {'formulas': _formulas, 'plans': lambda: plans.run(options.ring, options.quick),
                 'accuracy': lambda: _accuracy(options),
                 'gpu': lambda: _gpu(options, results.get('gpu', {}), keep_part)}[part]()
        why = found.get('skipped')
        if why is None or 'skipped' in results.get(part, {'skipped': ''}):
            keep_part(found)
        all_ran = all_ran and (why is None or part == 'gpu')
        print(f'# ring: {part}: {why or "done"}, {time.monotonic() - start:.0f} s', flush=True)
    return all_ran


def dump(value, depth=3):
    """As JSON, a line for each thing down to some depth."""
    if depth == 0 or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value) + ('\n' if depth == 3 else '')
    pad = ' ' * (4 - depth)
    if isinstance(value, dict):
        lines = [f'{pad}{json.dumps(key)}: {dump(of, depth - 1)}' for key, of in value.items()]
        ends = '{}'
    else:
        lines, ends = [pad + dump(of, depth - 1) for of in value], '[]'
    text = ends[0] + '\n' + ',\n'.join(lines) + '\n' + pad[1:] + ends[1]
    return text + ('\n' if depth == 3 else '')
