"""Rows of results: tables, ratios, and whether the bars are met. Knows no torch."""

import csv
import math
from dataclasses import dataclass, field

# ours against others, at least; see bars().
GRID_TO_FA2 = 0.90
DECODE_TO_CUDNN = 0.85
GROUP_TO_SINGLES = 2.0
# Host time of a call, at most.
SETUP_US, SETUP_US_PER_PROBLEM = 20, 1
CLOCK_CHANGE = 1.05
# On Hopper: ours against cuDNN, over the grid and in each row of it; of the dims between, of
# decode, and of the longest row of dim 128; that row against a matrix product; a large group
# against its problems alone.
HOPPER_GRID, HOPPER_ROW = 1.00, 0.92
HOPPER_DIMS, HOPPER_DECODE = 0.95, 0.97
HOPPER_LONGEST, HOPPER_OF_MATMUL = 0.99, 0.80
HOPPER_GROUP = 0.92
# Of backward, the same; of two long rows; and of a fixed order of sums against any.
BACKWARD_GRID, BACKWARD_ROW = 1.05, 0.92
DETERMINISTIC = 0.85
# On any GPU: its kernels against FlashAttention-2.
SM80_BACKWARD = 0.90
GRID_DIMS = ('d64', 'd128', 'd256')
LONGEST = 'bf16 d128 b1 h16/16 16384x16384 full'
BACKWARD_ROWS = {LONGEST: 1.00, 'bf16 d256 b1 h8/8 16384x16384 full': 1.25}
MATMUL = 'bf16 matmul 8192^3'


@dataclass
class Row:
    """One line: what each side reached, more being better unless the unit is us, ms or MB."""
    section: str
    name: str
    unit: str
    values: dict = field(default_factory=dict)  # side: value
    timings: dict = field(default_factory=dict)  # side: timing.Timing
    notes: list = field(default_factory=list)
    size: int = 0  # problems, where that matters

    def ratio(self, over, under):
        """None when one was not measured."""
        a, b = self.values.get(over), self.values.get(under)
        return a / b if a and b else None

    def clock_note(self):
        """Why the sides may not be compared, or None."""
        clocks = [t.mhz for t in self.timings.values() if t.mhz]
        if len(clocks) < 2 or max(clocks) <= CLOCK_CHANGE * min(clocks):
            return None
        return f'clock moved: {min(clocks):.0f} to {max(clocks):.0f} MHz'


def geomean(ratios):
    ratios = [r for r in ratios if r]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def _width(side):
    return max(10, len(side))


def line(row, sides, against=()):
    """A row of a table: each side's value, then ours / each of `against`."""
    cells = [f'{row.name:34}']
    for side in sides:
        value = f'{row.values[side]:.1f}' if side in row.values else '-'
        cells.append(f'{value:>{_width(side)}}')
    for other in against:
        ratio = row.ratio(sides[0], other)
        value = f'{ratio:.3f}' if ratio else '-'
        cells.append(f'{value:>{_width("/ " + other)}}')
    notes = row.notes + [note for note in [row.clock_note()] if note]
    return ' '.join(cells) + ''.join(f'  # {note}' for note in notes)


def header(section, unit, sides, against=()):
    titles = [f'{side:>{_width(side)}}' for side in sides]
    titles += [f'{"/ " + other:>{_width("/ " + other)}}' for other in against]
    return ' '.join([f'{section + " [" + unit + "]":34}', *titles])


def means(rows, side, against):
    """Geometric means of a side over each of `against`, by part of the names and over all."""
    parts = {'all': rows}
    for row in rows:
        words = row.name.split()
        parts.setdefault(f'{words[1]} {words[-1]}', []).append(row)
    lines = []
    for part, of in parts.items():
        cells = []
        for other in against:
            mean = geomean(row.ratio(side, other) for row in of)
            cells.append(f'{side}/{other} {mean:.3f}' if mean else f'{side}/{other} -')
        lines.append(f'geometric mean, {part}: ' + ', '.join(cells))
    return lines


