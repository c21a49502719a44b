#!/usr/bin/env python3
"""Our kernels beside PyTorch's cuDNN and FlashAttention-2 operators, on one GPU.

All run in this process, on the same memory: [batch, len, heads, dim], normal values. A call is
captured into a CUDA graph, which holds all that it enqueues, and its replays are timed by events.
The sides take turns, four times a row, every other time in reverse, and each runs by itself for a
while before it is timed; each number is a median. Before a row is timed our O and LSE, or dQ, dK
and dV, are checked against the peers'; gradients once more after it. Needs PyTorch, and a few
minutes on an H200.

  cmake --preset kernels && cmake --build --preset kernels --target attnd_kernels_c
  python3 kernel_bench.py --lib build/kernels/kernels/libattnd_kernels_c.so --check
  python3 kernel_bench.py --lib ... --check --rows backward,deterministic
"""

import argparse
import sys
import time

import report

FORWARD = ('grid', 'dims', 'decode', 'group', 'large_group', 'memory')
BACKWARD = ('backward', 'backward_dims', 'backward_grouped', 'deterministic', 'sm80_backward',
            'backward_memory')
SECTIONS = (*FORWARD, *BACKWARD, 'baselines')


def parse(arguments):
    numbers = lambda s: [int(x) for x in s.split(',')]
    names = lambda s: [x for x in s.split(',') if x]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--lib', required=True, help='libattnd_kernels_c.so')
    parser.add_argument('--rows', type=names, default=[*FORWARD, *BACKWARD],
                        help=f'which of {",".join(SECTIONS)}; all but the last unless given')
    parser.add_argument('--dims', type=numbers, default=[64, 128, 256])
    parser.add_argument('--seqs', type=numbers, default=[512, 2048, 8192, 16384])
    parser.add_argument('--algorithms', type=names, default=[],
                        help='e.g. naive,flash_attention_1: also time these; implies baselines')
    parser.add_argument('--quick', action='store_true',
                        help='one round, dim 128, lengths 2048 and 8192, two decode rows')
    parser.add_argument('--csv', help='write every number there')
    parser.add_argument('--check', action='store_true', help='fail when a bar is missed')
    options = parser.parse_args(arguments)
    if options.algorithms and 'baselines' not in options.rows:
        options.rows.append('baselines')
    unknown = set(options.rows) - set(SECTIONS)
    if unknown:
        parser.error(f'--rows: {",".join(sorted(unknown))} is none of {",".join(SECTIONS)}')
    if options.quick:
        options.dims, options.seqs = [128], [2048, 8192]
    return options


PEERS = ('fa2', 'cudnn')


def plan_forward(options, bench, sections):
    """(rows, sides, sides that ours is compared with) of each section, in order."""
    peers, wanted = PEERS, options.rows
    if 'grid' in wanted:
        yield sections.grid(bench, options.dims, options.seqs), ('ours', *peers), peers
    if 'dims' in wanted and not options.quick:
        yield sections.grid(bench, [96, 192], [8192]), ('ours', *peers), peers
    if 'decode' in wanted:
        yield sections.decode(bench, 2 if options.quick else None), ('ours', *peers), peers
    if 'group' in wanted:
        yield sections.group(bench), ('one_call', 'one_by_one'), ('one_by_one',)
        yield sections.setup(bench), ('ours',), ()
    if 'large_group' in wanted:
        yield sections.large_group(bench), ('one_call', 'each_alone'), ('each_alone',)
    if 'memory' in wanted:
        yield sections.memory(bench), ('ours', 'naive', 'math'), ()
    if 'baselines' in wanted:
        sides = ('ours', *peers, 'math', *options.algorithms)
        yield sections.baselines(bench, options.algorithms), sides, ('math',)


def plan_backward(options, bench, backward):
    """The same of backward."""
    wanted = options.rows
    if 'backward' in wanted:
        rows = backward.grid(bench, 'backward', options.dims, options.seqs)
        yield rows, ('ours', *PEERS), PEERS
    if 'backward_dims' in wanted and not options.quick:
        yield backward.grid(bench, 'backward_dims', [96, 192], [8192]), ('ours', *PEERS), PEERS
    if 'backward_grouped' in wanted and not options.quick:
        yield backward.grouped(bench), ('ours',), ()
    if 'deterministic' in wanted:
        yield backward.deterministic(bench), ('deterministic', 'ours'), ('ours',)
    if 'sm80_backward' in wanted:
        dims = [dim for dim in options.dims if dim <= 128]
        rows = backward.grid(bench, 'sm80_backward', dims, options.seqs, 'any_gpu', ('fa2',))
        yield rows, ('any_gpu', 'fa2'), ('fa2',)
    if 'backward_memory' in wanted:
        yield backward.memory(bench), ('ours', 'naive', 'naive_autograd', 'math'), ()


def show(rows, sides, against):
    """Prints a section as it is measured; returns its rows."""
    shown = []
    for row in rows:
        if not shown:
            print('\n' + report.header(row.section, row.unit, sides, against))
        print(report.line(row, sides, against), flush=True)
        shown.append(row)
    if shown and shown[0].section in ('grid', 'backward', 'sm80_backward'):
        print('\n'.join(report.means(shown, sides[0], against)), flush=True)
    return shown


def finish(rows, options, hopper=False):
    """Prints the bars and writes the file; the exit status."""
    if options.csv:
        report.write_csv(options.csv, rows)
    missed = 0
    print()
    for text, met in report.bars(rows) + (report.hopper_bars(rows) if hopper else []):
        missed += not met
        print(('met:    ' if met else 'MISSED: ') + text)
    return 1 if options.check and missed else 0


def main():
    options = parse(sys.argv[1:])
    import torch  # not needed to print the help

    import backward
    import ours
    import sections
    start = time.monotonic()
    print(f'# torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, '
          f'{torch.cuda.get_device_name(0)}')
    torch.manual_seed(1)
    rows = []
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        bench = sections.Bench(ours.Library(options.lib),
                               rounds=1 if options.quick else sections.timing.ROUNDS)
        mhz, celsius = bench.clock.sample()
        print(f'# SM clock {mhz} MHz, {celsius} C at the start')
        for section in (*plan_forward(options, bench, sections),
                        *plan_backward(options, bench, backward)):
            rows += show(*section)
            torch.cuda.empty_cache()
        for row in sections.ceilings():
            rows.append(row)
            print(f'# {row.name} {row.values["machine"]:.0f} {row.unit}')
        mhz, celsius = bench.clock.sample()
    print(f'# SM clock {mhz} MHz, {celsius} C at the end; {time.monotonic() - start:.0f} s')
    return finish(rows, options, torch.cuda.get_device_capability() == (9, 0))


if __name__ == '__main__':
    sys.exit(main())
