#!/usr/bin/env python3
"""Causal attention on N GPUs with PyTorch, the peer of plan_bench's section `causal`.

  python3 -m torch.distributed.run --nproc_per_node=N context_parallel.py
      --rows=1x16384,2x8192    some of the rows (batch x length)
      --device=cpu             checks what is written here, at a 512th of the lengths (--shrink=N)

Ways, all with cuDNN's kernels: PyTorch's context_parallel with both of its rotations; an
all-gather of K and V; a ring, a striped and a zigzag ring over NCCL (context_parallel_peers.py). 16 heads of 128, bf16,
random values. A time is from a barrier until the rank is idle, by the host's clock, the slowest
rank's, the median of many. In rows of up to 16,384 tokens results are checked against one GPU's:
the largest difference in parts of the largest value. A line for each way, and a line of JSON.
"""

import argparse
import datetime
import gc
import json
import math
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import context_parallel_peers as peers

ROWS = ((2, 8192), (1, 16384), (2, 32768), (1, 65536), (1, 131072))
HEADS, DIM = 16, 128
MOST_CHECKED = 16384  # tokens
SETTLE_MS, TIMED_MS = 1000, 1000  # plan_bench.cc says why
LEAST_REPEATS, MOST_REPEATS = 9, 400
MOST_DIFFERENCE = 0.02
TIMEOUT = datetime.timedelta(seconds=60)  # of a collective, where a rank is gone


