"""Plots of the ring study."""

import overlap
import plots
from ring import accuracy, gpu

COLORS = {'one_device': '#222222', 'heads': '#E69F00', 'kv': '#56B4E9', 'gather': '#0072B2',
          'ring': '#D55E00', 'striped': '#009E73', 'zigzag': '#CC79A7', 'blocks': '#999999'}
COPY = '#bbbbbb'
KIND_TITLES = {'gather': 'gather: all columns are fetched, in sections of heads',
               'ring': 'ring: a run of tokens each', 'striped': 'striped: every 8th token each',
               'zigzag': 'zigzag: two runs each, as far from both ends'}


def step_color(step, steps):
    """From dark to light."""
    import matplotlib
    return matplotlib.colormaps['viridis'](0.15 + 0.8 * step / max(steps - 1, 1))


def _lanes(axes, devices, title):
    axes.set_title(title)
    axes.set_yticks(range(devices), [str(i) for i in range(devices)])
    axes.set_ylim(devices - 0.4, -0.6)
    axes.set_ylabel('device')
    axes.tick_params(axis='y', length=0)


def _bars(axes, bars, copies):
    """`bars`: [(device, begin, end, color)]; copies are thin, under what is computed."""
    below, high = (0.24, 0.12) if copies else (-0.36, 0.6)
    for device in sorted({bar[0] for bar in bars}):
        of = [bar for bar in bars if bar[0] == device]
        axes.broken_barh([(begin, end - begin) for _, begin, end, _ in of], (device + below, high),
                         facecolors=[color for *_, color in of], linewidth=0 if copies else 0.4,
                         edgecolors='white')


def timelines(part):
    """What 8 devices do when, by the plans' steps and a model of their time. Without any: ''."""
    rows = [row for row in part.get('timelines', []) if row['ran_as'] == row['plan']]
    if not rows:
        return ''
    from matplotlib.patches import Patch
    end = max(compute['end_ms'] for row in rows for compute in row['computes'])
    devices = rows[0]['devices']
    with plots.figure(height=1.95 * len(rows) + 0.8) as (drawn, text):
        every = drawn.subplots(len(rows), 1, sharex=True)
        drawn.subplots_adjust(left=0.07, right=0.97, top=0.965, bottom=0.115, hspace=0.28)
        for axes, row in zip(every if len(rows) > 1 else [every], rows):
            _lanes(axes, devices, KIND_TITLES[row['plan']])
            computes, color = row['computes'], lambda c: step_color(c['step'], devices)
            if row['plan'] == 'gather':
                color = lambda c: COLORS['gather']
            _bars(axes, [(c['device'], c['begin_ms'], c['end_ms'], color(c)) for c in computes],
                  copies=False)
            _bars(axes, [(device, *span, COPY) for device in range(devices) for span in
                         overlap.union((p['begin_ms'], p['end_ms']) for p in row['pulls']
                                       if p['device'] == device)], copies=True)
            for compute in computes if row['plan'] != 'gather' else ():
                axes.text((compute['begin_ms'] + compute['end_ms']) / 2, compute['device'] - 0.06,
                          str(compute['blocks'][0]), ha='center', va='center_baseline',
                          fontsize=6.5,
                          color='white' if compute['step'] < 0.7 * devices else plots.INK)
            axes.set_xlim(0, end * 1.01)
        axes.set_xlabel('time, ms')
        colors = [(step_color(step, devices), f'step {step}') for step in range(devices)]
        colors += [(COLORS['gather'], 'a section'), (COPY, 'copies')]
        drawn.legend(handles=[Patch(color=color, label=label) for color, label in colors],
                     loc='lower center', ncol=5, handlelength=1, columnspacing=1.6)
    return text[0]


LABELS = {'blocks': 'blocks, 16-bit partial results', 'ring': 'ring', 'striped': 'striped',
          'zigzag': 'zigzag', 'gather': 'gather'}


def ranks(part, op='forward', tensor='o'):
    """By device, RMS errors to float64 over one device's. Without a row: ''."""
    rows = [row for plan in LABELS for row in [
        accuracy.row(part, op, plan, 'bf16' if plan == 'blocks' else 'f32')] if row]
    if not rows:
        return ''
    with plots.figure() as (drawn, text):
        axes = drawn.add_axes(plots.AXES)
        for row in rows:
            of = [rank['rms'] / rank['one_rms'] if rank['one_rms'] else 1
                  for rank in row['tensors'][tensor]['ranks']]
            axes.plot(range(len(of)), of, marker='o', color=COLORS[row['plan']], linewidth=1.8,
                      markersize=4.5, label=LABELS[row['plan']].replace(', ', ',\n'))
        axes.set_title(f'RMS error of {accuracy.NAMES[tensor]} to float64, by device')
        axes.set_ylabel("over one device's, same tokens")
        axes.set_xlabel('device')
        axes.set_xticks(range(rows[0]['devices']))
        axes.grid(axis='y')
        plots.legend_beside(axes)
    return text[0]


def speeds(part, op):
    """TFLOP/s of each GPU by length. Without any: ''."""
    series = []
    for plan in gpu.PLANS:
        rows = [row for length in gpu.lengths(part) for row in [gpu.time_of(part, plan, op, length)]
                if row]
        series.append((plan, COLORS[plan], [
            (row['len'], row['flops'] / row['devices'] / row['ms'] / 1e9) for row in rows]))
    return plots.line_plot(f'{op.capitalize()}, causal, batch 2, 16 heads of 128',
                           'length of all, tokens', 'TFLOP/s of each GPU', series)


def recorded(part):
    """What GPUs did when, as it was recorded. Without any: ''."""
    rows = [row for row in part.get('timelines', []) if row['spans']]
    if not rows:
        return ''
    devices = 1 + max(device for row in rows for device, *_ in row['spans'])
    end = max(span[3] for row in rows for span in row['spans'])
    with plots.figure(height=(0.6 + 0.35 * devices) * len(rows) + 0.6) as (drawn, text):
        every = drawn.subplots(len(rows), 1, sharex=True)
        drawn.subplots_adjust(left=0.07, right=0.97, top=0.93, bottom=0.14, hspace=0.6)
        for axes, row in zip(every if len(rows) > 1 else [every], rows):
            _lanes(axes, devices, row['plan'])
            for kind, color in (('kernel', COLORS[row['plan']]), ('copy', COPY)):
                _bars(axes, [(device, begin, until, color) for device, what, begin, until in
                             row['spans'] if what == kind], copies=kind == 'copy')
            axes.set_xlim(0, end * 1.01)
        axes.set_xlabel('time, ms; copies are grey')
    return text[0]


def draw(results):
    """{file name: SVG}"""
    part, recording = results.get('accuracy', {}), results.get('gpu', {})
    drawn = {'ring_timelines.svg': timelines(results.get('plans', {})),
             'ring_ranks.svg': ranks(part),
             'ring_forward.svg': speeds(recording, 'forward'),
             'ring_backward.svg': speeds(recording, 'backward'),
             'ring_recorded.svg': recorded(recording)}
    return {name: text for name, text in drawn.items() if text}
