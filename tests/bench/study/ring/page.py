"""The ring study as a page: everything on it comes from the results."""

from page import table
from ring import accuracy, gpu_page, published, verdicts
from ring.plan_verdicts import tiles_over_pairs

ABOUT = '''# Ring attention, measured

Several devices share one sequence, and blocks of K and V go round. Written by
`tests/bench/study/study.py --part=ring` from [ring.json](ring.json), nothing by hand: every verdict
is computed from what was measured, or counted by a plan, or divided from published numbers, which
it names. [The plans](../../kernels/plan/README.md) are this project's own: `gather` fetches all
columns, `ring`, `striped` and `zigzag` send them round. [The other page](README.md) is about one
device.
'''


def skipped(results, part):
    """Why there is nothing of a part, or None."""
    if part not in results:
        return 'Not run.'
    why = results[part].get('skipped')
    return f'Not computed: {why}.' if why else None


def claims_section(results):
    rows = [(number, v.claim, v.source, v.measured or '–', f'**{v.verdict}**')
            for number, v in verdicts.every(results)]
    return '## Claims\n\n' + table(('', 'claim', 'of', 'here', 'verdict'), rows)


# -- accuracy

def _name(row):
    if row['plan'] != 'blocks':
        return f'`{row["plan"]}`'
    return 'ring of single blocks, ' + ('in 16 bits' if row['partials'] == 'bf16' else 'in f32')


def _number(value):
    return '0' if value == 0 else f'{value:.2e}'


def _summary(rows):
    body = []
    for row in rows:
        for name, of in row['tensors'].items():
            ratio = f'{of["rms"] / of["one_rms"]:.3f}' if of['one_rms'] else '–'
            body.append((_name(row), accuracy.NAMES[name], *map(_number, (
                of['max'], of['mean'], of['rms'], of['one_rms'])), ratio))
    return table(('plan', 'of', "most from one device's", 'on average', 'RMS error to float64',
                  "one device's", 'ratio'), body)


def _by_rank(rows, tensor):
    """Mean, and in brackets the most, by device."""
    devices = rows[0]['devices']
    body = [(_name(row), *(f'{_number(rank["mean"])} ({_number(rank["max"])})'
                           for rank in row['tensors'][tensor]['ranks'])) for row in rows]
    return table(('plan', *(f'device {i}' for i in range(devices))), body)


def accuracy_section(results):
    parts = ['## How near results come']
    why = skipped(results, 'accuracy')
    if why:
        return '\n\n'.join([*parts, why])
    part = results['accuracy']
    first = part['rows'][0]
    parts.append(
        f'{first["len"]} tokens, {first["heads"]} heads of {first["dim"]}, bf16, '
        f'{"causal" if first["causal"] else "full"}, {first["devices"]} virtual devices of one '
        'processor: each plan as it runs, with partial results in f32. A ring of single blocks is '
        'how it is written with kernels that cannot merge: each block\'s results are rounded, put '
        'together in f32, and rounded again. Differences are from one device\'s results, errors '
        'from float64 on the same inputs, of which those of one device are of the same tokens. '
        'Backward has the LSE and O of one device\'s forward. Inputs are about normal, of '
        'variance 1.')
    for op in accuracy.OPS:
        rows = accuracy.rows(part, op)
        if not rows:
            continue
        parts += [f'### {op.capitalize()}', _summary(rows)]
        for tensor in accuracy.TENSORS[op]:
            parts += [f'{accuracy.NAMES[tensor]}, by device: mean difference from one device\'s, '
                      'and the most.', _by_rank(rows, tensor)]
        if op == 'forward':
            parts.append('![errors by device](ring_ranks.svg)')
    detours = accuracy.detours(part)
    if detours:
        parts.append('Not in the tables, as it runs as another plan: ' + ', '.join(
            f'{op} of `{plan}` (as `{ran}`)' for op, plan, ran in detours) + '.')
    return '\n\n'.join(parts)


# -- formulas


def formulas_section(results):
    parts = ['## Formulas']
    why = skipped(results, 'formulas')
    if why:
        return '\n\n'.join([*parts, why])
    found = results['formulas']
    overflow = found['merges']['overflow']
    end = lambda value: 'never' if value is None else f'{value:.2f}'
    parts += ['Attention of 250 rows over 250 columns in shards, put together by the code with '
              'sigmoid: largest error to float64 over all columns.',
              table(('shards', 'f32', 'float64', 'float64, rows in shards instead'),
                    [(row['shards'], *map(_number, (row['f32'], row['f64'], row['rows_f64'])))
                     for row in found['exact']]),
              'Ways to put a block\'s results to those so far, in f32:',
              table(('', 'LSE above that so far from which results are not finite',
                     'two empty results'),
                    [(name, end(overflow[name]), 'NaN' if is_nan else 'empty')
                     for name, is_nan in found['merges']['empty_is_nan'].items()]),
              'This project\'s own (`kernels/row_merge.h`) takes exp of nothing above 0, and an '
              'empty result adds nothing.']
    return '\n\n'.join(parts)


# -- plans


