"""A server as every case finds it, and as every case must leave it."""

from bench import require
from clients import ALL, LARGE, LONG_FLOPS, SMALL, Attnload, check_real_data
from idle import check_idle, rest_of
from server import Server


# Limits of time that are soon reached, for cases in which somebody reaches them. They are long
# enough for clients that behave on a machine that is busy with other things.
IMPATIENT = ('--stall_time=2s', '--keepalive_time=1s', '--keepalive_timeout=4s')


class Scene:
    """A server that has been used by every way once, and what it held at rest then."""

    FLAGS = ('--memory_limit=256MiB', '--threads=2')

    def __init__(self, bench, *flags, warm=True, **server):
        self.bench = bench
        self.server = Server(bench, *self.FLAGS, *flags, **server)
        self.regions = server.get('regions', False)
        self.settle(warm)

    def settle(self, warm=True):
        """Remembers what the server holds at rest: memory before it has been used, and of all
        else what it holds afterwards."""
        fresh = self.server.usage()
        if warm:
            self.use()
        self.rest = rest_of(self.bench, self.server)
        self.rest.usage.resident_bytes = fresh.resident_bytes
        self.bench.say(f'before: {self.rest}')

    def load(self, target=None, shapes=SMALL, **options):
        """An Attnload at the server, by TCP unless told otherwise."""
        return Attnload(self.bench, target or self.server.tcp, shapes, **options)

    def neighbour(self, rate=40, **options):
        """A client that behaves, and calls until `end_neighbour`, which says whether it has
        noticed anything of what happens to others meanwhile.
        """
        neighbour = self.load(rate=rate / self.bench.slow, **options)
        neighbour.await_start()
        return neighbour

    def end_neighbour(self, neighbour):
        require(neighbour.running(), f'the neighbour has ended: {neighbour.log()}')
        outcome = neighbour.end()
        self.bench.say(f'neighbour: {outcome}')
        outcome.account(neighbour.requests, least_ok=ALL)

    def use(self):
        """Real data, and every way that tensors travel: all of it must be answered, and right."""
        check_real_data(self.bench, self.server.tcp)
        loads = [self.load(requests=self.bench.fewer(40), concurrency=8),
                 self.load(self.server.unix, requests=self.bench.fewer(40), concurrency=8),
                 self.load(shapes=LARGE, requests=4, concurrency=2, transport='unary'),
                 self.load(self.server.unix, LARGE, requests=4, concurrency=2,
                           transport='stream')]
        if self.regions:
            loads.append(self.load(requests=self.bench.fewer(40), transport='region',
                                   region_socket=self.server.region_socket))
        for load in loads:
            load.end().account(load.requests, least_ok=load.requests)

    def busy(self, running=1, queued=0):
        """Waits until so many requests are on a device, and of LONG ones so many more wait."""
        def enough():
            metrics = self.server.metrics()
            return (metrics['attnd_running_requests'] >= running and
                    metrics['attnd_queue_floating_point_operations'] >= queued * LONG_FLOPS)
        self.bench.eventually(enough, f'there are no {running} running and {queued} queued')

    def finish(self):
        """The fault is over: the server holds nothing of it, serves as before, and ends well."""
        self.check_idle('after the fault')
        self.use()
        self.check_idle('after use', memory=True)
        self.server.end()

    def check_idle(self, when, memory=False):
        rest = check_idle(self.bench, self.server, self.rest, memory)
        self.bench.say(f'{when}: {rest}')

    def check_counts(self, outcome):
        """The server has counted every answer that these clients got."""
        # A call is counted once its client has been answered.
        self.bench.eventually(
            lambda: self.server.ended_calls()['OK'] >= outcome.ok,
            lambda: f'clients got {outcome.ok} answers and the server counts '
                    f'{dict(self.server.ended_calls())}')
