#!/usr/bin/env python3
"""Writes grafana/dashboards/attnd.json from the short description of it below.

  deploy/monitoring/dashboard.py            writes it
  deploy/monitoring/dashboard.py --check    fails if it is not what this would write

Grafana's own format takes some 25 lines a panel, in which a mistake hides well; this takes
three. Change the dashboard here. `docs/metrics.md` says what each metric means.
"""

import json
import pathlib
import sys

TARGET = pathlib.Path(__file__).resolve().parent / 'grafana/dashboards/attnd.json'
DATASOURCE = {'type': 'prometheus', 'uid': '${datasource}'}
COLUMNS = 24  # of Grafana's grid
# What the description of a panel begins with that has data only where there is a GPU.
NEEDS_GPU = 'Needs a GPU.'
RATE = '[$__rate_interval]'


def of(metric, *matchers):
    """`metric` of the chosen instances, with further matchers."""
    return metric + '{' + ', '.join(['instance=~"$instance"', *matchers]) + '}'


def per_second(metric, *matchers):
    return f'rate({of(metric, *matchers)}{RATE})'


def total(by, expression):
    return f'sum by ({by}) ({expression})'


def quantile(q, histogram, by, *matchers):
    buckets = total(f'{by}, le' if by else 'le', per_second(f'{histogram}_bucket', *matchers))
    return f'histogram_quantile({q}, {buckets})'


def mean(histogram, by):
    return (f'{total(by, per_second(histogram + "_sum"))}'
            f' / {total(by, per_second(histogram + "_count"))}')


def quantiles(histogram, by, *matchers):
    """p50, p90 and p99, a series each for every value of the label `by`."""
    return [(quantile(q, histogram, by, *matchers), f'p{q * 100:g} {{{{{by}}}}}')
            for q in (0.5, 0.9, 0.99)]


def panel(title, *series, unit='short', kind='timeseries', width=8, height=8, about='',
          stack=False, largest=None, mappings=None):
    """`series` are (expression, legend). `about` is what a hand over the panel's i shows."""
    defaults = {'unit': unit, 'min': 0}
    if largest is not None:
        defaults['max'] = largest
    if mappings:
        defaults['mappings'] = mappings
    options = {}
    if kind == 'timeseries':
        defaults['custom'] = {'fillOpacity': 20 if stack else 0,
                              'stacking': {'mode': 'normal' if stack else 'none'},
                              'showPoints': 'never'}
        options = {'legend': {'displayMode': 'list', 'placement': 'bottom'},
                   'tooltip': {'mode': 'multi', 'sort': 'desc'}}
    elif kind == 'stat':
        options = {'reduceOptions': {'calcs': ['lastNotNull']}, 'graphMode': 'area'}
    elif kind == 'heatmap':
        options = {'calculate': False, 'yAxis': {'unit': unit}}
    targets = []
    for ref, (expression, legend) in enumerate(series):
        target = {'refId': chr(ord('A') + ref), 'expr': expression, 'legendFormat': legend}
        if kind == 'heatmap':
            target['format'] = 'heatmap'
        if kind == 'table':
            target.update(format='table', instant=True)
        targets.append(target)
    made = {'title': title, 'type': kind, 'description': about,
            'gridPos': {'w': width, 'h': height}, 'datasource': DATASOURCE,
            'fieldConfig': {'defaults': defaults, 'overrides': []},
            'options': options, 'targets': targets}
    if kind == 'table':
        made['transformations'] = [{'id': 'organize', 'options': {'excludeByName': {
            'Time': True, 'Value': True, '__name__': True, 'job': True}}}]
    return made


def stat(title, expression, unit='short', about='', mappings=None):
    return panel(title, (expression, ''), unit=unit, kind='stat', width=3, height=4,
                 about=about, mappings=mappings)


ERRORS = 'code=~"INTERNAL|UNKNOWN|UNAVAILABLE|DATA_LOSS"'

