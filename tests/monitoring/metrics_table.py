"""docs/metrics.md as data."""

import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[2] / 'docs/metrics.md'
# A row: the metric, when there is one, its type and its labels.
ROW = re.compile(r'^\| `([a-z_]+)`(?: \(([^)]*)\))? \| (counter|gauge|histogram) \| ([^|]*)\|')


def read(text):
    """{name: (type, labels, condition)}, labels as a set, condition '' for always. ValueError:
    a metric is there twice."""
    table = {}
    for row in filter(None, map(ROW.match, text.splitlines())):
        name, condition, kind, labels = row.groups()
        if name in table:
            raise ValueError(f'{name} is there twice')
        table[name] = (kind, frozenset(re.findall(r'`(\w+)`', labels)), condition or '')
    return table