def plans_section(results):
    parts = ['## Who computes what, and when']
    why = skipped(results, 'plans')
    if why:
        return '\n\n'.join([*parts, why])
    part, of = results['plans'], published.MEASURED
    first = part['timelines'][0]
    parts += [
        f'{first["devices"]} devices of {first["len"] // first["devices"]} tokens each, '
        f'{first["heads"]} heads of {first["dim"]}, causal, forward. Steps, and what each waits '
        f'for, are the plans\'; their time is a model\'s: {of["flops"] / 1e12:.0f} TFLOP/s, '
        f'{of["link"] / 1e9:.0f} GB/s and {1e6 * of["latency"]:.0f} µs a copy, as measured on '
        'H100s, nothing for launches and merges. Numbers are blocks.',
        '![timelines](ring_timelines.svg)',
        'Visible pairs, by device, in parts of the most that any has, and copies in all:',
        _shares(part['timelines']),
        'At other lengths, of one head: the most pairs of a device over the mean, and how many '
        'more pairs the tiles of 128 × 128 hold that a kernel visits than are visible.',
        _balance(part['balance'])]
    return '\n\n'.join(parts)


def _shares(rows):
    body = []
    for kept in rows:
        pairs = [0] * kept['devices']
        for compute in kept['computes']:
            pairs[compute['device']] += compute['pairs']
        body.append((f'`{kept["plan"]}`', *(f'{100 * n / max(pairs):.0f} %' for n in pairs),
                     f'{sum(pull["bytes"] for pull in kept["pulls"]) / 2**20:,.0f} MiB'))
    return table(('plan', *(f'device {i}' for i in range(rows[0]['devices'])), 'copies'), body)


def _balance(rows):
    body = [(b['devices'], b['len'], f'`{b["plan"]}`',
             f'{max(b["pairs"]) * b["devices"] / sum(b["pairs"]):.4f}',
             f'{100 * (tiles_over_pairs(b) - 1):.1f} %', f'{b["pulled_bytes"] / 2**20:.1f}')
            for b in rows]
    return table(('devices', 'length', 'plan', 'most over mean', 'tiles', 'copies, MiB'), body)


def _bound(row):
    """In bytes of n d. Gather has K and V of all, and in backward Q, dO, f32 sums of dQ and dQ's
    terms of all; what goes round has two blocks, and two states in f32, one of which becomes O."""
    n = row['devices']
    formulas = {('gather', 'forward'): f'4N + 4 = {4 * n + 4}',
                ('gather', 'backward'): f'12N + 10 = {12 * n + 10}'}
    round_trip = {'forward': '2 + 8 + 8 = 18'} if row['plan'] != 'gather' else {}
    return formulas.get((row['plan'], row['op'])) or round_trip.get(row['op'], '–')


def memory_section(results):
    parts = ['## Memory and copies']
    rows = [row for row in results.get('accuracy', {}).get('rows', [])
            if 'allocated_bytes' in row and row['ran_as'] == row['plan']]
    if not rows:
        return '\n\n'.join([*parts, skipped(results, 'accuracy') or 'Not run.'])
    body = []
    for row in rows:
        unit = row['len'] / row['devices'] * row['heads'] * row['dim']
        body.append((f'`{row["plan"]}`', row['op'],
                     _bound(row), *(f'{max(row[key]) / unit:.2f}' for key in (
                         'planned_bytes', 'allocated_bytes')),
                     f'{row["planned_pulls"] / 2**20:.2f}', f'{row["copied_bytes"] / 2**20:.2f}'))
    parts += ['Of the runs above. Memory is that of the device with most, in bytes of n d, n being '
              'the tokens of a device and d all heads\' dimensions: Q of 16 bits is 2 of them. '
              'By a formula, which is a bound under a mask; counted by the plan; and asked for by '
              'its run. Likewise copies between devices, in MiB.',
              table(('plan', '', 'memory, formula', 'planned', 'asked for', 'copies, planned',
                     'made'), body)]
    return '\n\n'.join(parts)


# -- the whole

HOW = '''## How it was computed

```sh
cmake --preset kernels && cmake --build --preset kernels --target ring_study
python3 tests/bench/study/study.py --part=ring --out docs/study \\
    --ring build/kernels/tests/bench/study/ring_study
```

takes a minute of a processor. On a machine with GPUs the same command records what is under *On
GPUs*, too; timelines take CUPTI, `--ring_trace
build/kernels/tests/bench/gpu/libattnd_activity_trace.so`. What a machine cannot run stays as
another run has left it. `--ring_parts` chooses parts, and `--ring_gpu` what is recorded; each is
kept as soon as it is there. `--render` writes the page again.
'''


def sources_section():
    return '## Sources\n\n' + '\n'.join(f'- {name}: {what}.' for name, what in published.SOURCES)


def machines(results):
    rows = [(part, '; '.join(f'{key} {value}' for key, value in results[part]['machine'].items()))
            for part in ('formulas', 'plans', 'accuracy', 'gpu')
            if 'machine' in results.get(part, {})]
    return table(('part', 'run on'), rows) if rows else ''


def render(results):
    """{file name: text}"""
    sections = [ABOUT.strip(), claims_section(results), accuracy_section(results),
                formulas_section(results), plans_section(results), memory_section(results),
                gpu_page.section(results), sources_section(), HOW.strip(), machines(results)]
    return {'ring.md': '\n\n'.join(section for section in sections if section) + '\n'}