ROWS = {
    'Overview': [
        stat('Servers up', 'sum(up{job="attnd", instance=~"$instance"})'),
        stat('Devices in service', f'sum({of("attnd_device_in_service")})',
             about='Of all chosen servers. With several alike, their team counts as one more.'),
        stat('Draining', f'sum({of("attnd_draining")})',
             about='Servers that end: they take no new work.'),
        stat('Calls', f'sum({per_second("attnd_requests_total")})', 'reqps'),
        stat('Failing', f'sum({per_second("attnd_requests_total", ERRORS)})'
             f' / sum({per_second("attnd_requests_total")})', 'percentunit',
             about='INTERNAL, UNKNOWN, UNAVAILABLE and DATA_LOSS, of all calls.'),
        stat('p50', quantile(0.5, 'attnd_request_duration_seconds', ''), 's',
             about='From a call\'s headers to its end, of all methods.'),
        stat('p99', quantile(0.99, 'attnd_request_duration_seconds', ''), 's',
             about='From a call\'s headers to its end, of all methods.'),
        stat('Oldest request waits', f'max({of("attnd_queue_oldest_seconds")})', 's'),
        panel('Calls by method', (total('method', per_second('attnd_requests_total')),
                                  '{{method}}'), unit='reqps', stack=True),
        panel('Calls by code', (total('code', per_second('attnd_requests_total')), '{{code}}'),
              unit='reqps', stack=True),
        panel('Alerts', (total('alertname, instance',
                               of('ALERTS', 'alertname=~"Attnd.*"', 'alertstate="firing"')),
                         '{{alertname}} {{instance}}'),
              about='Those that fire. docs/alerts.md says what each means and what to do.'),
        panel('Bytes of messages',
              (f'sum({per_second("attnd_received_bytes_total")})', 'received'),
              (f'sum({per_second("attnd_sent_bytes_total")})', 'sent'), unit='Bps'),
        panel('Computed', (total('method', per_second('attnd_floating_point_operations_total')),
                           '{{method}}'), unit='flops', stack=True,
              about='Floating-point operations of requests that ran.'),
        panel('Versions', (of('attnd_build_info'), ''), kind='table',
              about='What each server is. Two versions for long are a rollout that has stopped.'),
    ],
    'Latency': [
        panel('Calls', *quantiles('attnd_request_duration_seconds', 'method'), unit='s', width=6,
              about='From a call\'s headers to its end, with the time in which its message '
                    'waited and arrived.'),
        panel('Calls, as they are spread',
              (total('le', f'increase({of("attnd_request_duration_seconds_bucket")}{RATE})'),
               '{{le}}'), unit='s', kind='heatmap', width=6),
        panel('Mean by phase', (mean('attnd_phase_duration_seconds', 'phase'), '{{phase}}'),
              unit='s', width=6, stack=True, about='Of requests that ran.'),
        panel('Slow calls', (per_second('attnd_slow_calls_total'), '{{instance}}'), unit='reqps',
              width=6, about='Slower than --slow_time. The log and /statusz name them.'),
        *[panel(phase.capitalize(),
                *quantiles('attnd_phase_duration_seconds', 'method', f'phase="{phase}"'),
                unit='s', width=6, about=about)
          for phase, about in {
              'queue': 'How long requests wait until a lane takes them.',
              'upload': 'How long inputs take to get to the device.',
              'compute': 'How long kernels run.',
              'download': 'How long results take to get back to the host.'}.items()],
    ],
    'Queue and batches': [
        panel('Requests that wait', (of('attnd_queue_requests'), '{{instance}}'),
              (of('attnd_max_queue_requests'), 'limit {{instance}}')),
        panel('Work that waits', (of('attnd_queue_floating_point_operations'), '{{instance}}'),
              (of('attnd_max_queue_floating_point_operations'), 'limit {{instance}}'),
              about='In floating-point operations.'),
        panel('Oldest request waits', (of('attnd_queue_oldest_seconds'), '{{instance}}'),
              unit='s'),
        panel('Requests on devices', (of('attnd_running_requests'), '{{instance}}')),
        panel('Requests in a group', *[(quantile(q, 'attnd_batch_requests', ''), f'p{q * 100:g}')
                                       for q in (0.5, 0.9, 0.99)],
              ('sum({}) / sum({})'.format(per_second('attnd_batch_requests_sum'),
                                          per_second('attnd_batch_requests_count')), 'mean'),
              about='How many requests ran together, as each request saw it.'),
        panel('Messages that wait to be read', (of('attnd_uploads_waiting'), '{{instance}}'),
              about='Held back by flow control until there is memory for them.'),
    ],
    'Errors and refusals': [
        panel('Calls that failed',
              (total('code', per_second('attnd_requests_total', 'code!="OK"')), '{{code}}'),
              unit='reqps', stack=True),
        panel('Calls refused',
              (total('reason', per_second('attnd_refused_calls_total')), '{{reason}}'),
              unit='reqps', stack=True),
        panel('Refused before they were read',
              (per_second('attnd_uploads_refused_total'), '{{instance}}'), unit='reqps',
              about='As there was no memory for their messages.'),
    ],
    'Devices': [
        panel('In service', (of('attnd_device_in_service'), '{{instance}} {{device}}'),
              largest=1, about='0 after a fault, until attnd starts again.'),
        panel('Lanes that are busy',
              (f'{per_second("attnd_lane_busy_seconds_total")} / {of("attnd_lanes")}',
               '{{instance}} {{device}}'), unit='percentunit', largest=1,
              about='How much of its lanes\' time a device is at work. Close to 100 % for long: '
                    'it has no room for more.'),
        panel('Longest group', (of('attnd_lane_longest_seconds'), '{{instance}} {{device}}'),
              unit='s', about='How long the group has run that has run longest.'),
        panel('Models', (of('attnd_device_info'), ''), kind='table'),
        panel('GPU at work', (of('attnd_gpu_utilization_ratio'), '{{instance}} {{device}}'),
              unit='percentunit', largest=1, width=12,
              about=f'{NEEDS_GPU} Share of time in which some kernel ran, as the driver has it.'),
        panel('GPU memory', (of('attnd_gpu_memory_used_bytes'), '{{instance}} {{device}}'),
              (of('attnd_gpu_memory_total_bytes'), 'has {{instance}} {{device}}'),
              unit='bytes', width=12,
              about=f'{NEEDS_GPU} Of all processes on it.'),
    ],
    'Memory': [
        panel('Held by admitted requests', (of('attnd_account_bytes'), '{{instance}}'),
              (of('attnd_account_limit_bytes'), 'limit {{instance}}'), unit='bytes',
              about='Inputs, scratch and outputs.'),
        panel('Kept for messages on their way', (of('attnd_upload_bytes'), '{{instance}}'),
              (of('attnd_upload_limit_bytes'), 'limit {{instance}}'), unit='bytes'),
        panel('Resident', ('process_resident_memory_bytes{job="attnd", instance=~"$instance"}',
                           '{{instance}}'),
              (of('attnd_memory_limit_bytes'), '--memory_limit {{instance}}'), unit='bytes',
              about='On a CPU it stays below --memory_limit + 64 MiB + --region_memory.'),
    ],
    'Connections and TLS': [
        panel('Open', (of('attnd_connections'), '{{instance}}'),
              (of('attnd_max_connections'), 'limit {{instance}}')),
        panel('Taken in', (per_second('attnd_accepted_connections_total'), '{{instance}}'),
              unit='cps'),
        panel('Refused as they came',
              (total('instance, reason', per_second('attnd_refused_connections_total')),
               '{{instance}} {{reason}}'), unit='cps'),
        panel('Ended for what they sent',
              (total('instance, code', per_second('attnd_cut_connections_total')),
               '{{instance}} {{code}}'), unit='cps',
              about='Connections that broke HTTP/2\'s rules or flooded.'),
        panel('TLS handshakes', (per_second('attnd_tls_handshakes_total'), 'done {{instance}}'),
              (per_second('attnd_tls_handshakes_failed_total'), 'failed {{instance}}'),
              unit='cps'),
        panel('Certificate is good for',
              (f'{of("attnd_tls_certificate_expiry_seconds")} - time()', '{{instance}}'),
              unit='s', about='Of servers with --tls_cert.'),
        panel('Renewals of TLS files', (f'increase({of("attnd_tls_renewals_total")}{RATE})',
                                        '{{instance}}')),
        panel('Ended for their certificates',
              (per_second('attnd_tls_ended_connections_total'), '{{instance}}'), unit='cps',
              about='Connections whose client\'s certificate has expired or is not known any '
                    'more.'),
        panel('Files as they should be', (of('attnd_tls_files_good'), 'TLS {{instance}}'),
              (of('attnd_token_file_good'), 'tokens {{instance}}'), largest=1,
              about='0: it has changed and is not good, and what was good stays.'),
    ],
    'Process': [
        panel('Processors busy',
              (f'rate(process_cpu_seconds_total{{job="attnd", instance=~"$instance"}}{RATE})',
               '{{instance}}')),
        panel('Descriptors', ('process_open_fds{job="attnd", instance=~"$instance"}',
                              '{{instance}}'),
              ('process_max_fds{job="attnd", instance=~"$instance"}', 'limit {{instance}}')),
        panel('Threads', ('process_threads{job="attnd", instance=~"$instance"}', '{{instance}}')),
        panel('Virtual memory', ('process_virtual_memory_bytes{job="attnd", '
                                 'instance=~"$instance"}', '{{instance}}'), unit='bytes'),
        panel('Runs for', ('time() - process_start_time_seconds{job="attnd", '
                           'instance=~"$instance"}', '{{instance}}'), unit='s'),
        panel('Lines left out of the log',
              (total('source, reason', per_second('attnd_log_lines_left_out_total')),
               '{{source}} {{reason}}'),
              about='"reader": whoever reads the log is too slow. "budget": clients caused so '
                    'many lines that the rest were left out.'),
    ],
    'Regions': [
        panel('Connections and regions', (of('attnd_region_connections'), 'connections '
                                                                          '{{instance}}'),
              (of('attnd_region_leases'), 'leased {{instance}}')),
        panel('Host memory', (of('attnd_region_leased_bytes'), 'leased {{instance}}'),
              (of('attnd_region_free_bytes'), 'free {{instance}}'), unit='bytes'),
        panel('Refused', (total('instance, reason', per_second('attnd_region_refused_total')),
                          '{{instance}} {{reason}}'), unit='reqps'),
        panel('Made anew', (per_second('attnd_region_slabs_replaced_total'), '{{instance}}'),
              about='Regions made for those given back.'),
        panel('Pieces pinned', (per_second('attnd_region_pinned_pieces_total'), '{{instance}}')),
        panel('Clients\' GPU memory', (of('attnd_region_imported_bytes'), '{{instance}}'),
              unit='bytes', width=4, about=f'{NEEDS_GPU} Lent by clients on the same host.'),
        panel('Regions of it', (of('attnd_region_imports'), '{{instance}}'), width=4,
              about=f'{NEEDS_GPU} Regions of clients\' GPU memory.'),
    ],
}


