#!/usr/bin/env python3
"""Measures what the papers behind this project claim, and writes a page with plots.

  study.py --out docs/study --lib libattnd_kernels_c.so --cpu reference_study --ring ring_study

Parts: speed (time and memory of the naive way, FlashAttention-1 and -2 and Hopper's kernels), naive
(the naive way in PyTorch, an operation at a time) and dram (bytes that ncu counts) need a GPU and
PyTorch; cpu needs neither. A part that cannot run says why. OUT/results.json keeps what was
measured: a part that is not run stays as it is there, and --render writes the page again.

The part ring, several devices that share a sequence, has parts, results and a page of its own:
OUT/ring.json and OUT/ring.md. Of its parts gpu alone needs GPUs, and nothing needs PyTorch.
"""

import argparse
import datetime
import json
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / 'gpu'))

import cpu
import dram
import page
import plots
import sides
from ring import drawing, gpu
from ring import page as ring_page
from ring import parts as ring_parts

PARTS = ('speed', 'naive', 'dram', 'cpu')
ALL = (*PARTS, 'ring')


def parse(arguments):
    numbers = lambda s: [int(x) for x in s.split(',')]
    names = lambda s: [x for x in s.split(',') if x]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', required=True, type=pathlib.Path, help='the folder to write to')
    parser.add_argument('--lib', help='libattnd_kernels_c.so; without it nothing runs on a GPU')
    parser.add_argument('--cpu', help='the program reference_study')
    parser.add_argument('--ring', help='the program ring_study')
    parser.add_argument('--parts', '--part', type=names, default=[],
                        help=f'which of {",".join(ALL)}; all unless given')
    parser.add_argument('--lens', type=numbers, default=[512, 1024, 2048, 4096, 8192, 16384],
                        help='of speed')
    parser.add_argument('--sides', type=names, default=list(sides.SIDES),
                        help=f'of speed and dram, which of {",".join(sides.SIDES)}')
    parser.add_argument('--cpu_lens', type=numbers, default=[256, 512, 1024, 2048], help='of cpu')
    parser.add_argument('--ring_parts', type=names, default=list(ring_parts.PARTS),
                        help=f'of ring, which of {",".join(ring_parts.PARTS)}')
    parser.add_argument('--ring_gpu', type=names, default=list(gpu.RECORDINGS),
                        help=f"of ring's gpu, which of {','.join(gpu.RECORDINGS)}")
    parser.add_argument('--ring_device', default='cuda',
                        help="of ring's gpu: cuda, cuda:0,1, or cpu*N, which tries it out")
    parser.add_argument('--ring_trace', help="of ring's gpu, libattnd_activity_trace.so")
    parser.add_argument('--quick', action='store_true', help='what is timed in one round')
    parser.add_argument('--render', action='store_true', help='measure nothing')
    options = parser.parse_args(arguments)
    for name, allowed in (('parts', ALL), ('sides', sides.SIDES), ('ring_parts', ring_parts.PARTS),
                          ('ring_gpu', gpu.RECORDINGS)):
        unknown = set(getattr(options, name) or ()) - set(allowed)
        if unknown:
            parser.error(f'--{name}: {",".join(sorted(unknown))} is none of {",".join(allowed)}')
    return options


def why_no_gpu(options):
    """Why the parts that need a GPU cannot run, or None."""
    if options.lib is None:
        return 'no library was given (--lib)'
    try:
        import torch
    except ImportError:
        return 'PyTorch is not installed'
    return None if torch.cuda.is_available() else 'PyTorch sees no GPU'


def gpu_machine():
    import torch
    return {'GPU': torch.cuda.get_device_name(0), 'PyTorch': torch.__version__,
            'cuDNN': torch.backends.cudnn.version(), 'date': today()}


def today():
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def show(row):
    """A row of speed, as it is measured."""
    cells = [f'{side} {found["tflops"]:.1f}' for side, found in row['sides'].items()]
    print(f'{row["name"]} {row["direction"]}: {", ".join(cells)}',
          *row['notes'], sep='\n  # ', flush=True)


def run_gpu(part, options):
    import torch
    if part == 'naive':
        import eager
        return eager.run()
    if part == 'dram':
        torch.cuda.empty_cache()  # another process needs it
        return dram.run(options.lib, gpu_sides(options))
    import ours
    import sections
    import speed
    torch.manual_seed(1)
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        bench = sections.Bench(ours.Library(options.lib),
                               rounds=1 if options.quick else sections.timing.ROUNDS)
        return {'rows': speed.run(bench, options.lens, gpu_sides(options), show)}


def gpu_sides(options):
    """Without Hopper's where there are none: they would be the other kernels."""
    import torch
    hopper = torch.cuda.get_device_capability() == (9, 0)
    return [side for side in options.sides if hopper or side != 'hopper']


def run_part(part, options):
    """What was found, or {'skipped': why}."""
    if part == 'cpu':
        found = cpu.run(options.cpu, options.cpu_lens, 1 if options.quick else 3)
        return {**found, 'machine': {'processor': found.get('processor'), 'date': today()}}
    why = why_no_gpu(options)
    if why is not None:
        return {'skipped': why}
    try:
        return {**run_gpu(part, options), 'machine': gpu_machine()}
    except RuntimeError as error:  # such as too little memory
        return {'skipped': str(error).splitlines()[0][:200]}


def measure(options, results, keep):
    """Replaces the parts of the results that could be measured, and keeps them as soon as they are
    there; whether all that were asked for."""
    all_ran = True
    for part in options.parts or PARTS:
        if part == 'ring':
            continue
        start = time.monotonic()
        print(f'# {part}', flush=True)
        found = run_part(part, options)
        why = found.get('skipped')
        all_ran = all_ran and why is None
        if why is None or 'skipped' in results.get(part, {'skipped': ''}):
            results[part] = found
            keep(results)
        print(f'# {part}: {why or "done"}, {time.monotonic() - start:.0f} s', flush=True)
    return all_ran or not options.parts


def write(out, render, draw, results):
    """A page, and its plots where there is something to draw with."""
    if not results:
        return
    files = render(results)
    print(f'# wrote {", ".join(str(out / name) for name in files)}')
    if plots.is_there():
        files.update(draw(results))
    else:
        print('# no matplotlib: plots are as they were, and --render draws them elsewhere')
    for name, text in files.items():
        (out / name).write_text(text, encoding='utf-8')


def load(path):
    return json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}


def main():
    options = parse(sys.argv[1:])
    options.out.mkdir(parents=True, exist_ok=True)
    kept, ring_kept = options.out / 'results.json', options.out / 'ring.json'
    results, ring = load(kept), load(ring_kept)
    done = True
    if not options.render:
        done = measure(options, results, lambda found: kept.write_text(
            json.dumps(found, indent=1) + '\n', encoding='utf-8'))
    if not options.render and 'ring' in (options.parts or ALL):
        all_ran = ring_parts.measure(options, ring, lambda found: ring_kept.write_text(
            ring_parts.dump(found), encoding='utf-8'))
        done = done and (all_ran or not options.parts)
    write(options.out, page.render, page.draw, results)
    write(options.out, ring_page.render, drawing.draw, ring)
    return 0 if done else 1


if __name__ == '__main__':
    sys.exit(main())
