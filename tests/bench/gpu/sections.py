"""The parts of the benchmark. Each yields report.Row as it is measured."""

import statistics
from contextlib import ExitStack

import torch

import cases
import ours
import peers
import report
import timing
from report import Row


class Bench:
    """What all sections need. The current stream is not the default one."""

    def __init__(self, library, rounds=timing.ROUNDS):
        self.library = library
        self.rounds = rounds
        self.clock = timing.Clock(torch.cuda.current_device())

    def plan(self, problems, algorithm='auto'):
        return self.library.plan(problems, torch.cuda.current_stream(), algorithm)

    def backward_plan(self, problems, algorithm='auto', deterministic=False):
        return self.library.backward_plan(problems, torch.cuda.current_stream(), algorithm,
                                          deterministic)

    def alternate(self, sides, after=lambda: None):
        return timing.alternate(sides, self.clock, self.rounds, after)


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:100]


def _peer_results(row, case, q, k, v):
    """{name: (o, lse)} of the peers that run the case; the others are noted."""
    results = {}
    for name, peer in peers.PEERS.items():
        try:
            results[name] = peer(q, k, v, case.causal)
            torch.cuda.synchronize()
        except (RuntimeError, NotImplementedError) as error:
            row.notes.append(f'{name} refused: {first_line(error)}')
    return results


def run_once(plan):
    plan.enqueue()
    torch.cuda.synchronize()
    plan.recycle()


def _disagreement(o, lse, results):
    """Why (o, lse) is none of the peers' results, or None."""
    whys = []
    for name, (peer_o, peer_lse) in results.items():
        why = peers.difference(o, lse, peer_o, peer_lse)
        if why is None:
            return None
        whys.append(f'{name}: {why}')
    return '; '.join(whys) or 'no peer to check it with'


def _compare(bench, row, case, speed):
    """Fills the row: ours and the peers, as graphs, `speed` of milliseconds."""
    q, k, v, o, lse = peers.tensors(case)
    results = _peer_results(row, case, q, k, v)
    with ExitStack() as stack:
        sides = {}
        try:
            plan = stack.enter_context(bench.plan([ours.problem(case, q, k, v, o, lse)]))
            run_once(plan)
            why = _disagreement(o, lse, results)
            if why is None:
                sides['ours'] = timing.capture(plan.enqueue, plan.recycle)
            else:
                row.notes.append(f'ours is not timed: {why}')
        except ours.Refused as error:
            row.notes.append(f'ours refused: {first_line(error)}')
        for name in results:
            sides[name] = timing.capture(lambda: peers.PEERS[name](q, k, v, case.causal))
        del results
        if sides:
            row.timings = bench.alternate({name: g.replay for name, g in sides.items()})
        row.values = {name: speed(t.ms) for name, t in row.timings.items()}
        torch.cuda.synchronize()
        sides.clear()  # before the plan that they copy from
    return row


def grid(bench, dims, seqs):
    for case in cases.grid(dims, seqs):
        row = Row('grid', case.name, 'TFLOP/s')
        yield _compare(bench, row, case, lambda ms: case.flops / ms / 1e9)


def decode(bench, count=None):
    for case in cases.decode()[:count]:
        row = Row('decode', case.name, 'GB/s')
        yield _compare(bench, row, case, lambda ms: case.kv_bytes / ms / 1e6)


def _group_problems():
    """The group's problems, their tensors, which must outlive them, and the cases."""
    group = cases.group()
    tensors = [peers.tensors(case) for case in group]
    return [ours.problem(case, *t) for case, t in zip(group, tensors)], tensors, group


def _wrong_in_group(group, tensors):
    """Why the group's results are not right, or None."""
    for i, (case, (q, k, v, o, lse)) in enumerate(zip(group, tensors)):
        why = peers.difference(o, lse, *peers.exact(case, q, k, v))
        if why is not None:
            return f'problem {i} ({case.name}, left {case.left}): {why}'
    return None


def group(bench):
    """64 unlike problems in one call, and in 64."""
    problems, tensors, group_cases = _group_problems()
    count = len(problems)
    with bench.plan(problems) as one, bench.plan(problems) as singles:
        run_once(one)
        why = _wrong_in_group(group_cases, tensors)
        if why is not None:
            yield Row('group', 'graph', 'problems/ms', notes=[f'not timed: {why}'])
            return
        enqueued = {'one_call': one.enqueue, 'one_by_one': singles.enqueue_each}
        host_us = {name: [] for name in enqueued}

        def timed(name):
            host_us[name].append(enqueued[name]().host_ns / 1e3)

        def recycle():
            one.recycle()
            singles.recycle()

        direct = Row('group', 'calls', 'problems/ms')
        direct.timings = bench.alternate({name: lambda name=name: timed(name) for name in enqueued},
                                         recycle)
        for name, times in host_us.items():
            direct.notes.append(f'{name} {statistics.median(times):.0f} us on the host')
        graphs = {
            'one_call': timing.capture(one.enqueue, one.recycle),
            'one_by_one': timing.capture(singles.enqueue_each, singles.recycle),
        }
        captured = Row('group', 'graph', 'problems/ms')
        captured.timings = bench.alternate({name: g.replay for name, g in graphs.items()})
        for row in (captured, direct):
            row.values = {name: count / t.ms for name, t in row.timings.items()}
            yield row
        torch.cuda.synchronize()
        graphs.clear()  # before the plans that they copy from


