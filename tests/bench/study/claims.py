"""What the papers say, and what the results say of it. Knows no torch."""

import math
from dataclasses import dataclass

import sides

CONFIRMED, CORRECTED, OPEN = 'confirmed', 'corrected', 'not measured here'
# How near a count must be to the one claimed.
NEAR = 0.1


@dataclass
class Verdict:
    claim: str
    source: str
    measured: str
    verdict: str


STEPS = "a count over the naive way's steps"
FA1 = 'Dao et al. 2022, arXiv:2205.14135'
FA2 = 'Dao 2023, arXiv:2307.08691'
CUTLASS = 'Bikshandi, Shah 2023, arXiv:2312.11918'
RABE = 'Rabe, Staats 2021, arXiv:2112.05682'


def _near(value, claimed):
    return abs(value - claimed) <= NEAR


def _counted(claim, source, claimed, found):
    """A number claimed, and {how: number} that was measured; one that agrees confirms it."""
    if not found:
        return Verdict(claim, source, '', OPEN)
    agree = [how for how, value in found.items() if _near(value, claimed)]
    measured = ', '.join(f'{value:.2f} {how}' for how, value in found.items())
    if len(agree) == len(found):
        return Verdict(claim, source, measured, CONFIRMED)
    verdict = f'{CONFIRMED} {" and ".join(agree)}, else {CORRECTED}' if agree else CORRECTED
    return Verdict(claim, source, measured, verdict)


WAYS = {
    'all_named': 'with a name for each matrix',
    'product_unnamed': 'with the product scaled in one expression',
    'one_name': 'with one name for all',
}


def score_buffers(results, side, direction):
    """Matrices of f32 scores that a side holds at most, in the fused-kernel study's shape; or None."""
    for row in speed_rows(results, direction, group='paper'):
        if side in row['sides']:
            case = row['case']
            buffer = 4 * case['batch'] * case['q_heads'] * case['q_len'] * case['kv_len']
            return row['sides'][side]['extra_bytes'] / buffer
    return None


def _memory(results):
    rows = results.get('naive', {}).get('memory', [])
    of = lambda key: {WAYS[row['variant']]: row[key] for row in rows}
    backward = of('backward')
    own = score_buffers(results, 'naive_autograd', 'backward')
    if own is not None:
        backward["in our own kernels, autograd's order"] = own
    return [
        _counted('forward holds 4 score buffers at most', STEPS, 4, of('forward')),
        _counted('forward keeps 2 of them for backward', STEPS, 2, of('retained')),
        _counted('backward holds 6 score buffers at most', STEPS, 6, backward),
    ]


def _accesses(results):
    claim = 'forward reads the score matrix 6 times, beside the product with V, and writes it 5 times'
    part = results.get('naive', {})
    if 'trace' not in part:
        return [Verdict(claim, STEPS, '', OPEN)]
    steps = part['trace']['forward']
    reads, writes = (sum(step[key] for step in steps) for key in ('reads', 'writes'))
    measured = f'operators read it {reads} times, the product with V included, and write it {writes}'
    met = (reads, writes) == (7, 5)
    for row in eager_rows(results, 'forward'):
        buffer = eager_buffer_bytes(row)
        read, written = (row[key] / buffer for key in ('read_bytes', 'write_bytes'))
        measured += f'; device memory: {read:.2f} read, {written:.2f} written'
        met = met and abs(read - 7) <= 0.5 and abs(written - 5) <= 0.5
    return [Verdict(claim, STEPS, measured, CONFIRMED if met else CORRECTED)]


def eager_rows(results, direction):
    return [row for row in results.get('dram', {}).get('rows', [])
            if row['what'] == 'eager' and row['direction'] == direction]


def eager_buffer_bytes(row):
    heads, length, _ = row['shape']
    return 4 * heads * length * length


def speed_rows(results, direction, causal=None, group='lengths'):
    return [row for row in results.get('speed', {}).get('rows', [])
            if row['set'] == group and row['direction'] == direction and
            causal in (None, row['case']['causal'])]


def _ratios(rows, over, under):
    """By how much `over` is the faster, {length: ratio}."""
    return {row['case']['q_len']: row['sides'][under]['ms'] / row['sides'][over]['ms']
            for row in rows if over in row['sides'] and under in row['sides']}


def _speed_claim(claim, source, ratios, met, of=''):
    """`of`: whose time it is, where that is not the paper's own code."""
    if not ratios:
        return Verdict(claim, source, '', OPEN)
    low, high = min(ratios.values()), max(ratios.values())
    at = lambda value: next(n for n, r in ratios.items() if r == value)
    measured = f'{low:.2f} × at length {at(low)} to {high:.2f} × at {at(high)}{of}'
    return Verdict(claim, source, measured, CONFIRMED if met(list(ratios.values())) else CORRECTED)


# The baseline follows the paper's text: it says nothing of how fast its authors' kernels are.
ONE_BLOCK = ', of our baseline, a block of threads a head'


