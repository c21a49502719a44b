"""Plots as SVG text, drawn by matplotlib: the same results give the same bytes.

What draws is loaded when it is needed: a machine that only measures may go without.
"""

import contextlib
import io

WIDTH, HEIGHT = 7.6, 4.0  # inches
INK, FAINT = '#222222', '#dddddd'
# Text stays text, in a font that matplotlib brings along, so that places do not depend on the
# machine; ids come from what is drawn, and nothing has a date.
STYLE = {
    'svg.fonttype': 'none', 'svg.hashsalt': 'attnd', 'font.family': 'DejaVu Sans', 'font.size': 9,
    'text.color': INK, 'axes.labelcolor': INK, 'axes.edgecolor': INK, 'xtick.color': INK,
    'ytick.color': INK, 'axes.titlesize': 10, 'axes.titleweight': 'bold',
    'axes.titlelocation': 'left', 'axes.spines.top': False, 'axes.spines.right': False,
    'axes.axisbelow': True, 'grid.color': FAINT, 'legend.frameon': False, 'figure.facecolor': 'white',
}
AXES = (0.125, 0.13, 0.60, 0.76)


def is_there():
    """Whether there is a matplotlib to draw with."""
    try:
        import matplotlib  # pylint: disable=unused-import
    except ImportError:
        return False
    return True


def number(value):
    """Short, as on an axis."""
    if value >= 1e6 or 0 < value < 1e-2:
        digits = f'{value:.0e}'
        return digits.replace('e+0', 'e').replace('e-0', 'e-')
    return f'{value:,.12g}' if value >= 1e4 else f'{value:g}'


@contextlib.contextmanager
def figure(width=WIDTH, height=HEIGHT):
    """A new figure, and a list to which its SVG text is added when it has been drawn."""
    import matplotlib
    from matplotlib.figure import Figure
    with matplotlib.rc_context(STYLE):
        drawn, text = Figure(figsize=(width, height)), []
        yield drawn, text
        out = io.StringIO()
        drawn.savefig(out, format='svg', metadata={'Date': None})
        text.append(''.join(line.rstrip() + '\n' for line in out.getvalue().splitlines()))


def legend_beside(axes, **more):
    """The legend to the right of the axes."""
    axes.legend(loc='upper left', bbox_to_anchor=(1.01, 1.02), borderaxespad=0, **more)


def value_axis(axes, label, log):
    from matplotlib.ticker import FuncFormatter, NullFormatter
    axes.set_ylabel(label)
    axes.grid(axis='y')
    if log:
        axes.set_yscale('log')
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def length_axis(axes, lengths, label):
    """A scale of powers of two with these ticks."""
    axes.set_xscale('log', base=2)
    axes.set_xticks(lengths, [number(x) for x in lengths])
    axes.minorticks_off()
    axes.set_xlabel(label)


def _covers(line, other):
    """Whether one line of points hides another, which then is drawn thicker."""
    at = dict(line)
    return all(x in at and abs(at[x] - y) <= 0.04 * abs(y) for x, y in other)


def line_plot(title, x_label, y_label, series, log_y=False):
    """`series`: [(name, color, [(x, y)])], x on a scale of powers of two. Without a point: ''. On a
    scale of logarithms what is not above 0 is left out."""
    kept = lambda points: sorted((x, y) for x, y in points if y > 0 or not log_y)
    series = [(name, color, kept(points)) for name, color, points in series]
    series = [line for line in series if line[2]]
    if not series:
        return ''
    with figure() as (drawn, text):
        axes = drawn.add_axes(AXES)
        for i, (name, color, points) in enumerate(series):
            over = sum(_covers(line[2], points) for line in series[i + 1:])
            axes.plot(*zip(*points), marker='o', color=color, label=name,
                      linewidth=1.8 + 2.2 * over, markersize=4.5 + 3 * over)
        length_axis(axes, sorted({x for _, _, points in series for x, _ in points}), x_label)
        value_axis(axes, y_label, log_y)
        axes.set_title(title)
        legend_beside(axes)
    return text[0]


def bar_plot(title, y_label, groups, colors, log_y=False):
    """`groups`: [(label, {name: value})]; `colors`: {name: color}, in order. Without a bar: ''."""
    names = [n for n in colors if any(n in values for _, values in groups)]
    if not names:
        return ''
    width = 0.8 / len(names)
    with figure() as (drawn, text):
        axes = drawn.add_axes(AXES)
        value_axis(axes, y_label, log_y)
        for i, name in enumerate(names):
            bars = [(group + (i + 0.5) * width - 0.4, values[name])
                    for group, (_, values) in enumerate(groups) if name in values]
            axes.bar(*zip(*bars), width=width, color=colors[name], label=name)
        axes.set_xticks(range(len(groups)), [label for label, _ in groups])
        axes.tick_params(axis='x', length=0)
        axes.set_title(title)
        legend_beside(axes)
    return text[0]
