"""The study as a page and plots: everything on them comes from the results. Knows no torch."""

import cases
import claims
import dram
import model
import sides
import plots

ABOUT = '''# What the papers claim, measured

Written by `tests/bench/study/study.py` from [results.json](results.json), nothing by hand. Every
number was measured in the runs that the end of the page names, or is counted by a formula, where it
says so. [Another page](ring.md) is about several devices that share a sequence.
'''


def table(header, rows):
    lines = [header, ['---'] * len(header), *rows]
    return '\n'.join('| ' + ' | '.join(str(cell) for cell in line) + ' |' for line in lines)


def _skipped(results, part):
    """Why there is nothing of a part, or None."""
    if part not in results:
        return 'Not run.'
    why = results[part].get('skipped')
    return f'Not measured: {why}.' if why else None


def _mb(count):
    return f'{count / 1e6:,.1f}' if count < 1e8 else f'{count / 1e6:,.0f}'


def _gb(count):
    return f'{count / 1e9:.2f}'


def _ms(value):
    return f'{value:.3g}' if value < 999.5 else f'{value:,.0f}'


def claims_section(results):
    rows = [(v.claim, v.source, v.measured or '–', f'**{v.verdict}**')
            for v in claims.verdicts(results)]
    return '## Claims\n\n' + table(('claim', 'of', 'measured here', 'verdict'), rows)


def sides_section():
    lines = [f'- **{sides.title(side)}**: {sides.what(side)}.' for side in sides.SIDES]
    return '\n'.join(['## What is compared on a GPU', '', *lines])


# -- speed


def _present(rows):
    return [side for side in sides.SIDES if any(side in row['sides'] for row in rows)]


def _speed_table(rows, label, titles):
    names = _present(rows)
    cell = lambda row, side: (f'{row["sides"][side]["tflops"]:.0f} ({_ms(row["sides"][side]["ms"])})'
                              if side in row['sides'] else '–')
    body = [(*label(row), *(cell(row, side) for side in names)) for row in rows]
    return table((*titles, *map(sides.title, names)), body)


def _memory_table(rows, label, titles):
    names = _present(rows)
    cell = lambda row, side: (_mb(row['sides'][side]['extra_bytes']) if side in row['sides']
                              else '–')
    body = [(*label(row), *(cell(row, side) for side in names)) for row in rows]
    return table((*titles, *map(sides.title, names)), body)


def _mask(row):
    return 'causal' if row['case']['causal'] else 'full'


def _notes(rows):
    return '\n'.join(f'- {row["name"]} {row["direction"]}: {note}' for row in rows
                     for note in row['notes'])


def speed_section(results):
    parts = ['## Time and memory on a GPU']
    why = _skipped(results, 'speed')
    if why:
        return '\n\n'.join([*parts, why])
    paper = lambda row: (row['case']['batch'], row['direction'])
    length = lambda row: (row['case']['q_len'], _mask(row))
    for direction in sides.DIRECTIONS:
        rows = claims.speed_rows(results, direction)
        parts += [f'### {direction.capitalize()}, 16 heads of 128, 16,384 tokens, bf16',
                  'TFLOP/s, and milliseconds in brackets; masked pairs are not counted.',
                  _speed_table(rows, length, ('length', 'mask')), f'![{direction}]({direction}.svg)',
                  'Device memory beside the tensors, MB. Of PyTorch it is the peak of its '
                  'allocator, ' + ('forward and ' if direction == 'backward' else '') +
                  f'{direction}; cuBLAS keeps 32 MiB beside for our naive way.',
                  _memory_table(rows, length, ('length', 'mask'))]
    rows = [row for direction in sides.DIRECTIONS
            for row in claims.speed_rows(results, direction, group='paper')]
    parts += ['![memory](memory.svg)',
              "### The fused-kernel study's shape: f16, 2048 long, 40 heads of 128, full",
              'TFLOP/s (ms), then MB beside the tensors.',
              _speed_table(rows, paper, ('batch', 'direction')),
              _memory_table(rows, paper, ('batch', 'direction'))]
    notes = _notes(results['speed']['rows'])
    if notes:
        parts += ['What did not run:', notes]
    return '\n\n'.join(parts)


def _lengths_plot(results, direction):
    rows = claims.speed_rows(results, direction, causal=False)
    series = [(sides.title(side), sides.color(side),
               [(row['case']['q_len'], row['sides'][side]['tflops'])
                for row in rows if side in row['sides']]) for side in _present(rows)]
    return plots.line_plot(f'{direction.capitalize()}, full, 16 heads of 128', 'length, tokens',
                           'TFLOP/s', series)


