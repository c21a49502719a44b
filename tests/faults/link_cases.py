"""Faults of a network: packets lost, late, out of order, or not there at all."""

import time

from bench import require
from cases import case
from clients import ALL, MIXED, SMALL
from link import Link
from network_cases import LATE
from scene import IMPATIENT, Scene


def _scene(bench, seed, *flags):
    link = Link(bench, seed)
    return link, Scene(bench, '--insecure', f'--host={link.server_address}', *flags)


def _far(scene, link, **options):
    return scene.load(inside=link.inside, **options)


def _weather(bench, seed, set_weather, happened):
    """Calls of every kind over a link in bad weather: all are answered, and right."""
    link, scene = _scene(bench, seed)
    set_weather(link.weather)
    neighbour = scene.neighbour()
    loads = [_far(scene, link, shapes=SMALL, requests=bench.fewer(100), concurrency=8,
                  connections=2),
             _far(scene, link, shapes=('forward:f32:s2/2048:h1:d128',), requests=bench.fewer(10),
                  concurrency=2, transport='unary'),
             _far(scene, link, shapes=('forward:f32:s2/2048:h1:d128',), requests=bench.fewer(10),
                  concurrency=2, transport='stream', connections=2)]
    for load in loads:
        outcome = load.end()
        bench.say(f'over the link: {outcome}')
        outcome.account(load.requests, least_ok=load.requests)
    bench.say(f'packets: {link.counts}')
    require(happened(link.counts) > 0, f'nothing happened to the packets: {link.counts}')
    scene.end_neighbour(neighbour)
    scene.finish()


@case(namespaces=('net',))
def packet_loss(bench):
    """One packet in fifty is lost between two network namespaces; TCP sends it again."""
    def weather(link):
        link.loss = 0.02
    _weather(bench, 1, weather, lambda counts: counts.lost)


@case(namespaces=('net',))
def packet_delay(bench):
    """Every packet takes 20 ms each way."""
    def weather(link):
        link.delay_seconds = 0.02
    _weather(bench, 2, weather, lambda counts: counts.carried)


@case(namespaces=('net',))
def packet_reordering(bench):
    """One packet in five arrives after those that were sent in the 5 ms after it."""
    def weather(link):
        link.delay_seconds = 0.002
        link.overtaken = 0.2
    _weather(bench, 3, weather, lambda counts: counts.overtaken)


@case(namespaces=('net',))
def partition_for_a_moment(bench):
    """The link is down for half a second, which no call notices but by its time."""
    link, scene = _scene(bench, 4)
    load = _far(scene, link, shapes=SMALL, rate=100 / bench.slow)
    load.await_start()
    carried = link.counts.carried
    bench.eventually(lambda: link.counts.carried >= carried + 100, 'nothing is under way')
    link.weather.down = True
    time.sleep(0.5)  # as long as it is down
    link.weather.down = False
    outcome = load.end()
    bench.say(f'down for half a second, {link.counts.lost} packets lost: {outcome}')
    outcome.account(load.requests, least_ok=ALL)
    require(link.counts.lost > 0, 'no packet was lost')
    scene.finish()


@case(namespaces=('net',))
def partition(bench):
    """The link is down for good while calls are under way.

    Nothing tells either end. The server gives up peers beyond it by itself, and calls end at
    their deadlines.
    """
    link, scene = _scene(bench, 5, *IMPATIENT)
    neighbour = scene.neighbour()
    load = _far(scene, link, shapes=MIXED, rate=100 / bench.slow, timeout=3, transport='unary')
    load.await_start()
    bench.eventually(lambda: scene.server.metric('attnd_upload_bytes') > 0, 'nothing is uploaded')
    link.weather.down = True
    bench.eventually(lambda: scene.server.metric('attnd_connections') <= 1,
                     'the server keeps connections of peers beyond a dead link')
    outcome = load.end()
    bench.say(f'behind the dead link: {outcome}')
    outcome.account(load.requests, LATE, least_ok=0)
    require(outcome.ok < outcome.sent, 'nothing was under way when the link went down')
    scene.end_neighbour(neighbour)
    scene.finish()