class Bench:

    def __init__(self, options):
        self.on_gpu = options.device == 'cuda'
        self.rank = int(os.environ['RANK'])
        self.world = int(os.environ['WORLD_SIZE'])
        if self.on_gpu:
            self.device = torch.device('cuda', int(os.environ['LOCAL_RANK']))
            torch.cuda.set_device(self.device)
            dist.init_process_group('nccl', device_id=self.device, timeout=TIMEOUT)
        else:
            self.device = torch.device('cpu')
            dist.init_process_group('gloo', timeout=TIMEOUT)
        self.dtype = torch.bfloat16 if self.on_gpu else torch.float32
        self.kernels = peers.Cudnn() if self.on_gpu else peers.Math()

    def say(self, text):
        if self.rank == 0:
            print(text, flush=True)

    def wait(self):
        if self.on_gpu:
            torch.cuda.synchronize()

    def slowest(self, values):
        """Of all ranks, one by one."""
        values = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return values.tolist()

    def time_ms(self, run):

        def once():
            dist.barrier()
            self.wait()
            start = time.perf_counter()
            run()
            self.wait()
            return 1e3 * (time.perf_counter() - start)

        for _ in range(2):
            once()
        about = max(self.slowest([once()])[0], 1e-3)  # all ranks repeat alike
        for _ in range(min(1000, math.ceil(SETTLE_MS / about))):
            run()
        repeats = int(min(max(TIMED_MS / about, LEAST_REPEATS), MOST_REPEATS))
        return statistics.median(self.slowest([once() for _ in range(repeats)]))

    def inputs(self, batch, length):
        """The same whole q, k, v and d_o on every rank."""
        random = torch.Generator(self.device).manual_seed(1)
        return [
            torch.randn((batch, HEADS, length, DIM), generator=random, device=self.device,
                        dtype=self.dtype) for _ in range(4)
        ]

    def one_device(self, batch, length):
        """(times, o, dq, dk and dv, or None where that is not checked)"""
        q, k, v, d_o = self.inputs(batch, length)
        o, lse = self.kernels.forward(q, k, v, True)
        backward = lambda: self.kernels.backward(d_o, q, k, v, o, lse, True)
        times = {
            'forward': self.time_ms(lambda: self.kernels.forward(q, k, v, True)),
            'backward': self.time_ms(backward)
        }
        if length > MOST_CHECKED:
            return times, None
        return times, (o, *backward())

    def difference(self, results, expected, shard=peers.shard):
        """From this rank's part of what is expected; None where nothing is."""
        if expected is None:
            return None
        expected = [shard(tensor, self.rank, self.world) for tensor in expected]
        return max(
            self.slowest([((a.float() - b.float()).abs().max() / b.float().abs().max()).item()
                          for a, b in zip(results, expected)]))

    def own_way(self, way, batch, length, expected):
        q, k, v, d_o = (
            way.shard(tensor, self.rank, self.world) for tensor in self.inputs(batch, length))
        way = way(self.kernels, q, torch.stack([k, v]), d_o)
        del q, k, v
        times = {'forward': self.time_ms(way.forward), 'backward': self.time_ms(way.backward)}
        return times, self.difference((way.o, *way.backward()), expected, way.shard)

    def context_parallel(self, rotation, batch, length, expected):
        mesh = init_device_mesh(self.device.type, (self.world,))
        *whole, d_o = self.inputs(batch, length)
        d_o = peers.shard(d_o, self.rank, self.world)
        with peers.ContextParallel(mesh, rotation, *whole) as way:
            times = {'forward': self.time_ms(way.forward)}
            way.prepare_backward(d_o)
            times['backward'] = self.time_ms(way.backward)
            return times, self.difference((way.o, *way.backward()), expected)

    def ways(self):
        """{name: what measures it}"""
        ways = {
            'all-gather': lambda *row: self.own_way(peers.AllGather, *row),
            'ring': lambda *row: self.own_way(peers.Ring, *row),
            'striped ring': lambda *row: self.own_way(peers.StripedRing, *row),
            'zigzag ring': lambda *row: self.own_way(peers.ZigzagRing, *row)
        }
        if self.on_gpu:  # no kernels of its for a processor
            for rotation in ('allgather', 'alltoall'):
                ways[f'torch {rotation}'] = (
                    lambda *row, rotation=rotation: self.context_parallel(rotation, *row))
        return ways

    def row(self, batch, length):
        name = f'{batch} x {length}'
        alone, expected = self.one_device(batch, length)
        self.say(f'{name:12} {"one device":16} forward {alone["forward"]:9.3f} ms  '
                 f'backward {alone["backward"]:9.3f} ms')
        result = {'batch': batch, 'len': length, 'one_device': alone, 'ways': {}, 'failed': {}}
        for way, measure in self.ways().items():
            gc.collect()
            if self.on_gpu:
                torch.cuda.empty_cache()
            try:
                times, difference = measure(batch, length, expected)
            except Exception as error:  # one way that does not run leaves the others
                result['failed'][way] = f'{type(error).__name__}: {error}'[:300]
                self.say(f'{name:12} {way:16} failed: {result["failed"][way]}')
                continue
            note = '' if difference is None else f'  differs by {difference:.1e}'
            if difference is not None and not difference <= MOST_DIFFERENCE:
                result['failed'][way] = f'differs by {difference}'
                note += ': WRONG'
            else:
                result['ways'][way] = times
            percent = {op: 100 * alone[op] / (self.world * ms) for op, ms in times.items()}
            self.say(f'{name:12} {way:16} ' + '  '.join(
                f'{op} {ms:9.3f} ms {percent[op]:5.1f} %' for op, ms in times.items()) + note)
        for op in ('forward', 'backward'):
            times = {way: ms[op] for way, ms in result['ways'].items()}
            if times:
                best = min(times, key=times.get)
                result[op] = {'ms': times[best], 'by': best}
        return result


def parse():

    def row(text):
        batch, length = text.split('x')
        return int(batch), int(length)

    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rows', type=lambda s: [row(x) for x in s.split(',')], default=ROWS)
    parser.add_argument('--device', choices=('cuda', 'cpu'), default='cuda')
    parser.add_argument('--shrink', type=int)
    options = parser.parse_args()
    options.shrink = options.shrink or (1 if options.device == 'cuda' else 512)
    return options


def main():
    options = parse()
    start = time.perf_counter()
    bench = Bench(options)
    cut = 2 * bench.world
    rows = [
        bench.row(batch, max(length // options.shrink // cut, 1) * cut)
        for batch, length in options.rows
    ]
    name = torch.cuda.get_device_name() if bench.on_gpu else 'cpu'
    bench.say(f'# all took {time.perf_counter() - start:.1f} s')
    bench.say(json.dumps({'context_parallel': {
        'device': f'{bench.world} x {name}',
        'torch': torch.__version__,
        'cudnn': torch.backends.cudnn.version() if bench.on_gpu else None,
        'rows': rows,
    }}))
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
