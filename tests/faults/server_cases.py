"""Faults of the server's process: killed and started again, ended, stopped."""

import signal
import time

from bench import attnd_process, require
from cases import case
from clients import LARGE, LONG, MIXED, WIDE
from network_cases import LATE
from proxy import Proxy
from scene import Scene
from server import Server


@case
def server_killed(bench):
    """SIGKILL under load, and another server on the same port and sockets.

    Clients see UNAVAILABLE until it is there and then answers; those that retry ride it out as
    long as their attempts last; the files of both sockets are taken over.
    """
    # A port that it keeps: while it is down nobody, not even one of these clients, is given it.
    flags = '--memory_limit=1GiB', f'--port={attnd_process.FIRST_PORT}'
    scene = Scene(bench, *flags, regions=True)
    first = scene.server
    rate = 100 / bench.slow
    loads = {
        'no retries': scene.load(rate=rate),
        'retries': scene.load(rate=rate, attempts=20),
        'unix socket': scene.load(first.unix, rate=rate),
        'in chunks': scene.load(shapes=LARGE, rate=rate / 10, connections=2, transport='stream'),
        'by region': scene.load(rate=rate, transport='region',
                                region_socket=first.region_socket)}
    for load in loads.values():
        load.await_start()
    bench.eventually(lambda: first.ended_calls()['OK'] >= 5 and
                     first.metric('attnd_region_leases') > 0, 'no load')
    first.kill()
    for name in 'grpc', 'regions':
        require((first.folder / name).is_socket(), f'no socket {name} was left behind')
    time.sleep(0.3)  # as long as there is none
    begun = time.monotonic()
    scene.server = Server(bench, *Scene.FLAGS, *flags, sockets=first.folder, regions=True)
    bench.say(f'the next server was ready after {time.monotonic() - begun:.2f} s')
    answered = 0
    while loads:
        # The others have ended, so that the next answers are at least in part of those left.
        bench.eventually(lambda: scene.server.ended_calls()['OK'] >= answered + 10 / bench.slow,
                         f'none of {list(loads)} comes back')
        name = next(iter(loads))
        load = loads.pop(name)
        outcome = load.end()
        bench.say(f'{name}: {outcome}')
        outcome.account(load.requests, ('UNAVAILABLE',))
        # Its region was the first server's; to the next one the client sends what lies there.
        require(name != 'by region' or outcome.fallbacks > 0, 'it has not come back')
        answered = scene.server.ended_calls()['OK']
    scene.finish()


@case
def server_terminated(bench):
    """SIGTERM under load: what was admitted is answered, what comes later is UNAVAILABLE."""
    scene = Scene(bench, '--threads=1', f'--drain_time={bench.hang_seconds}s', regions=True)
    rate = 100 / bench.slow
    others = [scene.load(rate=rate), scene.load(scene.server.unix, rate=rate, attempts=3),
              scene.load(shapes=LARGE, rate=rate / 10, transport='stream', connections=2),
              scene.load(rate=rate, transport='region',
                         region_socket=scene.server.region_socket)]
    for load in others:
        load.await_start()
    admitted = scene.load(shapes=LONG, requests=6, concurrency=6)
    # Six are there when five wait and one runs, and they are all that this client sends.
    scene.busy(running=1, queued=4)
    scene.server.signal(signal.SIGTERM)
    outcome = admitted.end()
    bench.say(f'admitted before: {outcome}')
    outcome.account(6, least_ok=6)
    status = scene.server.wait()
    require(status == 0, f'attnd ended with {status}:\n{scene.server.log()}')
    for load in others:
        outcome = load.end()
        bench.say(f'under way: {outcome}')
        outcome.account(load.requests, ('UNAVAILABLE',), least_ok=0)
    for name in 'grpc', 'regions':
        require(not (scene.server.folder / name).exists(), f'the socket {name} is left')
    scene.server.end()


@case
def server_terminated_beside_silent_peers(bench):
    """SIGTERM while peers that nobody can reach any more have calls under way.

    The server ends by its drain time, and not by theirs.
    """
    scene = Scene(bench, '--threads=1', '--drain_time=2s')
    proxy = Proxy(bench, scene.server.tcp)
    loads = [scene.load(proxy.address, shapes, requests=6, concurrency=6, timeout=5 * bench.slow,
                        transport='unary') for shapes in (LONG, WIDE, LARGE)]
    for load in loads:
        load.await_start()
    scene.busy(running=1, queued=2)
    proxy.silence()
    scene.server.signal(signal.SIGTERM)
    status = scene.server.wait()
    require(status == 0, f'attnd ended with {status}:\n{scene.server.log()}')
    for load in loads:
        outcome = load.end()
        bench.say(f'behind the silence: {outcome}')
        outcome.account(load.requests, LATE, least_ok=0)
    scene.server.end()


@case
def server_stopped(bench):
    """SIGSTOP to the server under load: calls end at their deadlines; and SIGCONT."""
    scene = Scene(bench)
    loads = [scene.load(shapes=MIXED, requests=bench.fewer(200), rate=100,
                        timeout=3 * bench.slow, transport='unary'),
             scene.load(scene.server.unix, requests=bench.fewer(200), rate=100,
                        timeout=3 * bench.slow),
             scene.load(shapes=LARGE, requests=bench.fewer(20), rate=10, timeout=3 * bench.slow,
                        transport='stream', connections=2)]
    for load in loads:
        load.await_start()
    scene.server.stop()
    bench.eventually(lambda: not loads[1].running(), 'calls over the unix socket hang')
    scene.server.resume()
    for load in loads:
        outcome = load.end()
        bench.say(f'of a stopped server: {outcome}')
        outcome.account(load.requests, ('UNAVAILABLE', 'DEADLINE_EXCEEDED'), least_ok=0)
    scene.finish()


@case
def region_client_killed(bench):
    """SIGKILL to a client with leased memory in the middle of calls that use it.

    The memory serves these calls to their end, and is leased to the next client anew.
    """
    scene = Scene(bench, regions=True)
    victims = [scene.load(shapes=LONG, requests=100, concurrency=4, transport='region',
                          region_socket=scene.server.region_socket),
               scene.load(requests=10**6, concurrency=4, transport='region',
                          region_socket=scene.server.region_socket)]
    bench.eventually(lambda: scene.server.metric('attnd_region_leases') >= 2, 'nothing is leased')
    scene.busy(running=1, queued=1)
    neighbour = scene.neighbour()
    for victim in victims:
        require(victim.running(), f'it has ended before: {victim.log()}')
        victim.kill()
    scene.end_neighbour(neighbour)
    scene.finish()
