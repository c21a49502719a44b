"""The parts of the benchmark that are about backward. Each yields report.Row as it is measured."""

from contextlib import ExitStack

import torch

import cases
import ours
import peers
import timing
from report import Row
from sections import first_line, run_once


class Gradients:
    """A case whose O and LSE are there, and memory for its gradients."""

    def __init__(self, bench, case):
        self.case = case
        self.inputs = peers.tensors(case)  # Q, K, V, O, LSE
        forward = ours.problem(case, *self.inputs)
        with bench.plan([forward]) as plan:
            run_once(plan)
        self.d_o, *self.results = peers.gradient_tensors(*self.inputs[:3])
        self.problem = ours.gradients(forward, self.d_o, *self.results)

    def peer(self, name):
        """What gives its (dq, dk, dv)."""
        return peers.BACKWARD[name](*self.inputs[:3], self.d_o, self.case.causal)

    def run(self, enqueue):
        """Our (dq, dk, dv): NaN where nothing was written."""
        for t in self.results:
            t.fill_(float('nan'))
        enqueue()
        torch.cuda.synchronize()
        return self.results

    def wrong(self, enqueue, expected):
        """Why ours is none of the expected results, or None."""
        found, whys = self.run(enqueue), []
        for name, gradients in expected.items():
            why = peers.gradient_difference(found, gradients)
            if why is None:
                return None
            whys.append(f'{name}: {why}')
        return '; '.join(whys) or 'no peer to check it with'

    def repeats(self, enqueue):
        """Whether ours has the same bits twice."""
        first = [t.clone() for t in self.run(enqueue)]
        return all(map(torch.equal, first, self.run(enqueue)))


def _peer_results(row, gradients, names):
    """What gives the gradients, and they, of the peers that run the case."""
    calls, expected = {}, {}
    for name in names:
        try:
            call = gradients.peer(name)
            expected[name] = call()
            torch.cuda.synchronize()
            calls[name] = call
        except (RuntimeError, NotImplementedError) as error:
            expected.pop(name, None)
            row.notes.append(f'{name} refused: {first_line(error)}')
    return calls, expected


def _our_graph(bench, row, gradients, expected, side, stack, algorithm='auto', deterministic=False):
    """A side of ours as a graph, if it runs and is right."""
    try:
        plan = stack.enter_context(
            bench.backward_plan([gradients.problem], algorithm, deterministic))
        why = gradients.wrong(plan.enqueue, expected)
        plan.recycle()
    except ours.Refused as error:
        row.notes.append(f'{side} refused: {first_line(error)}')
        return None
    if why is not None:
        row.notes.append(f'{side} is not timed: {why}')
        return None
    return timing.capture(plan.enqueue, plan.recycle)


def _compare(bench, row, case, our_sides, timed, expected=None):
    """Fills the row with TFLOP/s of ours, {side: arguments of _our_graph}, and of the peers that
    are `timed`. The results are checked before and after: with `expected` or, without, with
    the peers'."""
    gradients = Gradients(bench, case)
    calls, results = _peer_results(row, gradients, timed)
    if expected is not None:
        results = expected(gradients)
    with ExitStack() as stack:
        graphs = {}
        for side, arguments in our_sides.items():
            graph = _our_graph(bench, row, gradients, results, side, stack, **arguments)
            if graph is not None:
                graphs[side] = graph
        of_ours = list(graphs)
        graphs.update((name, timing.capture(call)) for name, call in calls.items())
        if graphs:
            row.timings = bench.alternate({name: g.replay for name, g in graphs.items()})
        row.values = {name: case.backward_flops / t.ms / 1e9 for name, t in row.timings.items()}
        for side in of_ours:
            why = gradients.wrong(graphs[side].replay, results)
            if why is None and our_sides[side].get('deterministic'):
                why = None if gradients.repeats(graphs[side].replay) else 'not the same bits twice'
            if why is not None:
                del row.values[side]
                row.notes.append(f'{side} is wrong in the end: {why}')
        torch.cuda.synchronize()
        graphs.clear()  # before the plans that they copy from
    return row


def grid(bench, section, dims, seqs, algorithm='auto', timed=('fa2', 'cudnn')):
    """Ours is called as its algorithm is, unless that is the usual one."""
    side = 'ours' if algorithm == 'auto' else algorithm
    for case in cases.grid(dims, seqs):
        yield _compare(bench, Row(section, case.name, 'TFLOP/s'), case,
                       {side: {'algorithm': algorithm}}, timed)


def grouped(bench):
    """Shared K/V heads. Ours alone is timed: the peers' operators take none."""
    for case in cases.grouped():
        expected = lambda g: {'fa2': peers.grouped_gradients(*g.inputs[:3], g.d_o, g.case.causal)}
        yield _compare(bench, Row('backward_grouped', case.name, 'TFLOP/s'), case, {'ours': {}}, (),
                       expected)


def deterministic(bench):
    """What it costs that dQ is summed up in one order."""
    for case in cases.deterministic():
        expected = lambda g: {'fa2': g.peer('fa2')()}
        yield _compare(bench, Row('deterministic', case.name, 'TFLOP/s'), case,
                       {'deterministic': {'deterministic': True}, 'ours': {}}, (), expected)


def _scratch_mb(bench, row, gradients, algorithm):
    try:
        with bench.backward_plan([gradients.problem], algorithm) as plan:
            held = plan.enqueue().device_bytes
            torch.cuda.synchronize()
            return held / 1e6
    except ours.Refused as error:
        row.notes.append(f'{algorithm} refused: {first_line(error)}')
        return None


def _math_peak_mb(row, gradients):
    """Of forward and backward together: what forward keeps is what backward needs."""
    leaves = [t.detach().requires_grad_() for t in gradients.inputs[:3]]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    try:
        with torch.enable_grad():
            o, _ = peers.math(*leaves, gradients.case.causal)
            results = torch.autograd.grad(o, leaves, gradients.d_o)
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError as error:
        row.notes.append(f'math: {first_line(error)}')
        return None
    outputs = o.nbytes + sum(t.nbytes for t in results)
    return (torch.cuda.max_memory_allocated() - before - outputs) / 1e6


def memory(bench):
    """What backward takes beside its tensors."""
    for case in cases.memory():
        row = Row('backward_memory', case.name, 'MB')
        gradients = Gradients(bench, case)
        measured = {side: _scratch_mb(bench, row, gradients, algorithm)
                    for side, algorithm in (('ours', 'auto'), ('naive', 'naive'),
                                            ('naive_autograd', 'naive_autograd'))}
        torch.cuda.empty_cache()
        measured['math'] = _math_peak_mb(row, gradients)
        row.values = {name: mb for name, mb in measured.items() if mb is not None}
        torch.cuda.empty_cache()
        yield row
