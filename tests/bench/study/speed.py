"""The part `speed` of the study: time and extra memory of every side, on one GPU."""

from dataclasses import asdict, replace

import torch

import cases
import ours
import peers
import sides
import timing
from backward import Gradients
from sections import first_line, run_once

# A side this slow is timed in one round of few runs.
SLOW_MS = 50


def paper_shapes():
    """The fused-kernel study's shape, in two batches."""
    return [replace(cases.baseline(), batch=batch) for batch in (4, 16)]


def lengths(lens):
    """16,384 tokens, or one sequence if that is longer; 16 heads of 128."""
    return [cases.Case(n, n, 16, 16, batch=max(1, 16384 // n), causal=causal)
            for causal in (False, True) for n in lens]


class Forward:
    """A case, to be run forward."""

    def __init__(self, bench, case):
        self.bench, self.case = bench, case
        self.q, self.k, self.v, self.o, self.lse = peers.tensors(case)
        self.expected = peers.fa2(self.q, self.k, self.v, case.causal)
        self.flops = case.flops

    def plan(self, algorithm):
        problem = ours.problem(self.case, self.q, self.k, self.v, self.o, self.lse)
        return self.bench.plan([problem], algorithm)

    def wrong(self, plan):
        """Why what the plan gives is not attention, or None."""
        for t in (self.o, self.lse):
            t.fill_(float('nan'))
        run_once(plan)
        return peers.difference(self.o, self.lse, *self.expected)

    def torch_once(self):
        """PyTorch's unfused operator, to be timed; and what it holds beside its tensors at most."""
        run = lambda: peers.math(self.q, self.k, self.v, self.case.causal)
        return run, _peak_bytes(run) - self.o.nbytes


class Backward:
    """The same backward."""

    def __init__(self, bench, case):
        self.bench, self.case = bench, case
        self.gradients = Gradients(bench, case)
        self.expected = {'fa2': self.gradients.peer('fa2')()}
        self.flops = case.backward_flops

    def plan(self, algorithm):
        return self.bench.backward_plan([self.gradients.problem], algorithm)

    def wrong(self, plan):
        why = self.gradients.wrong(plan.enqueue, self.expected)
        plan.recycle()
        return why

    def torch_once(self):
        """Its memory is that of forward and backward together: what is kept counts."""
        g = self.gradients
        leaves = [t.detach().requires_grad_() for t in g.inputs[:3]]

        def both():
            with torch.enable_grad():
                o, _ = peers.math(*leaves, self.case.causal)
                torch.autograd.grad(o, leaves, g.d_o)

        tensors = g.d_o.nbytes + sum(t.nbytes for t in g.results)  # O is as large as its gradient
        peak = _peak_bytes(both) - tensors
        with torch.enable_grad():
            o, _ = peers.math(*leaves, self.case.causal)
        return lambda: torch.autograd.grad(o, leaves, g.d_o, retain_graph=True), peak


def _peak_bytes(run):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _timed(bench, run, after=lambda: None):
    of = lambda rounds: timing.alternate({'it': run}, bench.clock, rounds, after)['it']
    first = of(1)
    return first if first.ms >= SLOW_MS else of(bench.rounds)


def _our_side(work, algorithm):
    """{'ms', 'tflops', 'extra_bytes', 'mhz'}, or a text that says why not."""
    try:
        with work.plan(algorithm) as plan:
            why = work.wrong(plan)
            if why is not None:
                return f'wrong: {why}'
            extra = plan.enqueue().device_bytes
            timed = _timed(work.bench, plan.enqueue, plan.recycle)
    except ours.Refused as error:
        return first_line(error)
    return _side(work, timed, extra)


def _torch_side(work):
    try:
        run, extra = work.torch_once()
        timed = _timed(work.bench, run)
    except torch.cuda.OutOfMemoryError as error:
        return f'out of memory: {first_line(error)}'
    return _side(work, timed, extra)


def _side(work, timed, extra):
    return {'ms': timed.ms, 'tflops': work.flops / timed.ms / 1e9, 'extra_bytes': extra,
            'mhz': timed.mhz}


def measure(bench, case, direction, of):
    """A row of results: every side of `of` that goes this way, or why it does not run."""
    row = {'case': asdict(case), 'name': case.name, 'direction': direction, 'sides': {},
           'notes': []}
    try:
        work = (Forward if direction == 'forward' else Backward)(bench, case)
    except RuntimeError as error:
        row['notes'].append(f'nothing to check with: {first_line(error)}')
        return row
    for side in of:
        algorithm = sides.algorithm(side, direction)
        if algorithm is None and side != 'torch':
            continue
        found = _torch_side(work) if side == 'torch' else _our_side(work, algorithm)
        if isinstance(found, str):
            row['notes'].append(f'{sides.title(side)}: {found}')
        else:
            row['sides'][side] = found
        torch.cuda.synchronize()  # what a plan gave back is the device's from then on
        torch.cuda.empty_cache()
    return row


def run(bench, lens, of, show):
    """The part's rows; each is shown as it is there."""
    rows = []
    for group, group_cases in (('paper', paper_shapes()), ('lengths', lengths(lens))):
        for case in group_cases:
            for direction in sides.DIRECTIONS:
                row = {'set': group, **measure(bench, case, direction, of)}
                show(row)
                rows.append(row)
    return rows
