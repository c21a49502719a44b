#!/usr/bin/env python3
"""Runs under ncu, for dram.py: each case once where ncu looks, all else where it does not.

Usage: dram_probe.py LIBRARY RAN < CASES

CASES is a JSON list, each with `what` (eager, or a side of sides.py), `direction` and a shape. A
kernel that nobody else uses comes before each case. RAN gets a JSON list of the cases that ran.
"""

import json
import pathlib
import sys

import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / 'gpu'))

import cases
import eager
import ours
import sections
import sides
import speed


def prepare(bench, case):
    """What runs the case once, and what must outlive it. Everything has run before."""
    if case['what'] == 'eager':
        inputs = eager.Inputs(*case['shape'])
        if case['direction'] == 'forward':
            run = lambda: inputs.forward('all_named')
            run()
            return run, None
        o = inputs.forward('all_named')
        inputs.backward(o)
        o = inputs.forward('all_named')
        return lambda: inputs.backward(o), None
    attention = cases.Case(**case['shape'])
    work = (speed.Forward if case['direction'] == 'forward' else speed.Backward)(bench, attention)
    plan = work.plan(sides.algorithm(case['what'], case['direction']))
    sections.run_once(plan)
    return plan.enqueue, (work, plan)


def run(bench, case, marker):
    enqueue, keep = prepare(bench, case)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    torch.erfinv(marker)
    result = enqueue()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    del result
    if keep is not None:
        keep[1].__exit__()
        torch.cuda.synchronize()


def main():
    library, ran_path = sys.argv[1:]
    ran = []
    torch.manual_seed(1)
    marker = torch.zeros(1, device='cuda')
    torch.erfinv(marker)  # compiled, if it must be
    with torch.cuda.stream(torch.cuda.Stream()):
        bench = sections.Bench(ours.Library(library))
        for case in json.load(sys.stdin):
            try:
                with torch.set_grad_enabled(case['what'] == 'eager'):
                    run(bench, case, marker)
                ran.append(case)
            except (ours.Refused, RuntimeError) as error:
                print(f'{case}: {sections.first_line(error)}', flush=True)
            torch.cuda.empty_cache()
    with open(ran_path, 'w', encoding='utf-8') as file:
        json.dump(ran, file)


if __name__ == '__main__':
    main()
