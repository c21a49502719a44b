"""Controls: what the other cases look for is made here on purpose, and must be found."""

import json
import socket

from bench import Failed, Skipped, require
from cases import case
from clients import outcome_of
from idle import check_idle, left_behind
from scene import Scene


def must_fail(what, check, because):
    """`check` must raise Failed with a text that has `because` in it."""
    try:
        check()
    except Failed as failure:
        require(because in str(failure), f'{what}: found for another reason: {failure}')
        return
    raise Failed(f'{what}: not found')


@case
def control_connection_left_open(bench):
    """A connection that somebody still holds is found: by the server's count, and its descriptor."""
    scene = Scene(bench)
    with socket.create_connection((scene.server.host, scene.server.port)):
        bench.eventually(lambda: scene.server.metric('attnd_connections') == 1, 'not accepted')
        found = '; '.join(left_behind(scene.server, scene.rest, memory=False))
        require('attnd_connections is 1' in found and 'descriptors and were' in found,
                f'found only: {found}')
        must_fail('a connection', lambda: check_idle(bench, scene.server, scene.rest, seconds=1),
                  'attnd_connections is 1')
    scene.finish()


@case
def control_request_left_waiting(bench):
    """A request that waits, and one that runs, are found."""
    scene = Scene(bench)
    scene.load(shapes=('forward:f32:s65536:h8:d1',), requests=6, concurrency=6)
    scene.busy(running=1, queued=2)
    found = '; '.join(left_behind(scene.server, scene.rest))
    for part in 'queue_requests', 'running_requests', 'account_bytes', 'connections':
        require(f'attnd_{part} is' in found, f'{part} is not found: {found}')
    # The time of a lane is counted while it runs, so that one that never ends is found by it.
    require('a lane is busy' in found, f'the lane is not found: {found}')


@case
def control_descriptor_and_thread_and_memory(bench):
    """A server that had less of each before: more descriptors, threads and memory are found."""
    scene = Scene(bench, regions=True)
    usage = scene.rest.usage
    check_idle(bench, scene.server, scene.rest)
    for name, loss in (('descriptors', None), ('threads', 1), ('all_threads', 99),
                       ('resident_bytes', 99 << 20)):
        kept = getattr(usage, name)
        setattr(usage, name, kept - (loss or type(kept)({'socket': 1})))
        found = left_behind(scene.server, scene.rest)
        require(len(found) == 1 and ('were' in found[0] or 'more resident' in found[0]),
                f'{name}: found {found}')
        setattr(usage, name, kept)
    scene.finish()


@case
def control_leak_of_every_request(bench):
    """A server that loses 8 KiB a request is found by its memory."""
    if bench.slow > 1:
        raise Skipped('a sanitizer keeps what has been freed; at its end it tells of leaks itself')
    scene = Scene(bench, program=bench.leaky_attnd)
    load = scene.load(shapes=('forward:f32:s1:h1:d64',), requests=8000, concurrency=16)
    load.end().account(load.requests, least_ok=load.requests)
    must_fail('62 MiB', lambda: check_idle(bench, scene.server, scene.rest, seconds=10),
              'MiB more resident memory')
    scene.server.kill()


@case
def control_calls_missing_or_wrong(bench):
    """Of results that lack a call, have a wrong answer, or an unexplained code, each is found."""
    def results(codes, checked=5, wrong=0):
        return outcome_of(json.dumps({'levels': [
            {'sent': 10, 'sent_by_code': codes, 'transport': {}, 'fallbacks': 0,
             'answers_checked': checked, 'answers_wrong': wrong}]}))
    results({'OK': 9, 'UNAVAILABLE': 1}).account(10, ('UNAVAILABLE',))
    must_fail('a missing call', lambda: results({'OK': 9}).account(10), '9 are accounted for')
    must_fail('a call that never ended', lambda: results({'OK': 9}).account(None),
              '9 are accounted for')
    must_fail('a wrong answer', lambda: results({'OK': 10}, wrong=1).account(10), 'wrong answers')
    must_fail('answers that nobody checked', lambda: results({'OK': 10}, checked=0).account(10),
              'no answer was checked')
    must_fail('a code', lambda: results({'OK': 9, 'INTERNAL': 1}).account(10, ('UNAVAILABLE',)),
              'does not explain')
    must_fail('no answer', lambda: results({'UNAVAILABLE': 10}).account(10, ('UNAVAILABLE',)),
              'were answered')


@case
def control_call_hangs(bench):
    """A client whose call never ends is found, and so is a server that does not end."""
    scene = Scene(bench)
    load = scene.load(requests=10**6)
    load.timeout, bench.hang_seconds = -20, 2  # instead of minutes
    must_fail('a hang', load.end, 'a call hangs')
    scene.server.stop()
    must_fail('a server', lambda: scene.server.wait(1), 'attnd does not end')


@case
def control_server_dies(bench):
    """A server that crashes is found, by whatever is asked of it next."""
    scene = Scene(bench)
    scene.server.kill()
    must_fail('its pages', scene.server.metrics, '/metrics')
    must_fail('its end', scene.server.end, 'attnd ended with -9')
