"""What a server holds while nobody calls, and that it holds no more after a fault."""

import dataclasses

from bench import Failed, processors
from server import Usage

# How much more resident memory than at the start is taken for none, once free memory has been
# given back, as it is every five seconds of rest: code that has been read in, malloc's arenas,
# gRPC's caches; and what each stream of a lane keeps of --memory_limit for the next requests, a
# 256th and a 512th, of up to four (server/program/devices.cc); and what glibc keeps at the top of
# its second arena, which malloc_trim leaves alone, a 16th (server/program/heap.h). With 256 MiB
# three lost requests of 16 MiB are more, or 8 KiB of each of 5400.
RESIDENT_SLACK_BYTES = 20 << 20
KEPT_OF_LIMIT = 4 * (1 / 256 + 1 / 512) + 1 / 16
# gRPC's five pools (two executors, two of timers, the event engine) start threads under load, each
# up to two a processor, and keep them.
POOL_SLACK_THREADS = 5 * 2 * processors()

ZERO_AT_REST = (
    'attnd_queue_requests', 'attnd_queue_floating_point_operations', 'attnd_running_requests',
    'attnd_queue_oldest_seconds', 'attnd_account_bytes', 'attnd_upload_bytes',
    'attnd_uploads_waiting', 'attnd_connections', 'attnd_draining',
    'attnd_region_connections', 'attnd_region_leases', 'attnd_region_leased_bytes')
SAME_AT_REST = ('attnd_region_free_bytes', 'attnd_account_limit_bytes', 'attnd_lanes')


@dataclasses.dataclass
class Rest:
    """What a server holds at rest."""
    usage: Usage
    same: dict  # series of SAME_AT_REST

    def __str__(self):
        usage = self.usage
        return (f'{usage.descriptor_count} descriptors, {usage.threads} threads '
                f'({usage.all_threads} with gRPC\'s), {usage.resident_bytes / 2**20:.1f} MiB '
                'resident')


def _same(metrics):
    return {series: value for series, value in metrics.items()
            if series.partition('{')[0] in SAME_AT_REST}


def busy_with(server):
    """What keeps `server` from being at rest, by itself: texts, none at rest."""
    metrics = server.metrics()
    found = [f'{name} is {metrics[name]:.0f}' for name in ZERO_AT_REST if metrics[name] != 0]
    found += [f'{series} is {value:.0f}' for series, value in metrics.items()
              if series.startswith('attnd_device_in_service') and value != 1]
    status = server.status()
    if status['health'] != 'serving':
        found.append(f'health is {status["health"]}')
    if server.page('/readyz')[0] != 200:
        found.append('it is not ready')
    later = server.metrics()
    found += [f'a lane is busy: {series} was {value} and is {later[series]}'
              for series, value in metrics.items()
              if series.startswith('attnd_lane_busy_seconds_total') and later[series] != value]
    return found


def left_behind(server, before, memory=True):
    """What `server` holds that it did not hold at rest `before`: texts, none if nothing."""
    found = busy_with(server)
    status = server.status()
    for series, value in _same(server.metrics()).items():
        if value != before.same.get(series):
            found.append(f'{series} is {value:.0f} and was {before.same.get(series)}')
    now = server.usage()
    more = now.descriptors - before.usage.descriptors
    if now.descriptor_count > before.usage.descriptor_count:
        found.append(f'{now.descriptor_count} descriptors and were '
                     f'{before.usage.descriptor_count}: {dict(more)} more')
    if now.threads > before.usage.threads:
        found.append(f'{now.threads} threads and were {before.usage.threads}')
    if now.all_threads > before.usage.all_threads + POOL_SLACK_THREADS:
        found.append(f"{now.all_threads} threads with gRPC's and were "
                     f'{before.usage.all_threads}')
    growth = now.resident_bytes - before.usage.resident_bytes
    slack = RESIDENT_SLACK_BYTES + KEPT_OF_LIMIT * status['limits']['memory_limit_bytes']
    if memory and growth > slack:
        found.append(f'{growth / 2**20:.1f} MiB more resident memory than before, of which '
                     f'{slack / 2**20:.0f} are nothing')
    return found


def rest_of(bench, server):
    """Waits until `server` is at rest: a Rest."""
    bench.eventually(lambda: not busy_with(server), lambda: '; '.join(busy_with(server)))
    return Rest(server.usage(), _same(server.metrics()))


def check_idle(bench, server, before, memory=True, seconds=None):
    """Waits until `server` holds no more than at rest `before`; Failed with what is left.

    `memory`: of resident memory too, for which the server needs some seconds. Sanitizers keep
    what has been freed, so that it says nothing under them.
    """
    found = []

    def nothing_left():
        found[:] = left_behind(server, before, memory=memory and bench.slow == 1)
        return not found
    try:
        bench.eventually(nothing_left, lambda: 'left behind: ' + '; '.join(found), seconds)
    except Failed as failure:
        raise Failed(f'{failure}\n{server.log()}') from None
    return Rest(server.usage(), _same(server.metrics()))
