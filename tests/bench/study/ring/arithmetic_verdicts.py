"""What is claimed with numbers of data sheets and tables, and what comes of dividing them."""

from ring import published
from ring.judge import judged, near, partly
from ring.published import NOTE, STRIPED


def flops_of_a_byte(gpu):
    """(of sparse FLOPs and memory, of dense FLOPs and the link to another GPU)"""
    of = published.GPUS[gpu]
    return of['sparse'] / of['memory'], of['dense'] / of['link']


def measured_flops_of_a_byte():
    return published.MEASURED['flops'] / published.MEASURED['link']


def what_decides(results):
    del results  # there is nothing to measure
    claim = 'copies hide from so many tokens a GPU on: ' + ', '.join(
        f'{of["claimed"]} ({name})' for name, of in published.GPUS.items())
    said, met = [], True
    for name, of in published.GPUS.items():
        memory, link = flops_of_a_byte(name)
        met = met and near(of['claimed'], link, 0.25)
        said.append(f'{name} {link:,.0f} (with sparse FLOPs and its own memory {memory:.0f})')
    return judged(claim, f'{NOTE}; data sheets', 'dense FLOPs over the link: ' + ', '.join(said) +
                  f'; H100 as measured here {measured_flops_of_a_byte():,.0f}', met)


def profiles(results):
    del results
    copies, computing = (published.PROFILES[key] for key in ('copies are longer',
                                                             'computing is longer'))
    claim = (f'8 GPUs with {copies:,} tokens each: copies take longer; with {computing:,}: '
             'computing does')
    holds = {name: copies < flops_of_a_byte(name)[1] < computing for name in published.GPUS}
    measured = 'a step computes as long as it copies at ' + ', '.join(
        f'{flops_of_a_byte(name)[1]:,.0f} tokens ({name})' for name in published.GPUS)
    return partly(claim, NOTE, measured, holds)


def table_of_h100(results):
    del results
    total, each = (published.H100_TFLOPS[key] for key in ('total', 'each'))
    devices = published.ACCURACY['devices']
    bound = published.FA2_H100_TFLOPS * devices / (2 * devices - 1)
    claim = 'its table of 8 × H100 is of T tokens in all'
    measured = (f'then a GPU does {total} TFLOP/s; with T tokens on each GPU it does {each}, and '
                f'FlashAttention-2 with a load of N/(2N−1) of {published.FA2_H100_TFLOPS} '
                f'does {bound:.0f}')
    return judged(claim, f'{NOTE}; {published.FA2}', measured,
                  not near(each, bound, 0.05) or near(total, bound, 0.05))


def table_of_striped(results):
    del results
    claim = 'striped is faster than the ring (8 × RTX 4090, forward)'
    ratios = dict(zip(published.LENGTHS, published.STRIPED_OVER_RING))
    measured = 'speed over the ring\'s in its own table: ' + ', '.join(
        f'{ratio} at {length:,}' for length, ratio in ratios.items())
    faster = [length for length, ratio in ratios.items() if ratio > 1]
    slower = [length for length, ratio in ratios.items() if ratio <= 1]
    met = {}
    if faster:
        met[f'{min(faster):,} tokens and more'] = True
    if slower:
        met[f'up to {max(slower):,}'] = False
    return partly(claim, f'{NOTE}, {STRIPED}', measured, met)
