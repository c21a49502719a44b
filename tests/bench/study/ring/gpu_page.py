"""The page's part of what was recorded on GPUs. It says where nothing was."""

from page import table
from ring import accuracy, gpu, published
from ring.arithmetic_verdicts import measured_flops_of_a_byte

RECORDED = {'table': 'Time', 'hiding': 'Where copies hide', 'connections': 'Hardware queues',
            'timelines': 'What each GPU did when', 'accuracy': 'How near results come on GPUs'}


def _percent(part, row):
    """Of as many GPUs as one alone."""
    one = gpu.time_of(part, 'one_device', row['op'], row['len'])
    return f'{100 * one["ms"] / row["devices"] / row["ms"]:.0f}' if one else '–'


def _plan_rows(part, op):
    for length in gpu.lengths(part):
        for plan in gpu.PLANS:
            row = gpu.time_of(part, plan, op, length)
            if row:
                memory = max(row['allocated_bytes']) / 2**20
                kernels = ' / '.join(f'{ms:.3g}' for ms in row['kernel_ms'])
                yield (f'{length:,}', f'`{plan}`', row['devices'], f'{row["ms"]:.3g}',
                       f'{row["flops"] / row["devices"] / row["ms"] / 1e9:.0f}',
                       _percent(part, row), kernels, f'{memory:,.0f}')


def _both(part):
    """Forward and backward, by length and plan."""
    body = []
    for length in gpu.lengths(part):
        cells = []
        for plan in gpu.PLANS:
            of = [gpu.time_of(part, plan, op, length) for op in accuracy.OPS]
            cells.append(f'{sum(row["ms"] for row in of):.3g}' if all(of) else '–')
        body.append((f'{length:,}', *cells))
    return table(('length', *(f'`{plan}`' for plan in gpu.PLANS)), body)


def _table(part):
    shape = gpu.SHAPE
    parts = [f'Batch {shape["batch"]}, {shape["heads"]} heads of {shape["dim"]}, bf16, causal; '
             'length is that of all devices together, as in the note. Milliseconds until every GPU '
             'is idle; TFLOP/s of each GPU; percent of what as many GPUs would do if each were as '
             'fast as one alone; of each GPU from its first kernel to the end of its last; and the '
             'most memory that a device was asked for. `kv` is made for few rows: each GPU computes '
             'all of them over a part of the columns. Under a causal mask the first part has most to '
             'do; the second sequence begins on the second GPU.']
    for op in accuracy.OPS:
        rows = list(_plan_rows(part, op))
        if rows:
            parts += [f'#### {op.capitalize()}',
                      table(('length', 'plan', 'GPUs', 'ms', 'TFLOP/s', '%', 'kernels, ms', 'MiB'),
                            rows), f'![{op}](ring_{op}.svg)']
    parts += ['#### Forward and backward, ms', _both(part)]
    failed = part['table'].get('failed', {})
    wrong = sorted({f'`{row["plan"]}` {row["op"]}' for row in part['table']['rows']
                    if not row['right']})
    if failed:
        parts.append('What did not run: ' + '; '.join(
            f'`{plan}` ({why})' for plan, why in failed.items()) + '.')
    if wrong:
        parts.append(f'Wrong, and so left out: {", ".join(wrong)}.')
    return parts


def _hiding(part):
    predicted = gpu.predicted_hiding(measured_flops_of_a_byte())
    parts = [table(('', 'tokens a GPU', 'predicted'),
                   [(row['what'], f'{row["tokens"]:,}', f'{predicted[row["what"]]:,.0f}')
                    for row in part['hiding']])]
    for row in part['hiding']:
        parts += [f'Looked at, {row["what"]}:',
                  table(('tokens a GPU', 'copy of a block, ms', 'step, ms'),
                        [(f'{at["tokens"]:,}', f'{at["copy_ms"]:.4f}', f'{at["step_ms"]:.4f}')
                         for at in row['measured']])]
    return parts


def _connections(part):
    return [f'`CUDA_DEVICE_MAX_CONNECTIONS`, forward, {gpu.CONNECTIONS_LOCAL:,} tokens a GPU:',
            table(('connections', 'plan', 'ms'),
                  [(row['connections'], f'`{row["plan"]}`', f'{row["ms"]:.3f}')
                   for row in part['connections']])]


def _timelines(part):
    body = []
    for row in part['timelines']:
        if not row['spans']:
            continue
        end = max(span[3] for span in row['spans'])
        share = ', '.join(f'{100 * ms / end:.0f} %' for ms in gpu.busy(row['spans']).values())
        body.append((f'`{row["plan"]}`', f'{end:.3f}', share))
    return [f'{gpu.CONNECTIONS_LOCAL:,} tokens a GPU, forward, causal, by CUPTI: one run.',
            table(('plan', 'ms', 'of it each GPU computes'), body),
            '![recorded timelines](ring_recorded.svg)']


def _accuracy(part):
    body = []
    for row in part['accuracy']:
        if row['ran_as'] != row['plan']:
            continue
        for name, of in row['tensors'].items():
            ratio = f'{of["rms"] / of["one_rms"]:.3f}' if of['one_rms'] else '–'
            body.append((f'`{row["plan"]}`', accuracy.NAMES[name], f'{of["max"]:.2e}',
                         f'{of["mean"]:.2e}', f'{of["rms"]:.2e}', ratio))
    of = published.ACCURACY
    return [f'{of["len"]} tokens, {of["heads"]} heads of {of["dim"]}, bf16, causal.',
            table(('plan', 'of', "most from one GPU's", 'on average', 'RMS error to float64',
                   "over one GPU's"), body)]


SECTIONS = {'table': _table, 'hiding': _hiding, 'connections': _connections,
            'timelines': _timelines, 'accuracy': _accuracy}


def section(results):
    part = results.get('gpu', {})
    parts = ['## On GPUs']
    if 'device' in part:
        parts.append(f'{part["devices"]} × {part["device"]}.')
    for name, title in RECORDED.items():
        parts.append(f'### {title}')
        if name in part:
            parts += SECTIONS[name](part)
        else:
            why = part.get('why_not', {}).get(name) or part.get('skipped')
            parts.append('Not recorded yet' + (f': {why}.' if why else '.'))
    return '\n\n'.join(parts)
