"""Who calls attnd in overload_bench and stalled_bench, each in a process of its own that prints
JSON at its end.

  senders.py honest ADDRESS FILE THREADS SECONDS  Forward with the message in FILE, as generated
                                                  stubs send it: no hint, no retry
  senders.py slow ADDRESS SOURCES CALLS HINT SECONDS
                                                  messages of a byte a second
  senders.py liars ADDRESS SOURCES CALLS BYTES SECONDS
                                                  messages of BYTES that are said to have 100,
                                                  again and again
  senders.py good ADDRESS STUBS HINT SECONDS      one small call after another, and beside these
                                                  middling ones and Exchanges; hint or none
  senders.py silent ADDRESS SOURCES STREAMS LIES SECONDS LINGER
                                                  Exchanges without a message, or with a piece of
                                                  one; LIES: 1, some say that they have a short one
  senders.py stalled ADDRESS SOURCES STREAMS FOLDER SECONDS LINGER
                                                  Exchanges that say what they will send, and do
                                                  not, by the messages in FOLDER
"""

import collections
import json
import pathlib
import selectors
import sys
import threading
import time

import http2


# What a user of generated stubs sets, and a connection that is not another channel's as well.
CHANNEL_OPTIONS = [('grpc.max_receive_message_length', -1), ('grpc.max_send_message_length', -1),
                   ('grpc.use_local_subchannel_pool', 1)]


