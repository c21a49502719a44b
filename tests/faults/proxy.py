"""A way to a server on which things go wrong, between real sockets."""

import asyncio
import dataclasses
import socket
import struct
import threading


@dataclasses.dataclass
class Way:
    """One direction of a connection."""
    bytes_per_second: float = 0  # 0: as fast as it goes
    delay_seconds: float = 0  # of each piece


class _Pair:
    """A client's connection, the one to the server that belongs to it, and what they carry."""

    def __init__(self, client, server):
        self.client, self.server = client, server
        self.passed = 0  # bytes, of both ways
        self.tasks = []

    def close(self, linger=None):
        for task in self.tasks:
            task.cancel()
        for end in (self.client, self.server):
            if linger is not None:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, linger))
            end.close()


class Proxy:
    """Passes bytes on between connections to it and connections to `target`, ADDRESS:PORT.

    Its loop has a thread of its own; every method may be called from any other.
    """

    PIECE_BYTES = 256 << 10
    # What a slow way takes at once, and holds: so that what waits does so at its sender.
    SLOW_BYTES = 16 << 10

    def __init__(self, bench, target):
        self.to_server, self.to_client = Way(), Way()
        host, port = target.split(':')
        self._target = host, int(port)
        self._pairs = []
        self._reset_after = self._half_close_after = None
        self._open = None  # an event: cleared while nothing passes
        self.resets = self.half_closes = 0
        self.passed = 0  # bytes
        self._loop = asyncio.new_event_loop()
        self._listener = socket.create_server(('127.0.0.1', 0), backlog=256)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self.address = f'127.0.0.1:{self.port}'
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        bench.closes(self.close)

    def close(self):
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    @property
    def connections(self):
        """How many it holds, whatever their ends have done."""
        return len(self._pairs)

    def silence(self):
        """From now on nothing passes, neither bytes nor an end, and nothing is closed.

        That is a peer whose machine was switched off, or a cable that was pulled out.
        """
        self._call(lambda: self._open.clear())

    def speak(self):
        """Ends a silence: what was held back passes."""
        self._call(lambda: self._open.set())

    def reset(self):
        """Resets every connection at both ends, whatever is on its way."""
        self._call(lambda: self._reset(self._pairs))

    def reset_after(self, size):
        """Resets each connection that has carried `size` bytes; None: none any more."""
        self._reset_after = size

    def half_close_after(self, size):
        """Ends the client's side of each connection that has carried `size` bytes, as if the client
        sent no more; None: of none any more.
        """
        self._half_close_after = size

    def forget(self):
        """Closes what it still holds."""
        def act():
            while self._pairs:
                self._pairs.pop().close()
        self._call(act)

    def _call(self, act):
        async def run():
            act()
        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _reset(self, pairs):
        for pair in list(pairs):
            pair.close(linger=0)
            self._pairs.remove(pair)
            self.resets += 1

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._open = asyncio.Event()
        self._open.set()
        accepting = self._loop.create_task(self._accept())
        self._loop.run_forever()
        accepting.cancel()
        for pair in self._pairs:
            pair.close(linger=0)
        pending = asyncio.all_tasks(self._loop)
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._listener.close()
        self._loop.close()

    async def _accept(self):
        while True:
            client, _ = await self._loop.sock_accept(self._listener)
            server = socket.socket()
            server.setblocking(False)
            # Windows are what they are from the first; on a slow way they are small.
            if self.to_client.bytes_per_second:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.SLOW_BYTES)
            if self.to_server.bytes_per_second:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.SLOW_BYTES)
            try:
                await self._loop.sock_connect(server, self._target)
            except OSError:
                # No server: the client learns it as it would from the system.
                _Pair(client, server).close(linger=0)
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = _Pair(client, server)
            self._pairs.append(pair)
            pair.tasks = [self._loop.create_task(self._pump(pair, client, server, self.to_server)),
                          self._loop.create_task(self._pump(pair, server, client, self.to_client))]
            self._loop.create_task(self._close_at_end(pair))

    async def _close_at_end(self, pair):
        await asyncio.gather(*pair.tasks, return_exceptions=True)
        if pair in self._pairs:
            self._pairs.remove(pair)
            pair.close()

    async def _pump(self, pair, source, to, way):
        """Until one of the two ends, which the other then learns."""
        try:
            while True:
                piece = self.SLOW_BYTES if way.bytes_per_second else self.PIECE_BYTES
                data = await self._loop.sock_recv(source, piece)
                await self._open.wait()
                if not data:
                    break
                if way.delay_seconds:
                    await asyncio.sleep(way.delay_seconds)
                    await self._open.wait()
                pair.passed += len(data)
                self.passed += len(data)
                if self._reset_after is not None and pair.passed >= self._reset_after:
                    self._reset([pair])
                    return
                await self._loop.sock_sendall(to, data)
                if (self._half_close_after is not None and source is pair.client and
                        pair.passed >= self._half_close_after):
                    self.half_closes += 1
                    break
                if way.bytes_per_second:
                    await asyncio.sleep(len(data) / way.bytes_per_second)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            # An end was reset, or is gone: so is the other, once it may learn of it.
            await self._open.wait()
            if pair in self._pairs:
                pair.close(linger=0)
                self._pairs.remove(pair)
