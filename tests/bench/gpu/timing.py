"""Time on the GPU, by events, of sides that take turns; and what the clock did meanwhile."""

import ctypes
import statistics
import time
from dataclasses import dataclass

import torch

ROUNDS = 4  # even: every other one in reverse
ROUND_MS = 20  # of the slowest side; all repeat alike
# For so long a side runs by itself before it is timed. A GPU at its limit of power gives the first
# tens of milliseconds to what came before: after a side that draws less, the same kernels were up to
# 12 % faster than after themselves.
SETTLE_MS = 60


@dataclass
class Timing:
    ms: float  # median over all rounds
    mhz: float  # median SM clock, sampled while it ran; 0: unknown
    celsius: float


class Clock:
    """SM clock and temperature of a GPU, by NVML; zeros where that is missing."""
    _SM = 1
    _GPU = 0

    def __init__(self, index=0):
        self._handle = ctypes.c_void_p()
        try:
            self._nvml = ctypes.CDLL('libnvidia-ml.so.1')
            found = self._nvml.nvmlInit_v2() == 0 and self._nvml.nvmlDeviceGetHandleByIndex_v2(
                ctypes.c_uint(index), ctypes.byref(self._handle)) == 0
        except OSError:
            found = False
        if not found:
            self._nvml = None

    def sample(self):
        """(MHz, degrees Celsius)"""
        if self._nvml is None:
            return 0, 0
        mhz, celsius = ctypes.c_uint(), ctypes.c_uint()
        self._nvml.nvmlDeviceGetClockInfo(self._handle, self._SM, ctypes.byref(mhz))
        self._nvml.nvmlDeviceGetTemperature(self._handle, self._GPU, ctypes.byref(celsius))
        return mhz.value, celsius.value


def capture(call, before=lambda: None):
    """All that `call` enqueues, as a graph to replay. `before` runs when the warm calls are over.

    The current stream must not be the default one.
    """
    stream = torch.cuda.current_stream()
    for _ in range(3):
        call()
    stream.synchronize()
    before()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph


def _timed(run, repeats):
    """Pairs of events around each of some runs; nothing is waited for."""
    pairs = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        pairs.append((start, end))
    return pairs


def _settle(run, repeats, wait):
    end = time.monotonic() + SETTLE_MS / 1e3
    while time.monotonic() < end:
        for _ in range(repeats):
            run()
        wait()


def alternate(sides, clock, rounds=ROUNDS, after=lambda: None):
    """{name: Timing} of {name: callable that enqueues}; `after` runs when nothing is under way."""

    def wait():
        torch.cuda.synchronize()
        after()

    slowest = 0
    for run in sides.values():
        run()
        pairs = _timed(run, 1)
        wait()
        slowest = max(slowest, pairs[0][0].elapsed_time(pairs[0][1]))
    repeats = max(3, min(30, int(ROUND_MS / max(slowest, 1e-3))))
    ms = {name: [] for name in sides}
    clocks = {name: [] for name in sides}
    order = list(sides)
    for _ in range(rounds):
        for name in order:
            _settle(sides[name], repeats, wait)
            pairs = _timed(sides[name], repeats)
            clocks[name].append(clock.sample())
            wait()
            ms[name] += [start.elapsed_time(end) for start, end in pairs]
        order.reverse()
    return {
        name: Timing(statistics.median(ms[name]), *map(statistics.median, zip(*clocks[name])))
        for name in sides
    }


def event_ms(run, repeats=12):
    """Median milliseconds of something that takes no turns."""
    _settle(run, 3, torch.cuda.synchronize)
    pairs = _timed(run, repeats)
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs)