def _bar(what, value, bar, most=False):
    """A line, and whether it is met. What was not measured is not."""
    if value is None:
        return f'{what}: not measured', False
    met = value <= bar if most else value >= bar
    sign = '<=' if most else '>='
    return f'{what}: {value:.3f}, must be {sign} {bar:g}', met


def _mean_bar(rows, side, other, bar):
    """Of all rows of a section, or of none."""
    if not rows:
        return []
    ratios = [row.ratio(side, other) for row in rows]
    mean = geomean(ratios) if all(ratios) else None
    return [_bar(f'{rows[0].section}, geometric mean of {side}/{other}', mean, bar)]


def bars(rows):
    """(line, met) for each bar of the sections that were run."""
    of = lambda section: [row for row in rows if row.section == section]
    found = _mean_bar(of('grid'), 'ours', 'fa2', GRID_TO_FA2)
    found += _mean_bar(of('sm80_backward'), 'any_gpu', 'fa2', SM80_BACKWARD)
    for row in of('decode'):
        found.append(_bar(f'{row.name}, ours/cudnn', row.ratio('ours', 'cudnn'), DECODE_TO_CUDNN))
    for row in of('group'):
        if row.name == 'graph':
            found.append(_bar('one call over one by one', row.ratio('one_call', 'one_by_one'),
                              GROUP_TO_SINGLES))
    for row in of('setup'):
        bar = SETUP_US + SETUP_US_PER_PROBLEM * row.size
        found.append(_bar(f'host us of a call, {row.name}', row.values.get('ours'), bar, most=True))
    return found


def hopper_bars(rows):
    """The same for those that are Hopper's alone."""
    of = lambda section: [row for row in rows if row.section == section]
    to_cudnn = lambda row: row.ratio('ours', 'cudnn')
    grid = [row for row in of('grid') if row.name.split()[1] in GRID_DIMS]
    found = _mean_bar(grid, 'ours', 'cudnn', HOPPER_GRID)
    for row in of('grid'):
        bar = HOPPER_ROW if row in grid else HOPPER_DIMS
        if row.name == LONGEST:
            bar = HOPPER_LONGEST
            found.append(_of_matmul(row, of('ceiling')))
        found.append(_bar(f'{row.name}, ours/cudnn', to_cudnn(row), bar))
    for row in of('decode'):
        found.append(_bar(f'{row.name}, ours/cudnn', to_cudnn(row), HOPPER_DECODE))
    for row in of('large_group'):
        found.append(_bar('large group, one call/each alone', row.ratio('one_call', 'each_alone'),
                          HOPPER_GROUP))
    return found + _hopper_backward_bars(of('backward'), of('deterministic'))


def _hopper_backward_bars(grid, deterministic):
    found = _mean_bar(grid, 'ours', 'cudnn', BACKWARD_GRID)
    for row in grid:
        found.append(_bar(f'backward {row.name}, ours/cudnn', row.ratio('ours', 'cudnn'),
                          BACKWARD_ROWS.get(row.name, BACKWARD_ROW)))
    for row in deterministic:
        found.append(_bar(f'{row.name}, deterministic/ours', row.ratio('deterministic', 'ours'),
                          DETERMINISTIC))
    return found


def _of_matmul(row, ceilings):
    for ceiling in ceilings:
        if ceiling.name == MATMUL and 'ours' in row.values:
            value = row.values['ours'] / ceiling.values['machine']
            return _bar(f'{row.name}, of {MATMUL}', value, HOPPER_OF_MATMUL)
    return _bar(f'{row.name}, of {MATMUL}', None, HOPPER_OF_MATMUL)


CSV_HEADER = ['section', 'row', 'side', 'unit', 'value', 'ms', 'mhz', 'celsius', 'notes']


def write_csv(path, rows):
    with open(path, 'w', newline='') as file:
        out = csv.writer(file)
        out.writerow(CSV_HEADER)
        for row in rows:
            for side, value in row.values.items():
                t = row.timings.get(side)
                timing = [f'{t.ms:.5f}', f'{t.mhz:.0f}', f'{t.celsius:.0f}'] if t else ['', '', '']
                out.writerow([row.section, row.name, side, row.unit, f'{value:.4f}', *timing,
                              '; '.join(row.notes)])
