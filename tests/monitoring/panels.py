"""The dashboard's panels, and whether each has data."""

import json
import math
import pathlib

DASHBOARD = (pathlib.Path(__file__).resolve().parents[2]
             / 'deploy/monitoring/grafana/dashboards/attnd.json')
# As deploy/monitoring/dashboard.py marks them.
NEEDS_GPU = 'Needs a GPU.'


def panels():
    """(row, panel) of each that has expressions."""
    row = ''
    for panel in json.loads(DASHBOARD.read_text())['panels']:
        if panel['type'] == 'row':
            row = panel['title']
        else:
            yield row, panel


def needs_gpu(panel):
    return panel['description'].startswith(NEEDS_GPU)


def substituted(expression, scrape_seconds):
    """With Grafana's variables as they are for all instances: the rate interval is at least
    four scrapes."""
    return (expression.replace('$instance', '.*')
            .replace('$__rate_interval', f'{int(4000 * scrape_seconds)}ms'))


def verdict(series):
    """What a panel would show of an expression: "" for data that moves or is there, else what
    is wrong."""
    values = [value for one in series for value in one if not math.isnan(value)]
    if not values:
        return 'no data'
    return '' if any(values) else 'always 0'
