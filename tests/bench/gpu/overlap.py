#!/usr/bin/env python3
"""Says how busy a GPU was, and how much of its copies ran beside kernels.

Usage: overlap.py TRACE.csv

TRACE.csv is what the library of activity_trace.cc writes. With the server's
lanes at work:

  CUDA_INJECTION64_PATH=$PWD/build/release/tests/bench/gpu/libattnd_activity_trace.so \\
  ATTND_TRACE=trace.csv build/release/server/attnd --device=cuda --memory_limit=16GiB &
  build/release/client/attnload localhost:7411 --concurrency=16 --shape=forward:bf16:s4096:h16:d128
  kill %1; tests/bench/gpu/overlap.py trace.csv

Where there is no toolkit, libcupti.so.13 has to lie beside the library.

Busy is the time in which at least one of a kind was under way. "Beside a
kernel" counts kernels of other streams only: within a stream nothing overlaps.
"""

import collections
import csv
import sys

KINDS = ('h2d', 'd2h', 'copy', 'peer', 'kernel')


def union(intervals):
  """The same time in disjoint intervals, in order."""
  merged = []
  for start, end in sorted(intervals):
    if merged and start <= merged[-1][1]:
      merged[-1][1] = max(merged[-1][1], end)
    else:
      merged.append([start, end])
  return merged


def length(intervals):
  return sum(end - start for start, end in intervals)


def common(a, b):
  """How much of `a` is in `b`; both as union() gives them."""
  total = i = j = 0
  while i < len(a) and j < len(b):
    total += max(0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
    if a[i][1] < b[j][1]:
      i += 1
    else:
      j += 1
  return total


class Device:
  """What one device did, by kind and stream."""

  def __init__(self):
    self.intervals = {kind: collections.defaultdict(list) for kind in KINDS}
    self.bytes = collections.Counter()

  def add(self, kind, stream, start, end, size):
    self.intervals[kind][stream].append((start, end))
    self.bytes[kind] += size

  def all(self, kind):
    return [i for stream in self.intervals[kind].values() for i in stream]

  def busy(self, kind):
    return length(union(self.all(kind)))

  def beside_kernels(self, kind):
    """Time in copies, stream by stream, that other streams had a kernel in."""
    total = inside = 0
    for stream, intervals in self.intervals[kind].items():
      copies = union(intervals)
      kernels = union(i for other, some in self.intervals['kernel'].items()
                      if other != stream for i in some)
      total += length(copies)
      inside += common(copies, kernels)
    return inside, total


def read(lines):
  devices = collections.defaultdict(Device)
  for row in csv.DictReader(lines):
    # A program that was killed may have left half a line.
    if None in row.values() or row['kind'] not in KINDS:
      continue
    devices[int(row['device'])].add(row['kind'], int(row['stream']),
                                    int(row['start_ns']), int(row['end_ns']),
                                    int(row['bytes']))
  return devices


def report(index, device):
  every = [i for kind in KINDS for i in device.all(kind)]
  span = max(end for _, end in every) - min(start for start, _ in every)
  lines = [f'device {index}: {span / 1e6:.3f} ms from first to last, '
           f'{len(device.intervals["kernel"])} streams with kernels']
  for kind in KINDS:
    count = len(device.all(kind))
    if not count:
      continue
    busy = device.busy(kind)
    line = (f'  {kind:6} {count:8} of them, busy {busy / 1e6:10.3f} ms, '
            f'{100 * busy / max(span, 1):5.1f} % of the time')
    if kind != 'kernel':
      inside, total = device.beside_kernels(kind)
      line += (f', {device.bytes[kind] / max(busy, 1):6.2f} GB/s, '
               f'{100 * inside / max(total, 1):5.1f} % beside a kernel')
    lines.append(line)
  return '\n'.join(lines)


def main():
  if len(sys.argv) != 2:
    sys.exit(__doc__)
  with open(sys.argv[1], newline='') as lines:
    devices = read(lines)
  if not devices:
    sys.exit('no device did anything')
  for index, device in sorted(devices.items()):
    print(report(index, device))


if __name__ == '__main__':
  main()
