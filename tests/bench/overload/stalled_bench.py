#!/usr/bin/env python3
"""How attnd bears a thousand Exchanges that say nothing and a thousand that stall.

  stalled_bench.py ATTND [--check] [--only=SECTION] [--seconds=30] [--sources=8] [--silent=1000]
                   [--stalled=1000] [--no_lies] [--flags=FLAG]

Needs tests/python/requirements.txt. Everything travels by TCP on loopback: good calls from
127.0.0.1, each kind on a connection of its own, the others from --sources addresses beside that, as
limits are by address. For each that ends another is opened, so that all of them are there while
good calls are measured. --stall_time and --header_time are 5 s: with the defaults, of a minute and
10 s, a run that sees many of them end would take half an hour.

Once no others are opened, all must be gone after both these times and the stall time once more, as
long as which the last may have waited for memory before they stall: by the metrics page, by the
streams themselves, whose connections stay open, by resident memory, and by an Exchange that needs
nearly all that requests may have.
"""

import argparse
import re
import sys
import threading
import time
import urllib.request

import bench
import harness

STALL, HEADER = 5, 5  # seconds
GAUGES = ('attnd_account_bytes', 'attnd_upload_bytes', 'attnd_uploads_waiting',
          'attnd_queue_requests', 'attnd_running_requests')


class Page:
    """The metrics page of a server, read again and again: the most that gauges had."""

    def __init__(self, server):
        # The port is on the line that the server begins with, and in no file.
        port = re.search(r'metrics on http://[^:]+:(\d+)', server.log())[1]
        self._url = f'http://127.0.0.1:{port}/metrics'
        self.most, self._ends = dict.fromkeys(GAUGES, 0), threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def now(self):
        """Values by name with labels."""
        with urllib.request.urlopen(self._url, timeout=30) as page:
            lines = page.read().decode().splitlines()
        return {name: float(value) for name, value in
                (line.rsplit(' ', 1) for line in lines if line[:1] != '#')}

    def codes(self):
        """How Exchanges have ended so far, by code."""
        return {re.search('code="([^"]*)"', name)[1]: int(value)
                for name, value in self.now().items()
                if name.startswith('attnd_requests_total') and 'Exchange' in name and value > 0}

    def _loop(self):
        while not self._ends.wait(0.25):
            now = self.now()
            for gauge in GAUGES:
                self.most[gauge] = max(self.most[gauge], now[gauge])

    def seconds_to_none(self, most):
        """How long it takes until all gauges are 0; None: longer than `most`."""
        begin = time.monotonic()
        while time.monotonic() < begin + most:
            now = self.now()
            if not any(now[gauge] for gauge in GAUGES):
                return time.monotonic() - begin
            time.sleep(0.05)
        return None

    def end(self):
        self._ends.set()
        self._thread.join()


