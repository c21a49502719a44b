"""A link between two network namespaces on which packets are lost, late, or out of order.

The kernel's own means, netem, is missing from many kernels, and this needs none: in each
namespace there is a TUN device, and a thread here carries the packets between the two. What
happens to which packet is drawn from a seed.
"""

import ctypes
import dataclasses
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import threading
import time

from bench import Skipped

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454ca
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_SIOCSIFADDR, _SIOCSIFNETMASK = 0x8916, 0x891c
_IFF_UP = 0x1


def _up(device, address=None):
    """Gives `device` of this namespace an address in a network of 255, and turns it on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        def ask(request, packed):
            return fcntl.ioctl(control, request, struct.pack('16s', device.encode()) + packed)
        if address:
            for request, text in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, '255.255.255.0')):
                ask(request, struct.pack('HH4s8x', socket.AF_INET, 0, socket.inet_aton(text)))
        flags = struct.unpack('16xH', ask(_SIOCGIFFLAGS, bytes(16))[:18])[0]
        ask(_SIOCSIFFLAGS, struct.pack('H14x', flags | _IFF_UP))


def _tun(address):
    """A TUN device of this namespace: a descriptor that carries whole packets."""
    tun = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack('16sH22x', b'attnd', _IFF_TUN | _IFF_NO_PI))
    _up('attnd', address)
    return tun


def _namespace_with_tun(address):
    """A child that holds a network namespace with a TUN device: (its pid, the descriptor)."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
        try:
            if libc.unshare(_CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), 'unshare')
            _up('lo')
            socket.send_fds(theirs, [b'.'], [_tun(address)])
            ours.close()
            theirs.recv(1)  # until the other end is closed
        except OSError as error:
            theirs.send(str(error).encode())
        os._exit(0)
    theirs.close()
    text, descriptors, _, _ = socket.recv_fds(ours, 4096, 1)
    if not descriptors:
        raise Skipped(f'no network namespace of its own here: {text.decode()}')
    return child, descriptors[0], ours


@dataclasses.dataclass
class Weather:
    """What happens to packets, the same in both directions."""
    loss: float = 0  # of all
    delay_seconds: float = 0  # of all
    overtaken: float = 0  # share that arrives `lag_seconds` later than those sent after it
    lag_seconds: float = 0.005
    down: bool = False  # nothing arrives


@dataclasses.dataclass
class Counts:
    carried: int = 0
    lost: int = 0
    overtaken: int = 0


class Link:
    """Between this process' network namespace, which must be its own, and another.

    A program in the other is run with `inside`; it finds `server_address`, which is here.
    """

    server_address, client_address = '10.99.0.1', '10.99.0.2'

    def __init__(self, bench, seed):
        _up('lo')
        try:
            here = _tun(self.server_address)
        except OSError as error:
            raise Skipped(f'no TUN device here: {error}') from error
        child, there, self._holder = _namespace_with_tun(self.client_address)
        self.inside = ('nsenter', f'--net=/proc/{child}/ns/net')
        self.weather = Weather()
        self.counts = Counts()
        self._child = child
        self._ends = (here, there)
        self._random = random.Random(seed)
        self._wake, self._woken = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()
        bench.closes(self.close)

    def close(self):
        os.close(self._woken)
        self._thread.join()
        self._holder.close()
        os.waitpid(self._child, 0)
        for descriptor in (*self._ends, self._wake):
            os.close(descriptor)

    def _carry(self):
        here, there = self._ends
        other = {here: there, there: here}
        poll = select.poll()
        for descriptor in (here, there, self._wake):
            poll.register(descriptor, select.POLLIN | select.POLLHUP)
        waiting = []  # (when it arrives, a number that keeps the order, to whom, packet)
        number = 0
        while True:
            pause = max(0, waiting[0][0] - time.monotonic()) * 1000 if waiting else None
            for source, _ in poll.poll(pause):
                if source == self._wake:
                    return
                for packet in _packets(source):
                    number += 1
                    due = self._fate(time.monotonic())
                    if due is not None:
                        heapq.heappush(waiting, (due, number, other[source], packet))
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, to, packet = heapq.heappop(waiting)
                try:
                    os.write(to, packet)
                except OSError:
                    pass  # a full device loses packets, as any would

    def _fate(self, now):
        """When a packet that is sent now arrives; None: never."""
        weather = self.weather
        if weather.down or self._random.random() < weather.loss:
            self.counts.lost += 1
            return None
        self.counts.carried += 1
        due = now + weather.delay_seconds
        if self._random.random() < weather.overtaken:
            self.counts.overtaken += 1
            due += weather.lag_seconds
        return due


def _packets(tun, most=64):
    """What has arrived at a device, some of it at a time."""
    for _ in range(most):
        try:
            yield os.read(tun, 65536)
        except BlockingIOError:
            return
