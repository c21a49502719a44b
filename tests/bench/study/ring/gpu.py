"""The part `gpu` of the ring study: times, copies, accuracy and timelines of plans on real GPUs.

Each of RECORDINGS is kept by itself, as soon as it is there; one that cannot be made says why.
"""

import csv
import os
import pathlib
import tempfile

import overlap
from ring import accuracy, published
from ring.plans import KINDS, run_program

RECORDINGS = ('table', 'hiding', 'connections', 'timelines', 'accuracy')
PLANS = ('one_device', 'heads', 'kv', *KINDS)
SHAPE = {'batch': 2, 'heads': 16, 'dim': 128}
CONNECTIONS = (1, 8, 32)
CONNECTIONS_LOCAL = 8192  # tokens a GPU, as in the note's profile; and of the timelines
HIDING = ('full', 'causal, zigzag')
LOWEST, HIGHEST = 512, 65536  # tokens a GPU between which copies begin to hide


class Recorder:
    """Runs ring_study on some GPUs. `shrink`: lengths are that part of what they are."""

    def __init__(self, program, device='cuda', trace_library=None, quick=False, shrink=1):
        self.program, self.device, self.trace_library = program, device, trace_library
        self.pace = {'rounds': 1, 'settle_ms': 0, 'timed_ms': 10} if quick else {
            'rounds': 2, 'settle_ms': 400, 'timed_ms': 600}
        self.shrink = shrink

    def times(self, plans, length, causal=1, environment=None, **more):
        """Rows of these plans; each by itself where they fail together, and {plan: why} of those
        that do then."""
        flags = {**SHAPE, 'device': self.device, 'lens': max(1, length // self.shrink),
                 'causal': causal, 'ops': 'forward,backward', **self.pace, **more}
        try:
            return run_program(self.program, 'time', environment, plans=plans, **flags), {}
        except RuntimeError as error:
            if len(plans) == 1:
                return [], {plans[0]: str(error)}
        rows, failed = [], {}
        for plan in plans:
            found, why = self.times([plan], length, causal, environment, **more)
            rows += found
            failed.update(why)
        return rows, failed

    def table(self):
        """The note's table, for every plan."""
        rows, failed = [], {}
        for length in published.LENGTHS:
            found, why = self.times(PLANS, length)
            rows += found
            failed.update(why)
        return {'rows': rows, 'failed': failed}

    def count(self):
        """How many GPUs there are. RuntimeError: none, or they cannot be used."""
        rows = run_program(self.program, 'time', device=self.device, plans='heads', lens=256,
                           heads=2, rounds=1, settle_ms=0, timed_ms=0)
        return rows[0]['devices'], rows[0]['device']

    def connections(self, devices):
        """Of the ring, and of gather, with so many hardware queues."""
        rows = []
        for number in CONNECTIONS:
            environment = {**os.environ, 'CUDA_DEVICE_MAX_CONNECTIONS': str(number)}
            found, _ = self.times(['gather', 'ring'], devices * CONNECTIONS_LOCAL,
                                  environment=environment, ops='forward', batch=1)
            rows += [{**row, 'connections': number} for row in found]
        return rows

    def copy_and_step(self, devices, tokens, causal):
        """Milliseconds in which a block of so many tokens is copied, and a step over it computed.
        What a full gather of one section takes longer than computing are the copies."""
        length, more = devices * tokens, {'ops': 'forward', 'batch': 1}
        full, failed = self.times(['one_device', 'gather'], length, 0, sections=1, **more)
        if failed:
            raise RuntimeError(f'{failed}')
        ms = {row['plan']: row['ms'] for row in full}
        copy = (ms['gather'] - ms['one_device'] / devices) / (devices - 1)
        alone = ms['one_device']
        if causal:
            alone = self.times(['one_device'], length, 1, **more)[0][0]['ms']
        return copy, alone / devices**2

    def hiding(self, devices):
        """From which number of tokens a GPU on a copy takes no longer than a step."""
        rows = []
        for what in HIDING:
            measured = []

            def hides(tokens, causal=what != 'full', measured=measured):
                copy, step = self.copy_and_step(devices, tokens, causal)
                measured.append({'tokens': tokens, 'copy_ms': copy, 'step_ms': step})
                return copy <= step

            rows.append({'what': what, 'tokens': bisect(hides, LOWEST, HIGHEST),
                         'measured': sorted(measured, key=lambda row: row['tokens'])})
        return rows

    def timelines(self, devices):
        """What each GPU did in one run of each plan, by CUPTI."""
        if self.trace_library is None:
            raise RuntimeError('no library that traces was given (--ring_trace)')
        rows = []
        for plan in PLANS[1:]:  # one device alone has nothing to wait for
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / 'trace.csv'
                environment = {**os.environ, 'CUDA_INJECTION64_PATH': self.trace_library,
                               'ATTND_TRACE': str(file)}
                found, _ = self.times([plan], devices * CONNECTIONS_LOCAL, ops='forward', batch=1,
                                      environment=environment, rounds=1, settle_ms=0, timed_ms=0)
                if found:
                    lines = file.read_text(encoding='utf-8').splitlines()
                    rows.append({'plan': plan, 'ran_as': found[0]['ran_as'],
                                 'spans': last_run(lines)})
        return rows

    def accuracy(self):
        found = accuracy.run(self.program, device=self.device)
        if 'skipped' in found:
            raise RuntimeError(found['skipped'])
        return found['rows']


def bisect(holds, low, high, within=64):
    """The least multiple of `within`, or `low`, from which on it holds; `high` if it never does."""
    if holds(low):
        return low
    if not holds(high):
        return high
    while high - low > within:
        middle = (low + high) // 2 // within * within
        if middle <= low:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# Kernels of ours that compute: fills and sums have other names.
COMPUTES = ('ForwardKernel', 'PrefillKernel', 'DecodeKernel', 'BackwardKernel')


def last_run(lines):
    """[device, 'kernel' or 'copy', begin, end] in milliseconds of the last of several runs in a
    trace of activity_trace.cc. Before each run memory is filled anew, by copies within a device;
    the run itself copies between devices alone."""
    rows = [row for row in csv.DictReader(lines) if None not in row.values()]
    spans = [(int(row['device']), row['kind'], int(row['start_ns']), int(row['end_ns']))
             for row in rows if row['kind'] in ('copy', 'peer') or row['kind'] == 'kernel' and any(
                 word in row['name'] for word in COMPUTES)]
    last = max((end for _, kind, _, end in spans if kind == 'kernel'), default=0)
    start = max((end for _, kind, _, end in spans if kind == 'copy' and end < last), default=0)
    of_run = sorted((span for span in spans if span[1] != 'copy' and start <= span[2] < last),
                    key=lambda span: span[2])
    return [[device, 'kernel' if kind == 'kernel' else 'copy',
             round((begin - of_run[0][2]) / 1e6, 4), round((end - of_run[0][2]) / 1e6, 4)]
            for device, kind, begin, end in of_run]


def busy(spans, kind='kernel'):
    """{device: milliseconds in which at least one of a kind was under way}"""
    devices_of = sorted({device for device, *_ in spans})
    return {device: overlap.length(overlap.union(
        (begin, end) for of, what, begin, end in spans if (of, what) == (device, kind)))
            for device in devices_of}


def run(recorder, kept, keep, recordings=RECORDINGS):
    """{'devices', 'device', recording: what was found, 'why_not': {recording: why}}, with what
    `kept` has of such devices, or {'skipped': why}; keep(part) after each recording."""
    if recorder.program is None:
        return {'skipped': 'no program was given (--ring)'}
    try:
        count, name = recorder.count()
    except (OSError, RuntimeError) as error:
        return {'skipped': str(error)}
    same = (kept.get('devices'), kept.get('device')) == (count, name)
    part = dict(kept) if same else {'devices': count, 'device': name}
    part['why_not'] = dict(part.get('why_not', {}))
    for recording in recordings:
        try:
            if count < 2 and recording != 'table':
                raise RuntimeError('this takes two GPUs')
            make = getattr(recorder, recording)
            part[recording] = make() if recording in ('table', 'accuracy') else make(count)
            part['why_not'].pop(recording, None)
        except (OSError, RuntimeError, LookupError) as error:
            part['why_not'][recording] = str(error)[:200]
        keep(part)
    return part


# -- what was found


def devices(part):
    return part.get('devices', 0)


def time_of(part, plan, op, length):
    """The row of a plan that ran as itself and was right, or None; causal, of the note's shape."""
    for row in part.get('table', {}).get('rows', []):
        if (row['plan'], row['ran_as'], row['op'], row['len']) == (plan, plan, op, length) and \
                row['right']:
            return row
    return None


def lengths(part):
    return sorted({row['len'] for row in part.get('table', {}).get('rows', [])})


def predicted_hiding(flops_of_a_byte):
    """Tokens a GPU, by what: under a causal mask a step of zigzag computes half of it."""
    return {'full': flops_of_a_byte, 'causal, zigzag': 2 * flops_of_a_byte}
