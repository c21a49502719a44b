"""Faults of clients: they die or stop in the middle of their requests."""

from bench import require
from cases import case
from clients import LARGE, LONG, WIDE
from network_cases import LATE
from proxy import Proxy
from scene import IMPATIENT, Scene


@case
def client_killed(bench):
    """SIGKILL to clients whose requests are uploaded, queued and computed.

    What they had asked for is dropped, wherever it is.
    """
    scene = Scene(bench)
    victims = [scene.load(shapes=LONG, requests=1000, concurrency=6),
               scene.load(scene.server.unix, LARGE, requests=10**6, concurrency=6,
                          transport='stream'),
               scene.load(shapes=LARGE, requests=10**6, concurrency=6, transport='unary')]
    scene.busy(running=1, queued=2)
    neighbour = scene.neighbour()
    scene.busy(running=1, queued=2)
    for victim in victims:
        require(victim.running(), f'it has ended before: {victim.log()}')
        victim.kill()
    bench.eventually(lambda: scene.server.metric('attnd_connections') <= 1,
                     'connections of the dead stay')
    scene.end_neighbour(neighbour)
    bench.say(f'the server counts {dict(scene.server.ended_calls())}')
    scene.finish()


@case
def client_stopped(bench):
    """SIGSTOP to clients in the middle of uploads and answers, and SIGCONT later.

    A stopped process answers no ping and reads nothing, while its kernel keeps the connection:
    the server must not keep memory for it. When it goes on it learns how each call ended.
    """
    scene = Scene(bench, *IMPATIENT, '--memory_limit=512MiB')
    # By ways on which a message takes seconds, so that one is on its way for certain.
    to_server, to_client = Proxy(bench, scene.server.tcp), Proxy(bench, scene.server.tcp)
    to_server.to_server.bytes_per_second = to_client.to_client.bytes_per_second = 4 << 20
    victims = [scene.load(proxy.address, shapes, requests=bench.fewer(40), concurrency=4,
                          transport=transport)
               for proxy, shapes, transport in ((to_server, LARGE, 'unary'),
                                                (to_server, LARGE, 'stream'),
                                                (to_client, WIDE, 'unary'))]
    for victim in victims:
        victim.await_start()
    bench.eventually(lambda: min(to_server.passed, to_client.passed) >= 2 << 20,
                     'nothing is on its way')
    neighbour = scene.neighbour()
    for victim in victims:
        require(victim.running(), f'it has ended before: {victim.log()}')
        victim.stop()
    # While they are stopped, and hold their ends of the connections.
    bench.eventually(lambda: scene.server.metric('attnd_connections') <= 1,
                     'connections of the stopped stay')
    scene.end_neighbour(neighbour)
    scene.check_idle('while they are stopped')
    to_server.to_server.bytes_per_second = to_client.to_client.bytes_per_second = 0
    for victim in victims:
        victim.resume()
    for victim in victims:
        outcome = victim.end()
        bench.say(f'client that was stopped: {outcome}')
        outcome.account(victim.requests, LATE)
        require(outcome.ok < outcome.sent, 'nothing was under way when it stopped')
    scene.finish()