class Seen:
    """How calls ended, and when."""

    def __init__(self):
        self._lock, self._codes, self._times = threading.Lock(), collections.Counter(), []
        self._said, self._without_delay = set(), 0

    def time(self, call):
        import grpc
        begin = time.monotonic()
        code, said, without_delay = 'OK', None, False
        try:
            call()
        except grpc.RpcError as error:
            code = error.code().name
            said = f'{code}: {error.details()}'[:120]
            without_delay = code == 'RESOURCE_EXHAUSTED' and not _has_delay(error)
        with self._lock:
            self._codes[code] += 1
            self._times.append(time.monotonic() - begin)
            self._without_delay += without_delay
            if said:
                self._said.add(said)

    def result(self, seconds):
        times = sorted(self._times)
        return {'codes': self._codes, 'seconds': seconds, 'said': sorted(self._said),
                'without_delay': self._without_delay,
                'p50': times[len(times) // 2] if times else None,
                'p99': times[int(len(times) * 0.99)] if times else None}


def _has_delay(error):
    from google.rpc import error_details_pb2
    from grpc_status import rpc_status
    status = rpc_status.from_call(error)
    return status is not None and any(
        detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)


def _all(targets):
    """Runs each in a thread of its own; how long that took."""
    begin = time.monotonic()
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - begin


def honest(address, path, threads, seconds):
    import grpc
    with open(path, 'rb') as file:
        message = file.read()
    seen, until = Seen(), time.monotonic() + seconds

    def loop():
        with grpc.insecure_channel(address, CHANNEL_OPTIONS) as channel:
            call = channel.unary_unary('/attn.v1.AttentionService/Forward')
            while time.monotonic() < until:
                seen.time(lambda: call(message, timeout=60))

    return seen.result(_all([loop] * threads))


def good(address, stubs, hint, seconds):
    """Closed loops, each with a connection and a pause between its calls.

    Without the pause they would use up two cores by themselves, and tell of nothing else.
    """
    import grpc
    sys.path[:0] = [stubs, str(pathlib.Path(__file__).resolve().parents[3] / 'docs/examples')]
    import exchange
    from attn.v1 import attention_pb2 as pb

    class Hint(grpc.StreamStreamClientInterceptor):
        """Says how long the first message is, as the client library does."""

        def intercept_stream_stream(self, continuation, client_call_details, request_iterator):
            return continuation(
                client_call_details._replace(metadata=[('attnd-request-bytes', '9000')]),
                request_iterator)

    def request_of(tokens, with_data):
        request, inputs = pb.ForwardRequest(), {}
        for name, length in (('q', min(tokens, 32)), ('k', tokens), ('v', tokens)):
            tensor = getattr(request, name)
            tensor.dtype = pb.DATA_TYPE_F32
            tensor.shape.extend([1, length, 1, 64])
            inputs[name] = bytes(256 * length)
            if with_data:
                tensor.data = inputs[name]
        return request, inputs

    def unary(tokens):
        message = request_of(tokens, with_data=True)[0].SerializeToString()
        metadata = [('attnd-request-bytes', str(len(message)))] if hint else None

        def call_on(channel):
            forward = channel.unary_unary('/attn.v1.AttentionService/Forward')
            return lambda: forward(message, timeout=60, metadata=metadata)

        return call_on

    def streamed(channel):
        if hint:
            channel = grpc.intercept_channel(channel, Hint())

        def call():
            # The example marks what is streamed in the request that it is given.
            request, inputs = request_of(4096, with_data=False)
            exchange.forward(channel, request, inputs)

        return call

    kinds = {'24 KiB': unary(32), '1 MiB': unary(2048), 'Exchange of 2 MiB': streamed}
    seen, until = {kind: Seen() for kind in kinds}, time.monotonic() + seconds

    def loop(kind):
        with grpc.insecure_channel(address, CHANNEL_OPTIONS) as channel:
            call = kinds[kind](channel)
            while time.monotonic() < until:
                seen[kind].time(call)
                time.sleep(0.02)

    took = _all([lambda kind=kind: loop(kind) for kind in kinds])
    return {kind: seen[kind].result(took) for kind in kinds}


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


class Keeper:
    """Keeps streams of Exchange open, and opens another for each that ends.

    `begin` gives a stream's hint, if any, and what it sends at first, `go_on` what it sends once
    the server has sent something; both are asked with the number of streams before it. Each of the
    sources has CONNECTIONS connections. Of every four one takes no bytes of a message, so that not
    even Admitted can reach it.
    """

    CONNECTIONS = 5
    TICK = 0.25  # how often others are opened: who is refused at once does not spin

    def __init__(self, address, sources, streams, begin, go_on):
        self._address, self._sources, self._streams = address, _sources(sources), streams
        self._begin, self._go_on = begin, go_on
        self._selector, self._connections, self._made = selectors.DefaultSelector(), [], 0
        self._opened = self._answered = 0

    def _connect(self):
        source = self._sources[self._made % len(self._sources)]
        window = 0 if self._made // len(self._sources) % 4 == 3 else 65535
        connection = http2.Connection(self._address, source, window)
        self._made += 1
        connection.to_go_on = set()
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        self._connections.append(connection)

    def _fill(self):
        most = self.CONNECTIONS * len(self._sources)
        while len(self._connections) < most:
            self._connect()
        for place, connection in enumerate(self._connections):
            share = (self._streams + place) // most
            while len(connection.streams) < share and not connection.closed:
                hint, data = self._begin(self._opened)
                stream = connection.open('Exchange', hint)
                stream.left, stream.index, stream.answered = data, self._opened, False
                self._opened += 1
                self._write(connection, stream)

    def _write(self, connection, stream):
        """Sends what flow control lets through, and keeps the rest for later."""
        while stream.left:
            count = connection.write(stream, stream.left[0])
            if count == 0:
                connection.to_go_on.add(stream)
                return
            stream.left[0] = stream.left[0][count:]
            if not stream.left[0]:
                del stream.left[0]
        connection.to_go_on.discard(stream)

    def _poll(self, wait):
        for key, _ in self._selector.select(wait):
            connection = key.data
            if not connection.poll():
                self._selector.unregister(connection.socket)
                connection.close()
                self._connections.remove(connection)
                continue
            for stream in list(connection.streams.values()):
                if stream.received and not stream.answered:
                    stream.answered = True
                    self._answered += 1
                    stream.left += self._go_on(stream.index)
                    connection.to_go_on.add(stream)
            for stream in list(connection.to_go_on):
                if stream.number not in connection.streams:
                    connection.to_go_on.discard(stream)
                else:
                    self._write(connection, stream)

    def _count(self):
        return sum(len(connection.streams) for connection in self._connections)

    def run(self, seconds, linger):
        """Opens streams for `seconds`, then only watches how they end."""
        begin = tick = time.monotonic()
        counts, gone_after = [], None
        while time.monotonic() < begin + seconds:
            counts.append(self._count())
            self._fill()
            tick += self.TICK
            while (left := tick - time.monotonic()) > 0:
                self._poll(left)
        opened, end = self._opened, time.monotonic()
        while time.monotonic() < end + linger:
            self._poll(0.05)
            if gone_after is None and self._count() == 0:
                gone_after = time.monotonic() - end
        counts = counts[len(counts) // 4:]  # they begin with none
        return {'opened': opened, 'admitted': self._answered,
                'mean': sum(counts) / len(counts), 'gone_after': gone_after,
                'left': self._count()}


def silent(address, sources, streams, lies, seconds, linger):
    def begin(index):
        # Nothing; nothing, though it said that a short message comes; a piece of one.
        return (100 if lies and index % 3 == 1 else None,
                [http2.prefix(100) + b'xyz'] if index % 3 == 2 else [])

    return Keeper(address, sources, streams, begin, lambda index: []).run(seconds, linger)


def stalled(address, sources, streams, folder, seconds, linger):
    header, chunk = (pathlib.Path(folder, name).read_bytes() for name in ('header', 'chunk'))

    def begin(index):
        return len(header) if index % 2 else None, [http2.prefix(len(header)) + header]

    def go_on(index):
        whole = http2.prefix(len(chunk)) + chunk
        return ([], [whole], [whole[:1000]])[index % 3]

    return Keeper(address, sources, streams, begin, go_on).run(seconds, linger)


def main():
    kind, address, *rest = sys.argv[1:]
    if kind == 'honest':
        result = honest(address, rest[0], int(rest[1]), float(rest[2]))
    elif kind == 'slow':
        result = slow(address, int(rest[0]), int(rest[1]), rest[2], float(rest[3]))
    elif kind == 'liars':
        result = liars(address, int(rest[0]), int(rest[1]), int(rest[2]), float(rest[3]))
    elif kind == 'good':
        result = good(address, rest[0], rest[1] == 'hint', float(rest[2]))
    elif kind == 'silent':
        result = silent(address, int(rest[0]), int(rest[1]), rest[2] == '1',
                        *map(float, rest[3:]))
    else:
        result = stalled(address, int(rest[0]), int(rest[1]), rest[2], *map(float, rest[3:]))
    json.dump(result, sys.stdout)


if __name__ == '__main__':
    main()
