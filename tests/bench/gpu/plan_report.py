#!/usr/bin/env python3
"""Our plans beside PyTorch's ways on the same GPUs: which takes less.

  plan_report.py PLAN PEER    what plan_bench and context_parallel.py printed

For each row and direction: the best plan that cuts sequences, the plan that shares out heads where
that was measured, the peer's best way, and whether the former is as much faster as it should be.
Then each plan whose columns go round beside the peer's way to do the same.
"""

import json
import pathlib
import sys

# The peer's way to do what a plan does.
SAME_WAYS = {'ring': 'ring', 'striped': 'striped ring', 'zigzag': 'zigzag ring'}
# How many times our speed is the peer's, at least, by batch and length; backward: 1.
FORWARD_BARS = {(2, 8192): 1.5, (1, 16384): 1.25, (2, 32768): 1.04}


def read(text, name):
    """The object `name` of the last line that has it."""
    for line in reversed(text.splitlines()):
        if line.startswith(f'{{"{name}"'):
            return json.loads(line)[name]
    raise ValueError(f'no line begins with {{"{name}"')


def best_plan(rows, kind, peer, op):
    """The row that took the least time, or None."""
    rows = [
        row for row in rows if (row['plan'], row['op'], row['batch'], row['len']) == (
            kind, op, peer['batch'], peer['len']) and row['causal'] and row['left'] < 0 and
        row['q_heads'] == row['kv_heads']
    ]
    return min(rows, key=lambda row: row['ms'], default=None)


def line(peer, op, plan, heads_ms, peer_ms, way, bar):
    ratio = peer_ms / plan['ms']
    verdict = ('yes' if ratio > 1 else 'NO') + ('' if ratio >= bar else ', MISSED')
    if not plan['right']:
        verdict += ', WRONG'
    return (f'{peer["batch"]} x {peer["len"]:<8} {op:8} {plan["ms"]:9.3f} {heads_ms:>9} '
            f'{peer_ms:9.3f}  {way:16} {ratio:6.2f} {bar:5.2f}  {verdict}')


def compare(plans, peers):
    """Lines of a table."""
    lines = [f'plans: {plans["device"]}, deterministic: {plans["deterministic"]}',
             f'peer:  {peers["device"]}, PyTorch {peers["torch"]}, cuDNN {peers["cudnn"]}', '',
             f'{"row":12} {"op":8} {"plan ms":>9} {"heads ms":>9} {"peer ms":>9}  {"peer":16} '
             f'{"ratio":>6} {"bar":>5}  plan less?']
    for op in ('forward', 'backward'):
        for peer in peers['rows']:
            plan = best_plan(plans['rows'], 'gather', peer, op)
            if plan is None or op not in peer:
                continue
            heads = best_plan(plans['rows'], 'heads', peer, op)
            bar = FORWARD_BARS.get((peer['batch'], peer['len']), 1) if op == 'forward' else 1
            heads_ms = f'{heads["ms"]:.3f}' if heads else ''
            lines.append(line(peer, op, plan, heads_ms, peer[op]['ms'], peer[op]['by'], bar))
        for kind, way in SAME_WAYS.items():
            for peer in peers['rows']:
                plan = best_plan(plans['rows'], kind, peer, op)
                if plan is not None and way in peer.get('ways', {}):
                    lines.append(line(peer, op, plan, '', peer['ways'][way][op], way, 1))
        for peer in peers['rows']:
            for way, why in peer['failed'].items() if op == 'backward' else ():
                lines.append(f'{peer["batch"]} x {peer["len"]:<8} {way}: {why}')
    return lines


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    plan, peer = (pathlib.Path(path).read_text() for path in arguments)
    print('\n'.join(compare(read(plan, 'plan_bench'), read(peer, 'context_parallel'))))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