def variable(name, kind, **rest):
    return {'name': name, 'type': kind, 'label': name, **rest}


def laid_out(rows):
    """Grafana's list of panels: each row's from left to right, with numbers and places."""
    panels, y = [], 0

    def add(made, x, height):
        made['gridPos'].update(x=x, y=y)
        made['id'] = len(panels) + 1
        panels.append(made)
        return height

    for title, row in rows.items():
        y += add({'title': title, 'type': 'row', 'collapsed': False,
                  'gridPos': {'w': COLUMNS, 'h': 1}, 'panels': []}, 0, 1)
        x = height = 0
        for made in row:
            if x + made['gridPos']['w'] > COLUMNS:
                x, y = 0, y + height
            height = add(made, x, made['gridPos']['h'])
            x += made['gridPos']['w']
        y += height
    return panels


def dashboard():
    return {
        'uid': 'attnd', 'title': 'attnd', 'tags': ['attnd'], 'schemaVersion': 39, 'version': 1,
        'editable': True, 'timezone': 'browser', 'refresh': '30s', 'graphTooltip': 1,
        'time': {'from': 'now-1h', 'to': 'now'},
        'templating': {'list': [
            variable('datasource', 'datasource', query='prometheus'),
            variable('instance', 'query', datasource=DATASOURCE, refresh=2, sort=1,
                     query='label_values(attnd_build_info, instance)', multi=True,
                     includeAll=True, allValue='.*',
                     current={'text': 'All', 'value': '$__all'})]},
        'annotations': {'list': [{
            'name': 'Starts', 'enable': True, 'iconColor': 'blue', 'datasource': DATASOURCE,
            'expr': 'changes(process_start_time_seconds{job="attnd", '
                    'instance=~"$instance"}[1m]) > 0',
            'titleFormat': 'attnd started', 'textFormat': '{{instance}}'}]},
        'panels': laid_out(ROWS),
    }


def as_text(value, indent=0, before=0):
    """JSON in which what fits on a line has one, so that a person can read a difference. The
    line begins `indent` in, and `before` characters of it are there."""
    line = json.dumps(value, ensure_ascii=False)
    fits = indent + before + len(line) <= 100
    if fits or not isinstance(value, (dict, list)) or not value:
        return line
    pad = ' ' * (indent + 1)
    if isinstance(value, list):
        parts = [as_text(item, indent + 1) for item in value]
    else:
        keys = {json.dumps(key) + ': ': item for key, item in value.items()}
        parts = [key + as_text(item, indent + 1, len(key)) for key, item in keys.items()]
    brackets = '[]' if isinstance(value, list) else '{}'
    return (brackets[0] + '\n' + pad + (',\n' + pad).join(parts) + '\n' + ' ' * indent
            + brackets[1])


def main():
    text = as_text(dashboard()) + '\n'
    if sys.argv[1:] == ['--check']:
        if not TARGET.is_file() or TARGET.read_text() != text:
            sys.exit(f'{TARGET} is not what dashboard.py writes; run it')
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        TARGET.write_text(text)


if __name__ == '__main__':
    main()