def _memory_plot(results):
    rows = claims.speed_rows(results, 'backward', causal=False)
    series = [(sides.title(side), sides.color(side),
               [(row['case']['q_len'], row['sides'][side]['extra_bytes'] / 1e6)
                for row in rows if side in row['sides']]) for side in _present(rows)]
    return plots.line_plot('Memory of backward beside its tensors, 16,384 tokens', 'length, tokens',
                           'MB', series, log_y=True)


# -- device memory traffic


def _dram_rows(results, case, direction):
    """[(side, asked, least, row that ncu measured or None)]"""
    measured = {row['what']: row for row in claims.dram_rows(results, case, direction)}
    shape = (case['batch'] * case['q_heads'], case['q_len'], case['head_dim'],
             cases.ELEMENT_BYTES[case['dtype']])
    for side in sides.SIDES:
        if (side, direction) in model.GPU:
            yield (side, model.traffic(model.GPU[side, direction], *shape),
                   model.least(direction, *shape), measured.get(side))


def _dram_table(results, case, direction):
    body = []
    for side, asked, least, row in _dram_rows(results, case, direction):
        cells = [sides.title(side), _gb(least.total), _gb(asked.reads), _gb(asked.writes)]
        if row is None:
            cells += ['–'] * 4
        else:
            read, written = row['read_bytes'], row['write_bytes']
            cells += [_gb(read), _gb(written), f'{(read + written) / asked.total:.2f}',
                      f'{(read + written) / least.total:.1f}']
        body.append(cells)
    return table(('', 'least', 'asked: read', 'written', 'measured: read', 'written', 'of asked',
                  'of the least'), body)


def _formulas():
    rows = []
    for (side, direction), passes in model.GPU.items():
        rows.append((sides.title(side), direction, *model.formula(passes)))
    return table(('', '', 'reads', 'writes'), rows)


def dram_section(results):
    parts = ['## Bytes to and from device memory',
             'GB of a call. "Asked" is what the algorithm asks its memory for, by the formulas '
             'below; "least" is every tensor once; measured is what ncu counted at the memory\'s '
             'pins, after the caches. What copies and fills without a kernel is not in it.']
    why = _skipped(results, 'dram')
    if why:
        parts.append(why)
    measured = claims.dram_cases(results)
    for case in measured or [vars(c) for c in dram.shapes()]:
        for direction in sides.DIRECTIONS:
            parts += [f'### {direction.capitalize()}: {cases.Case(**case).name}',
                      _dram_table(results, case, direction)]
    if measured:
        parts.append('![traffic](traffic.svg)')
    parts += ['Of each head, S long and d wide: M4 and M are matrices of S × S in f32 and in the '
              "inputs' type, X4 and X of S × d, r is a number of each row in f32; S/128 says that "
              'something is done for each block of 128 rows or columns.', _formulas()]
    return '\n\n'.join(parts)


def _dram_plot(results):
    found = claims.dram_cases(results)
    if not found:
        return ''
    groups = []
    for case in found:
        for direction in sides.DIRECTIONS:
            values = {sides.title(row['what']): (row['read_bytes'] + row['write_bytes']) / 1e9
                      for row in claims.dram_rows(results, case, direction)}
            groups.append((f'{direction}, {case["q_len"]}', values))
    colors = {sides.title(side): sides.color(side) for side in sides.SIDES}
    return plots.bar_plot('Bytes to and from device memory, measured', 'GB', groups, colors,
                          log_y=True)


# -- the naive way


def naive_section(results):
    parts = ['## The naive way, an operation at a time',
             'In PyTorch, as `tests/bench/study/eager.py` writes it down, with automatic '
             'differentiation. One score buffer is a matrix of the scores of all heads.']
    why = _skipped(results, 'naive')
    if why:
        return '\n\n'.join([*parts, why])
    part = results['naive']
    rows = [(claims.WAYS[row['variant']], *(f'{row[key]:.2f}' for key in
                                           ('no_gradients', 'forward', 'retained', 'backward')))
            for row in part['memory']]
    parts += [f'{part["heads"]} heads of {part["dim"]}, {part["len"]} long, {part["dtype"]}: one '
              f'buffer is {_gb(part["buffer_bytes"])} GB. Score buffers beside the inputs, by the '
              "allocator's count:",
              table(('', 'forward without gradients', 'forward', 'kept for backward', 'backward'),
                    rows)]
    for direction in sides.DIRECTIONS:
        steps = part['trace'][direction]
        body = [(f'`{step["op"]}`', step['reads'], step['writes']) for step in steps]
        body.append(('**all**', *(sum(step[key] for step in steps) for key in ('reads', 'writes'))))
        for row in claims.eager_rows(results, direction):
            buffer = claims.eager_buffer_bytes(row)
            body.append((f'device memory, length {row["shape"][1]}', f'{row["read_bytes"] / buffer:.2f}',
                         f'{row["write_bytes"] / buffer:.2f}'))
        parts += [f'Score buffers that the operators of {direction} read and write, in order:',
                  table(('', 'reads', 'writes'), body)]
    own = []
    for (side, direction), passes in model.GPU.items():
        if side.startswith('naive'):
            held = claims.score_buffers(results, side, direction)
            own.append((f'{sides.title(side)}, {direction}', *model.score_passes(passes),
                        '–' if held is None else f'{held:.2f}'))
    parts += ["Our own kernels: what they read and write by how they are written, and what they "
              "held of f32 score buffers in the fused-kernel study's shape.",
              table(('', 'reads', 'writes', 'held'), own)]
    return '\n\n'.join(parts)