def large_group(bench):
    """64 problems of usual sizes in one call, set-up included; and the time that they would take
    at the rate of each alone, as often as fills the GPU."""
    group_cases = cases.large_group()
    tensors = [peers.tensors(case) for case in group_cases]
    problems = [ours.problem(case, *t) for case, t in zip(group_cases, tensors)]
    flops = sum(case.flops for case in group_cases)
    row = Row('large_group', f'{len(problems)} problems', 'TFLOP/s')
    with bench.plan(problems) as plan:
        run_once(plan)
        why = _wrong_in_group(group_cases, tensors)
        if why is not None:
            row.notes.append(f'not timed: {why}')
            yield row
            return
        row.timings = bench.alternate({'one_call': plan.enqueue}, plan.recycle)
        alone = sum(_ms_alone(bench, case) for case in group_cases)
        after = bench.alternate({'one_call': plan.enqueue}, plan.recycle)['one_call']
    ms = statistics.mean([row.timings['one_call'].ms, after.ms])
    row.values = {'one_call': flops / ms / 1e9, 'each_alone': flops / alone / 1e9}
    yield row


def _ms_alone(bench, case):
    """Time of a problem where a GPU is full of its like."""
    case = cases.repeated(case)
    tensors = peers.tensors(case)
    with bench.plan([ours.problem(case, *tensors)]) as plan:
        run_once(plan)
        graph = timing.capture(plan.enqueue, plan.recycle)
        ms = timing.event_ms(graph.replay)
        del graph  # before the plan that it copies from
    return ms / case.batch


def setup(bench, calls=200):
    """Host time of one call, of a plan that has run before."""
    problems, _tensors, _ = _group_problems()
    for count in (1, 8, 64):
        with bench.plan(problems[:count]) as plan:
            times = []
            for _ in range(calls):
                enqueued = plan.enqueue()
                times.append(enqueued.host_ns / 1e3)
                kernels, copies = enqueued.kernels, enqueued.copies
                torch.cuda.synchronize()
                plan.recycle()
        times = sorted(times[calls // 10:])
        yield Row('setup', f'{count} problems', 'us', {'ours': statistics.median(times)}, size=count,
                  notes=[f'{kernels} kernels, {copies} copies', f'9 of 10 within '
                         f'{times[len(times) * 9 // 10]:.1f} us'])


def _scratch_mb(bench, row, case, algorithm):
    q, k, v, o, lse = peers.tensors(case)
    try:
        with bench.plan([ours.problem(case, q, k, v, o, lse)], algorithm) as plan:
            held = plan.enqueue().device_bytes
            torch.cuda.synchronize()
            return held / 1e6
    except ours.Refused as error:
        row.notes.append(f'{algorithm} refused: {first_line(error)}')
        return None


def _math_peak_mb(case):
    q, k, v, o, _ = peers.tensors(case)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = peers.math(q, k, v, case.causal)
    torch.cuda.synchronize()
    del result
    return (torch.cuda.max_memory_allocated() - before - o.nbytes) / 1e6


def memory(bench):
    """What a call takes beside its tensors."""
    for case in cases.memory():
        row = Row('memory', case.name, 'MB')
        measured = {
            'ours': _scratch_mb(bench, row, case, 'auto'),
            'naive': _scratch_mb(bench, row, case, 'naive'),
            'math': _math_peak_mb(case),
        }
        row.values = {name: mb for name, mb in measured.items() if mb is not None}
        torch.cuda.empty_cache()
        yield row


def baselines(bench, algorithms):
    """Our algorithms beside the unfused operators; timed without graphs."""
    case = cases.baseline()
    q, k, v, o, lse = peers.tensors(case)
    row = Row('baselines', case.name, 'TFLOP/s')
    results = _peer_results(row, case, q, k, v)
    sides = {'math': lambda: peers.math(q, k, v, case.causal)}
    for name in results:
        sides[name] = lambda name=name: peers.PEERS[name](q, k, v, case.causal)
    with ExitStack() as stack:
        plans = []
        for algorithm in ('auto', *algorithms):
            try:
                plan = stack.enter_context(
                    bench.plan([ours.problem(case, q, k, v, o, lse)], algorithm))
                run_once(plan)
            except ours.Refused as error:
                row.notes.append(f'{algorithm} refused: {first_line(error)}')
                continue
            why = _disagreement(o, lse, results)
            if why is not None:
                row.notes.append(f'{algorithm} is not timed: {why}')
                continue
            plans.append(plan)
            sides['ours' if algorithm == 'auto' else algorithm] = plan.enqueue
        row.timings = bench.alternate(sides, lambda: [plan.recycle() for plan in plans])
    row.values = {name: case.flops / t.ms / 1e9 for name, t in row.timings.items()}
    row.notes += [f'{name} {t.ms:.3f} ms' for name, t in row.timings.items()]
    yield row


def ceilings():
    """What the machine can do at all."""
    x = torch.empty(1 << 32, dtype=torch.uint8, device='cuda')
    y = torch.empty_like(x)
    copy = 2 * x.nbytes / timing.event_ms(lambda: y.copy_(x)) / 1e6
    yield Row('ceiling', 'device copy', 'GB/s', {'machine': copy})
    del y
    floats = x.view(torch.float32)
    read = x.nbytes / timing.event_ms(lambda: floats.sum()) / 1e6
    yield Row('ceiling', 'read-only sum', 'GB/s', {'machine': read})
    del x, floats
    a, b = (torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16) for _ in range(2))
    product = 2 * 8192**3 / timing.event_ms(lambda: a @ b) / 1e9
    yield Row('ceiling', report.MATMUL, 'TFLOP/s', {'machine': product})