def _speeds(results):
    forward = speed_rows(results, 'forward', causal=False)
    middle = lambda values: sorted(values)[len(values) // 2]
    return [
        _speed_claim('FlashAttention-1 is faster than the naive way', FA1,
                     _ratios(forward, 'flash_attention_1', 'naive'), lambda r: min(r) > 1, ONE_BLOCK),
        _speed_claim('FlashAttention-2 is about twice as fast as FlashAttention-1', FA2,
                     _ratios(forward, 'flash_attention_2', 'flash_attention_1'),
                     lambda r: 1.5 <= middle(r) <= 2.5, ONE_BLOCK),
        _speed_claim("Hopper's instructions make forward 20 to 50 % faster than FlashAttention-2",
                     CUTLASS, _ratios(forward, 'hopper', 'flash_attention_2'),
                     lambda r: all(1.15 <= ratio <= 1.55 for ratio in r)),
    ]


def _top_speed(results):
    claim = 'FlashAttention-2 as it is reaches 335 TFLOP/s on an H100'
    rows = [row['sides']['flash_attention_2']['tflops'] for direction in sides.DIRECTIONS
            for row in speed_rows(results, direction) if 'flash_attention_2' in row['sides']]
    if not rows:
        return [Verdict(claim, FA2, '', OPEN)]
    met = max(rows) >= 335
    return [Verdict(claim, FA2, f'{max(rows):.0f} TFLOP/s at most', CONFIRMED if met else CORRECTED)]


def growth(points):
    """The power of the length that memory grows by, from its first point to its last, for as many
    tokens in all; None without two points."""
    points = sorted(points)
    if len(points) < 2 or points[0][1] <= 0 or points[-1][1] <= 0:
        return None
    (first, least), (last, most) = points[0], points[-1]
    return math.log(most / least) / math.log(last / first)


def extra_memory(results, side, direction, causal=False):
    """[(length, bytes of each token)]"""
    return [(row['case']['q_len'],
             row['sides'][side]['extra_bytes'] / (row['case']['batch'] * row['case']['q_len']))
            for row in speed_rows(results, direction, causal) if side in row['sides']]


def _growths(results):
    """Memory a token: of the naive way it grows with the length, of the others it does not."""
    verdicts = []
    for side, power, claim, source in (
            ('naive', 1, "the naive way's extra memory grows with the square of the length", FA1),
            ('flash_attention_1', 0, "FlashAttention-1's grows with the length", FA1),
            ('flash_attention_2', 0, "FlashAttention-2's grows with the length", FA2)):
        found = {}
        for direction in sides.DIRECTIONS:
            power_found = growth(extra_memory(results, side, direction))
            if power_found is not None:
                found[direction] = power_found + 1
        if found and side == 'flash_attention_2' and 'forward' in found:
            del found['forward']  # it has none that depends on the problem
        verdicts.append(_power(claim, source, power + 1, found))
    return verdicts


def _power(claim, source, claimed, found):
    if not found:
        return Verdict(claim, source, '', OPEN)
    measured = ', '.join(f'length^{value:.2f} {direction}' for direction, value in found.items())
    met = all(_near(value, claimed) for value in found.values())
    return Verdict(claim, source, measured, CONFIRMED if met else CORRECTED)


def _traffic(results):
    """FlashAttention asks for less than the naive way: as counted by ncu."""
    verdicts = []
    for claim, source, less, more in (
            ('FlashAttention-1 moves less memory than the naive way', FA1, 'flash_attention_1',
             'naive'),
            ('FlashAttention-2 moves less memory than FlashAttention-1', FA2, 'flash_attention_2',
             'flash_attention_1')):
        found = []
        for case in dram_cases(results):
            moved = {row['what']: row['read_bytes'] + row['write_bytes']
                     for row in dram_rows(results, case, 'forward')}
            if less in moved and more in moved:
                found.append((case, moved[more] / moved[less]))
        measured = ', '.join(f'{ratio:.1f} × less at length {case["q_len"]}' for case, ratio in found)
        met = all(ratio > 1 for _, ratio in found)
        verdicts.append(Verdict(claim, source, measured,
                                (CONFIRMED if met else CORRECTED) if found else OPEN))
    return verdicts


def dram_cases(results):
    """The shapes of the sides' rows, each once."""
    found = []
    for row in results.get('dram', {}).get('rows', []):
        if row['what'] != 'eager' and row['shape'] not in found:
            found.append(row['shape'])
    return found


def dram_rows(results, case, direction):
    return [row for row in results.get('dram', {}).get('rows', [])
            if row['shape'] == case and row['direction'] == direction]


def _reference(results):
    """Of the algorithms on a processor: memory, and one pass of softmax fewer."""
    claim = 'attention needs no memory of the square of the length'
    rows = results.get('cpu', {}).get('rows', [])
    of = lambda name: [(row['len'], row['heap_bytes']) for row in rows
                       if row['algorithm'] == name and row['direction'] == 'forward']
    found = {name: growth(of(name)) for name in ('naive', 'online_softmax', 'flash_attention_1',
                                                  'flash_attention_2')}
    found = {name: power for name, power in found.items() if power is not None}
    if not found:
        return [Verdict(claim, RABE, '', OPEN)]
    measured = ', '.join(f'{name} length^{power:.2f}' for name, power in found.items())
    met = all(power <= 1.2 for name, power in found.items() if name != 'naive')
    return [Verdict(claim, RABE,
                    'on a processor: ' + measured, CONFIRMED if met else CORRECTED)]


def verdicts(results):
    return [*_memory(results), *_accesses(results), *_growths(results), *_traffic(results),
            *_speeds(results), *_top_speed(results), *_reference(results)]
