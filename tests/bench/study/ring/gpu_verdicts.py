"""What is claimed of time on GPUs, and what was recorded on them."""

from ring import gpu, published
from ring.arithmetic_verdicts import measured_flops_of_a_byte
from ring.judge import judged, near, opened
from ring.published import NOTE, STRIPED


def _by_length(results, plan, other, op='forward'):
    """{length: how many times as fast a plan is as the other}"""
    part = results.get('gpu', {})
    return {length: gpu.time_of(part, other, op, length)['ms'] / found['ms']
            for length in gpu.lengths(part)
            for found in [gpu.time_of(part, plan, op, length)]
            if found and gpu.time_of(part, other, op, length)}


def _said(ratios):
    return ', '.join(f'{ratio:.2f} at {length:,}' for length, ratio in ratios.items())


def copies_hide(results):
    claim = 'copies hide from as many tokens a GPU on as it does FLOPs while a byte comes'
    rows = results.get('gpu', {}).get('hiding', [])
    if not rows:
        return opened(claim, NOTE)
    predicted = gpu.predicted_hiding(measured_flops_of_a_byte())
    measured = ', '.join(f'{row["what"]} {row["tokens"]:,} tokens (predicted '
                         f'{predicted[row["what"]]:,.0f})' for row in rows)
    return judged(claim, NOTE, measured,
                  all(near(row['tokens'], predicted[row['what']], 0.25) for row in rows))


def connections(results):
    claim = 'CUDA_DEVICE_MAX_CONNECTIONS=1 is what makes copies overlap (8,192 tokens a GPU)'
    rows = {row['connections']: row['ms'] for row in results.get('gpu', {}).get('connections', [])
            if row['plan'] == 'ring'}
    if 1 not in rows or len(rows) < 2:
        return opened(claim, NOTE)
    others = min(ms for number, ms in rows.items() if number != 1)
    measured = 'ring: ' + ', '.join(f'{ms:.3g} ms with {number}' for number, ms in rows.items())
    return judged(claim, NOTE, measured, rows[1] <= 0.97 * others)


def ring_is_faster_than_one(results):
    claim = 'a ring is faster than one GPU (batch 2, 16 heads of 128, 4,096 to 128,000 tokens)'
    ratios = _by_length(results, 'ring', 'one_device')
    if not ratios:
        return opened(claim, NOTE)
    return judged(claim, NOTE, f'forward: {_said(ratios)} × its speed', min(ratios.values()) > 1)


def ring_reaches_its_bound(results):
    claim = 'what the ring loses is what its imbalance costs'
    ratios = _by_length(results, 'ring', 'one_device')
    if not ratios:
        return opened(claim, f'{NOTE}, {STRIPED}')
    n = gpu.devices(results['gpu'])
    longest = max(ratios)
    percent, bound = 100 * ratios[longest] / n, 100 * n / (2 * n - 1)
    return judged(claim, f'{NOTE}, {STRIPED}', f'{n} GPUs, {longest:,} tokens: {percent:.0f} % of '
                  f"one GPU's speed each; N/(2N−1) is {bound:.0f} %", abs(percent - bound) <= 4)


def striped_is_faster(results):
    claim = 'striped is faster than the ring'
    ratios = _by_length(results, 'striped', 'ring')
    if not ratios:
        return opened(claim, f'{NOTE}, {STRIPED}')
    return judged(claim, f'{NOTE}, {STRIPED}', f'forward: {_said(ratios)} × its speed',
                  min(ratios.values()) > 1)


def accuracy_on_gpus(results):
    claim = 'results of several GPUs are as accurate as one\'s'
    rows = [row for row in results.get('gpu', {}).get('accuracy', [])
            if row['ran_as'] == row['plan']]
    if not rows:
        return opened(claim, NOTE)
    worst = {}
    for row in rows:
        for name, of in row['tensors'].items():
            if name != 'lse' and of['one_rms'] > 0:
                worst[row['plan']] = max(worst.get(row['plan'], 0), of['rms'] / of['one_rms'])
    measured = "RMS error to float64 over one GPU's, the most of all tensors: " + ', '.join(
        f'{plan} {ratio:.3f}' for plan, ratio in worst.items())
    return judged(claim, NOTE, measured, max(worst.values()) <= 1.02)
