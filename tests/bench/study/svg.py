"""Two kinds of plot as SVG text: lines and groups of bars."""

import math
from html import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 84, 220, 40, 50  # margins; the legend is at the right
INK, FAINT = '#222222', '#dddddd'


def _text(x, y, text, anchor='middle', size=12, more=''):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {more}>'
            f'{escape(text)}</text>')


def _line(x1, y1, x2, y2, color, width=1):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
            f'stroke-width="{width}"/>')


def number(value):
    """Short, as on an axis."""
    if value >= 1e6 or 0 < value < 1e-2:
        digits = f'{value:.0e}'
        return digits.replace('e+0', 'e').replace('e-0', 'e-')
    return f'{value:,.12g}' if value >= 1e4 else f'{value:g}'


def linear_ticks(most, count=5):
    """From 0 to at least `most`, in steps of 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return [0, 1]
    rough = most / count
    power = 10**math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    return [i * step for i in range(math.ceil(most / step - 1e-9) + 1)]


def log_ticks(least, most):
    """The powers of ten around."""
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    return [10.0**i for i in range(low, max(high, low + 1) + 1)]


class _Axis:
    """Where a value is on the y axis."""

    def __init__(self, values, log):
        self.log = log
        positive = [v for v in values if v > 0] or [1]
        self.ticks = log_ticks(min(positive), max(positive)) if log else linear_ticks(max(positive))

    def __call__(self, value):
        low, high = self.ticks[0], self.ticks[-1]
        if self.log:
            low, high, value = (math.log10(max(v, self.ticks[0])) for v in (low, high, value))
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def _frame(title, y_label, axis, legend):
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, TOP - 16, title, 'start', 14, 'font-weight="bold"'),
        _text(0, 0, y_label, 'middle', 12,
              f'transform="translate(18 {(HEIGHT - BOTTOM + TOP) / 2:.0f}) rotate(-90)"'),
    ]
    for tick in axis.ticks:
        parts.append(_line(LEFT, axis(tick), WIDTH - RIGHT, axis(tick), FAINT))
        parts.append(_text(LEFT - 8, axis(tick) + 4, number(tick), 'end'))
    for i, (name, color) in enumerate(legend):
        y = TOP + 8 + 20 * i
        parts.append(f'<rect x="{WIDTH - RIGHT + 16}" y="{y - 9}" width="12" height="12" '
                     f'fill="{color}"/>')
        parts.append(_text(WIDTH - RIGHT + 34, y + 2, name, 'start'))
    return parts


def line_plot(title, x_label, y_label, series, log_y=False):
    """`series`: [(name, color, [(x, y)])], x on a scale of powers of two. Without a point: ''."""
    series = [(name, color, sorted(points)) for name, color, points in series if points]
    if not series:
        return ''
    axis = _Axis([y for _, _, points in series for _, y in points], log_y)
    xs = sorted({x for _, _, points in series for x, _ in points})
    low, span = math.log2(xs[0]), math.log2(xs[-1] / xs[0]) or 1
    place = lambda x: LEFT + 20 + (math.log2(x) - low) / span * (WIDTH - LEFT - RIGHT - 40)
    parts = _frame(title, y_label, axis, [(name, color) for name, color, _ in series])
    parts += [_text(place(x), HEIGHT - BOTTOM + 18, number(x)) for x in xs]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label))
    for _, color, points in series:
        path = ' '.join(f'{place(x):.1f},{axis(y):.1f}' for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{place(x):.1f}" cy="{axis(y):.1f}" r="3.5" fill="{color}"/>'
                  for x, y in points]
    return '\n'.join([*parts, '</svg>', ''])


def bar_plot(title, y_label, groups, colors, log_y=False):
    """`groups`: [(label, {name: value})]; `colors`: {name: color}, in order. Without a bar: ''."""
    names = [n for n in colors if any(n in values for _, values in groups)]
    if not names:
        return ''
    axis = _Axis([v for _, values in groups for v in values.values()], log_y)
    parts = _frame(title, y_label, axis, [(name, colors[name]) for name in names])
    wide = (WIDTH - LEFT - RIGHT) / len(groups)
    bar = 0.8 * wide / len(names)
    for i, (label, values) in enumerate(groups):
        left = LEFT + i * wide + 0.1 * wide
        parts.append(_text(left + 0.4 * wide, HEIGHT - BOTTOM + 18, label, size=11))
        for j, name in enumerate(names):
            if name in values:
                top = axis(values[name])
                parts.append(f'<rect x="{left + j * bar:.1f}" y="{top:.1f}" width="{bar:.1f}" '
                             f'height="{HEIGHT - BOTTOM - top:.1f}" fill="{colors[name]}"/>')
    return '\n'.join([*parts, '</svg>', ''])
