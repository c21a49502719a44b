"""Who calls attnd in overload_bench, each in a process of its own that prints JSON at its end.

  senders.py honest ADDRESS FILE THREADS SECONDS  Forward with the message in FILE, as generated
                                                  stubs send it: no hint, no retry
  senders.py slow ADDRESS SOURCES CALLS HINT SECONDS
                                                  messages of a byte a second
  senders.py liars ADDRESS SOURCES CALLS BYTES SECONDS
                                                  messages of BYTES that are said to have 100,
                                                  again and again
"""

import collections
import json
import sys
import threading
import time

import http2


def honest(address, path, threads, seconds):
    import grpc
    from google.rpc import error_details_pb2
    from grpc_status import rpc_status

    with open(path, 'rb') as file:
        message = file.read()
    options = [('grpc.max_receive_message_length', -1), ('grpc.max_send_message_length', -1),
               ('grpc.use_local_subchannel_pool', 1)]
    codes, times, lock = collections.Counter(), [], threading.Lock()
    without_delay, said = [0], set()

    def has_delay(error):
        status = rpc_status.from_call(error)
        return status is not None and any(
            detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)

    def loop(until):
        with grpc.insecure_channel(address, options) as channel:
            call = channel.unary_unary('/attn.v1.AttentionService/Forward')
            while time.monotonic() < until:
                begin = time.monotonic()
                try:
                    call(message, timeout=60)
                    code = 'OK'
                except grpc.RpcError as error:
                    code = error.code().name
                    with lock:
                        said.add(f'{code}: {error.details()}'[:120])
                        without_delay[0] += (code == 'RESOURCE_EXHAUSTED'
                                             and not has_delay(error))
                with lock:
                    codes[code] += 1
                    times.append(time.monotonic() - begin)

    begin = time.monotonic()
    workers = [threading.Thread(target=loop, args=(begin + seconds,)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    times.sort()
    return {'codes': codes, 'seconds': time.monotonic() - begin, 'said': sorted(said),
            'without_delay': without_delay[0],
            'p99': times[int(len(times) * 0.99)] if times else None}


def _sources(count):
    return [f'127.0.{1 + i // 250}.{1 + i % 250}' for i in range(count)]


def _hint(index, hint):
    """none, small, large or mixed."""
    kinds = {'none': None, 'small': 1000, 'large': 30 << 20}
    return kinds[hint] if hint in kinds else list(kinds.values())[index % 3]


def slow(address, sources, calls, hint, seconds):
    """Keeps `calls` calls open, one byte a second each, and opens another for each that ends."""
    sources, callers, opened, until = _sources(sources), [], 0, time.monotonic() + seconds
    while time.monotonic() < until:
        begin = time.monotonic()
        callers = [caller for caller in callers if caller.poll() or caller.close()]
        while len(callers) < calls and time.monotonic() < begin + 0.5:
            size = _hint(opened, hint)
            try:
                caller = http2.Caller(address, sources[opened % len(sources)], size)
            except OSError:
                break
            opened += 1
            caller.write(http2.prefix(size or 30 << 20))
            callers.append(caller)
        for caller in callers:
            caller.write(b'x')
        time.sleep(max(0, begin + 1 - time.monotonic()))
    return {'opened': opened, 'open_at_end': len(callers)}


def liars(address, sources, calls, size, seconds):
    """Keeps `calls` calls open, each of which sends as fast as it may."""
    sources, callers, opened, sent = _sources(sources), {}, 0, 0
    until, block = time.monotonic() + seconds, bytes(http2.FRAME_BYTES)
    while time.monotonic() < until:
        while len(callers) < calls:
            try:
                caller = http2.Caller(address, sources[opened % len(sources)], 100)
            except OSError:
                break
            opened += 1
            caller.write(http2.prefix(size))
            callers[caller] = size
        busy = False
        for caller, left in list(callers.items()):
            if not caller.poll():
                caller.close()
                del callers[caller]
                continue
            count = caller.write(block[:left])
            callers[caller] = left - count
            sent += count
            busy |= count > 0
            if left - count == 0:
                caller.end()
        if not busy:
            time.sleep(0.002)
    return {'opened': opened, 'sent': sent}


def main():
    kind, address, *rest = sys.argv[1:]
    if kind == 'honest':
        result = honest(address, rest[0], int(rest[1]), float(rest[2]))
    elif kind == 'slow':
        result = slow(address, int(rest[0]), int(rest[1]), rest[2], float(rest[3]))
    else:
        result = liars(address, int(rest[0]), int(rest[1]), int(rest[2]), float(rest[3]))
    json.dump(result, sys.stdout)


if __name__ == '__main__':
    main()