# -- a processor


def cpu_section(results):
    parts = ['## On a processor',
             'The algorithms as their papers give them (`kernels/reference`, written to be read) '
             "and the CPU's own kernels (`kernels/cpu`), f32. Heap is what a run added at most, "
             'scratch what the backend accounts for; "asked" is what the algorithm asks memory '
             'for while a block stays on chip, by how it is written.']
    why = _skipped(results, 'cpu')
    if why:
        return '\n\n'.join([*parts, why])
    body = []
    for row in results['cpu']['rows']:
        passes = model.REFERENCE.get((row['algorithm'], row['direction']))
        asked = '–'
        if passes is not None:
            asked = _mb(model.traffic(passes, row['heads'], row['len'], row['dim'], 4).total)
        body.append((row['kernel'], row['direction'], row['len'], _ms(1e3 * row['seconds']),
                     f'{row["flops"] / row["seconds"] / 1e9:.2f}', _mb(row['heap_bytes']),
                     _mb(row['scratch_bytes']), asked))
    first = results['cpu']['rows'][0]
    parts += [f'{results["cpu"]["processor"]}, {first["threads"]} thread(s), {first["heads"]} '
              f'head(s) of {first["dim"]}.',
              table(('kernel', 'direction', 'length', 'ms', 'GFLOP/s', 'heap, MB', 'scratch, MB',
                     'asked, MB'), body), '![processor](cpu.svg)']
    return '\n\n'.join(parts)


CPU_COLORS = {'naive': '#999999', 'online_softmax': '#009E73', 'flash_attention_1': '#56B4E9',
              'flash_attention_2': '#0072B2', 'auto': '#D55E00'}


def _cpu_plot(results):
    rows = results.get('cpu', {}).get('rows', [])
    series = [(name, color, [(row['len'], row['heap_bytes'] / 1e6) for row in rows
                             if row['algorithm'] == name and row['direction'] == 'forward'])
              for name, color in CPU_COLORS.items() if name != 'auto']
    return plots.line_plot('Heap of forward beside its tensors, on a processor', 'length, tokens',
                           'MB', series, log_y=True)


# -- the whole


HOW = '''## How it was measured

```sh
cmake --preset kernels && cmake --build --preset kernels --target attnd_kernels_c reference_study
python3 tests/bench/study/study.py --out docs/study \\
    --lib build/kernels/kernels/libattnd_kernels_c.so \\
    --cpu build/kernels/tests/bench/study/reference_study
```

Parts that a machine cannot run are left as another run has left them. Before it is timed each
side's result is checked against FlashAttention-2's, as PyTorch has it; then it runs by itself for
60 ms. Times are medians between events, of calls that follow one another; FLOPs are counted as the
papers do: 4 S² d of each head forward, 2.5 times that backward, half when causal.
'''


def machines(results):
    rows = [(part, '; '.join(f'{key} {value}' for key, value in results[part]['machine'].items()))
            for part in ('speed', 'naive', 'dram', 'cpu')
            if 'machine' in results.get(part, {})]
    return table(('part', 'run on'), rows) if rows else ''


def render(results):
    """{file name: text}: the page."""
    sections = [ABOUT.strip(), claims_section(results), sides_section(),
                speed_section(results),
                dram_section(results), naive_section(results), cpu_section(results), HOW.strip(),
                machines(results)]
    return {'README.md': '\n\n'.join(s for s in sections if s) + '\n'}


def draw(results):
    """{file name: SVG}: its plots."""
    drawn = {'forward.svg': _lengths_plot(results, 'forward'),
             'backward.svg': _lengths_plot(results, 'backward'),
             'memory.svg': _memory_plot(results), 'traffic.svg': _dram_plot(results),
             'cpu.svg': _cpu_plot(results)}
    return {name: text for name, text in drawn.items() if text}
