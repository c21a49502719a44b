"""Faults of what lies between clients and the server, made by a proxy."""

import time

from bench import require
from cases import case
from clients import LARGE, MIXED, SMALL, WIDE
from proxy import Proxy
from scene import IMPATIENT, Scene

# What a client says of a call whose connection broke, whichever end noticed first.
BROKEN = ('UNAVAILABLE',)
# And of one that took too long to arrive or to be read: its own deadline, or the server's.
LATE = ('UNAVAILABLE', 'DEADLINE_EXCEEDED', 'CANCELLED')


@case
def connection_reset(bench):
    """Connections are reset at both ends, again and again, in uploads and answers alike.

    Calls fail with UNAVAILABLE, or are tried again by the client library where it may.
    """
    scene = Scene(bench, '--memory_limit=512MiB')
    neighbour = scene.neighbour()
    # Where connections are reset: in the middle of a large message, or after some small ones.
    ways = {'no retries': (1 << 20, MIXED, {'transport': 'unary', 'connections': 2}),
            'in chunks': (1 << 20, LARGE, {'transport': 'stream', 'connections': 4}),
            'retries': (1 << 18, SMALL, {'attempts': 10})}
    loads = []
    for name, (size, shapes, options) in ways.items():
        proxy = Proxy(bench, scene.server.tcp)
        load = scene.load(proxy.address, shapes, rate=100 / bench.slow, **options)
        load.await_start()
        proxy.reset_after(size)
        loads.append((name, proxy, load))
    for name, proxy, load in loads:
        bench.eventually(lambda proxy=proxy: proxy.resets >= 5, f'{name}: nothing was reset')
        proxy.reset_after(None)
        for _ in range(3):
            proxy.reset()
            time.sleep(0.1)  # the rhythm of the fault, nothing is waited for
    for name, proxy, load in loads:
        outcome = load.end()
        bench.say(f'{name}, {proxy.resets} connections reset: {outcome}')
        outcome.account(load.requests, BROKEN, least_ok=0)
        require('retries' == name or outcome.codes['UNAVAILABLE'] > 0, 'no call was broken')
        scene.check_counts(outcome)
    scene.end_neighbour(neighbour)
    scene.finish()


@case
def half_open_peer(bench):
    """From one moment on nothing passes, neither way, and nothing is closed.

    Calls end at their deadlines, and the server by itself gives up peers that answer no ping.
    """
    scene = Scene(bench, *IMPATIENT)
    proxy = Proxy(bench, scene.server.tcp)
    neighbour = scene.neighbour()
    loads = [scene.load(proxy.address, MIXED, rate=100 / bench.slow, transport='unary', timeout=3),
             scene.load(proxy.address, LARGE, rate=10 / bench.slow, timeout=3,
                        transport='stream', connections=2)]
    for load in loads:
        load.await_start()
    bench.eventually(lambda: proxy.connections >= 2 and
                     scene.server.metric('attnd_upload_bytes') > 0, 'nothing is uploaded')
    proxy.silence()
    held = proxy.connections
    bench.eventually(lambda: scene.server.metric('attnd_connections') <= 1,
                     'the server keeps connections of silent peers')
    require(proxy.connections >= held, 'the proxy has closed what was to stay half open')
    for load in loads:
        outcome = load.end()
        bench.say(f'behind the silence: {outcome}')
        outcome.account(load.requests, LATE, least_ok=0)
    scene.end_neighbour(neighbour)
    scene.check_idle('with half-open peers')
    proxy.speak()
    proxy.forget()
    scene.finish()


@case
def half_closed_peer(bench):
    """Clients' sides of connections end while calls are under way, as by shutdown(2)."""
    scene = Scene(bench)
    neighbour = scene.neighbour()
    loads = []
    for shapes, rate in (SMALL, 100), (LARGE, 10):
        proxy = Proxy(bench, scene.server.tcp)
        load = scene.load(proxy.address, shapes, rate=rate / bench.slow, transport='unary')
        load.await_start()
        proxy.half_close_after(1 << 20)
        loads.append((proxy, load))
    for proxy, load in loads:
        bench.eventually(lambda proxy=proxy: proxy.half_closes >= 5, 'clients do not call again')
        proxy.half_close_after(None)
        outcome = load.end()
        bench.say(f'{proxy.half_closes} connections half closed: {outcome}')
        outcome.account(load.requests, BROKEN, least_ok=0)
    # The last load's messages are longer than what a connection carries: each end cuts one.
    require(outcome.codes['UNAVAILABLE'] > 0, 'no message was broken')
    scene.end_neighbour(neighbour)
    scene.finish()


@case
def slow_reader(bench):
    """Clients that read answers of 8 MiB at 256 KiB a second, and others fast enough.

    After the stall time (here two seconds, and one for each 8 MiB) the server drops what is not
    read, and its memory.
    """
    scene = Scene(bench, *IMPATIENT)
    proxy = Proxy(bench, scene.server.tcp)
    proxy.to_client.bytes_per_second = 256 << 10
    neighbour = scene.neighbour()
    loads = [scene.load(proxy.address, WIDE, requests=4, concurrency=4, timeout=10,
                        transport=transport, connections=4) for transport in ('unary', 'stream')]
    for load in loads:
        outcome = load.end()
        bench.say(f'slow readers: {outcome}')
        outcome.account(load.requests, LATE, least_ok=0)
        require(outcome.ok == 0, 'nothing was slow')
    proxy.to_client.bytes_per_second = 0
    scene.end_neighbour(neighbour)
    scene.check_idle('with the proxy open')
    proxy.forget()
    scene.finish()


@case
def slow_writer(bench):
    """Clients whose requests of 16 MiB arrive at 256 KiB a second.

    A message that is not here in its time is refused with DEADLINE_EXCEEDED, and its memory let
    go; small ones through the same narrow way get their answers.
    """
    scene = Scene(bench, *IMPATIENT)
    proxy = Proxy(bench, scene.server.tcp)
    proxy.to_server.bytes_per_second = 256 << 10
    neighbour = scene.neighbour()
    loads = [scene.load(proxy.address, LARGE, requests=3, concurrency=3, timeout=20,
                        transport=transport) for transport in ('unary', 'stream')]
    small = scene.load(proxy.address, ('forward:f32:s4:h1:d32',), requests=bench.fewer(20),
                       concurrency=1)
    outcome = small.end()
    bench.say(f'small, by the slow way: {outcome}')
    outcome.account(small.requests, least_ok=small.requests)
    for load in loads:
        outcome = load.end()
        bench.say(f'slow writers: {outcome}')
        outcome.account(load.requests, LATE, least_ok=0)
        require(outcome.ok == 0, 'nothing was slow')
    scene.end_neighbour(neighbour)
    scene.check_idle('with the proxy open')
    proxy.forget()
    scene.finish()