class StalledBench(bench.Bench):

    def __init__(self, options):
        super().__init__(options)
        # 2 MiB: three tensors and the result.
        pb = self.stubs
        header = pb.ExchangeHeader(chunk_bytes=64 << 10)
        for name in 'qkv':
            tensor = getattr(header.forward, name)
            tensor.dtype = pb.DATA_TYPE_F32
            tensor.shape.extend([1, 2048, 1, 64])
            tensor.streamed.SetInParent()
        header.forward.o.streamed.SetInParent()
        (self.folder / 'header').write_bytes(pb.ExchangeRequest(header=header).SerializeToString())
        (self.folder / 'chunk').write_bytes(pb.ExchangeRequest(chunk=pb.Chunk(
            tensor=1, offset=0, data=bytes(64 << 10))).SerializeToString())

    def good(self, server, hint, seconds):
        return self.sender(self.small_place, 'good', server.address, self.folder,
                           'hint' if hint else 'none', seconds)()

    def bad(self, server, seconds, linger):
        """Begins both kinds; what ends each and gives its result."""
        sources, rest = self.options.sources, (seconds, linger)
        return {
            'silent': self.sender(self.large_place, 'silent', server.address, sources,
                                  self.options.silent, int(not self.options.no_lies), *rest),
            'stalled': self.sender(self.large_place, 'stalled', server.address, sources,
                                   self.options.stalled, self.folder, *rest)}

    def section(self, limit, hint):
        within = 2 * STALL + HEADER
        server = self.server(limit, f'--stall_time={STALL}s', f'--header_time={HEADER}s',
                             '--metrics_port=0')
        watch, page = bench.Watch(server.process.pid), Page(server)
        self.good(server, hint, 2)  # what begins once has begun
        alone = self.good(server, hint, self.options.seconds / 2)
        idle = watch.now()
        page.most = dict.fromkeys(GAUGES, 0)
        settle = 2 * (STALL + HEADER)
        begin = time.monotonic()
        running = self.bad(server, settle + self.options.seconds + 2, within + 5)
        time.sleep(settle)
        cpu, before = self.processor_seconds(server), page.codes()
        beside = self.good(server, hint, self.options.seconds)
        cpu = self.processor_seconds(server) - cpu
        after = page.codes()
        time.sleep(max(0, begin + settle + self.options.seconds + 2 - time.monotonic()))
        none = page.seconds_to_none(within + 5)
        ends = {kind: end() for kind, end in running.items()}
        page.end()
        self.population(ends)
        held = {gauge: page.most[gauge] for gauge in GAUGES}
        print('    at most: ' + ', '.join(
            f'{gauge.removeprefix("attnd_")} '
            + (f'{most / bench.MIB:.1f} MiB' if 'bytes' in gauge else f'{most:.0f}')
            for gauge, most in held.items()))
        print('    Exchanges that ended meanwhile: ' + ', '.join(
            f'{code} {count - before.get(code, 0)}' for code, count in after.items()
            if count > before.get(code, 0)))
        print(f'    the server used {cpu / self.options.seconds:.2f} processors')
        print(f'    at most {watch.most:.0f} MiB were resident')
        self.compare(alone, beside)
        self.gone('by the metrics page', none, within)
        for kind, end in ends.items():
            self.gone(f'{kind} streams, {end["left"]} left', end['gone_after'], within)
        self.at_rest(watch, idle)
        self.large(server, limit)
        self.peak(watch.end(), limit)
        server.stop()

    def processor_seconds(self, server):
        with open(f'/proc/{server.process.pid}/stat', encoding='ascii') as file:
            ticks = file.read().rsplit(')', 1)[1].split()[11:13]
        return sum(map(int, ticks)) / 100

    def population(self, ends):
        for kind, end in ends.items():
            wanted = getattr(self.options, kind)
            # Counted just before those that ended are replaced, of which some were refused at once.
            self.row(f'  {kind} streams, of {end["opened"]} opened {end["admitted"]} admitted: mean',
                     f'{end["mean"]:.0f}', f'>= {0.75 * wanted:.0f}', end['mean'] >= 0.75 * wanted)

    def compare(self, alone, beside):
        for kind, a in alone.items():
            b = beside[kind]
            calls = sum(b['codes'].values())
            refused = b['codes'].get('RESOURCE_EXHAUSTED', 0)
            failed = calls - b['codes'].get('OK', 0) - refused
            self.row(f'  {kind}: refused / failed of {calls}', f'{refused} / {failed}', '0 / 0',
                     refused + failed == 0)
            for line in b['said']:
                print(f'    {line}')
            ratio = b['p99'] / a['p99']
            self.row(f'    p50 {b["p50"] * 1e3:.1f}, p99 {b["p99"] * 1e3:.1f} ms; alone '
                     f'{a["p50"] * 1e3:.1f}, {a["p99"] * 1e3:.1f}',
                     f'{ratio:.2f}', '<= 2', ratio <= 2)

    def gone(self, what, seconds, within):
        self.row(f'  gone {what}', 'never' if seconds is None else f'{seconds:.1f} s',
                 f'<= {within:.0f} s', seconds is not None and seconds <= within)

    def large(self, server, limit):
        """An Exchange over 95 % of what requests may have."""
        sys.path.insert(0, str(harness.ROOT / 'docs' / 'examples'))
        sys.path.insert(0, str(self.folder))
        import exchange
        tokens = int(0.95 * limit * bench.MIB * 7 / 16 / 1024)
        request, inputs = self.stubs.ForwardRequest(), {}
        for name, length in (('q', 2), ('k', tokens), ('v', tokens)):
            tensor = getattr(request, name)
            tensor.dtype = self.stubs.DATA_TYPE_F32
            tensor.shape.extend([1, length, 1, 128])
            inputs[name] = bytes(512 * length)
        begin = time.monotonic()
        try:
            with server.channel() as channel:
                exchange.forward(channel, request, inputs)
            said = 'OK'
        except harness.grpc.RpcError as error:
            said = error.code().name
            print(f'    {error.details()}')
        self.row(f'  then an Exchange of {tokens >> 10} MiB, {time.monotonic() - begin:.1f} s', said,
                 'OK', said == 'OK')


# Without the hint, which the client library sends and generated stubs do not, a message that is not
# small counts as the longest.
SECTIONS = {
    '1g': ('at 1 GiB, good calls with the hint', lambda b: b.section(1024, True)),
    '256m': ('at 256 MiB, good calls with the hint', lambda b: b.section(256, True)),
    '1g_stubs': ('at 1 GiB, good calls without the hint', lambda b: b.section(1024, False)),
    '256m_stubs': ('at 256 MiB, good calls without the hint', lambda b: b.section(256, False)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('attnd')
    parser.add_argument('--seconds', type=float, default=30, help='beside the others; half alone')
    parser.add_argument('--sources', type=int, default=8, help='addresses of the others')
    parser.add_argument('--silent', type=int, default=1000)
    parser.add_argument('--stalled', type=int, default=1000)
    parser.add_argument('--no_lies', action='store_true',
                        help='no silent stream says that it has a short message')
    bench.add_options(parser, SECTIONS)
    return bench.run(StalledBench(parser.parse_args()), SECTIONS)


if __name__ == '__main__':
    sys.exit(main())
