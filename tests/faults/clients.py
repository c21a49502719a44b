"""attnload and attnctl in processes of their own, and what became of every call."""

import collections
import dataclasses
import json
import signal
import re
import subprocess

from bench import ROOT, Failed, require

# Small work; bytes rather than work, 16 MiB in, and 8 MiB out; and work rather than bytes, which
# takes a core a tenth of a second at the least.
SMALL = ('forward:f32:s64:h4:d64:causal@0.5', 'forward:bf16:s17:h2:d32@0.3',
         'backward:f32:s40:h2:d32@0.2')
LARGE = ('forward:f32:s2/16384:h1:d128',)
WIDE = ('forward:f32:s16384/1:h1:d1/128',)
MIXED = (*SMALL, LARGE[0] + '@0.1')
LONG = ('forward:f32:s16384:h1:d1',)
LONG_FLOPS = 4 * 16384**2  # as the queue counts them


ALL = object()


@dataclasses.dataclass
class Outcome:
    """How the calls of one attnload ended."""
    codes: collections.Counter
    sent: int  # as attnload counts them when it sends them
    checked: int
    wrong: int
    fallbacks: int
    transports: collections.Counter
    first_errors: list = dataclasses.field(default_factory=list)  # a text for each code

    @property
    def ended(self):
        return sum(self.codes.values())

    @property
    def ok(self):
        return self.codes['OK']

    def __str__(self):
        codes = ', '.join(f'{code} {n}' for code, n in sorted(self.codes.items()))
        return f'{self.sent} calls: {codes}; {self.checked} answers checked, {self.wrong} wrong'

    def account(self, sent, codes=(), least_ok=1):
        """Fails unless all of `sent` calls ended, right or with one of `codes`.

        `sent`: None where attnload went on until it was told to end. `least_ok`: ALL, or as
        many as must have been answered.
        """
        sent = self.sent if sent is None else sent
        require(self.sent == self.ended == sent,
                f'of {sent} calls {self.ended} are accounted for: {self}')
        least_ok = sent if least_ok is ALL else least_ok
        require(set(self.codes) <= {'OK', *codes},
                f'a code that this fault does not explain: {self}; expected OK, {codes}: '
                f'{self.first_errors}')
        require(self.ok >= least_ok, f'fewer than {least_ok} were answered: {self}')
        require(self.wrong == 0, f'wrong answers: {self}')
        require(self.ok == 0 or self.checked > 0, f'no answer was checked: {self}')


def outcome_of(text):
    """The Outcome in attnload's JSON."""
    codes, transports = collections.Counter(), collections.Counter()
    sent = checked = wrong = fallbacks = 0
    for level in json.loads(text)['levels']:
        sent += level['sent']
        codes.update(level.get('sent_by_code', {}))
        transports.update(level['transport'])
        checked += level['answers_checked']
        wrong += level['answers_wrong']
        fallbacks += level['fallbacks']
    return Outcome(codes, sent, checked, wrong, fallbacks, transports)


class Attnload:
    """An attnload that sends exactly `requests` calls, of which none counts as warm-up; or, without
    them, calls until its end() is asked for.

    `concurrency`: so many are in flight at any time. `rate`: so many are due a second, whatever
    became of others, but `max_in_flight` at once, so that a machine that is slow does not become
    a fault of its own. `timeout`: each call's deadline, in seconds; the hang limit unless given.
    """

    def __init__(self, bench, target, shapes=SMALL, *, requests=None, concurrency=None, rate=None,
                 max_in_flight=8, timeout=None, inside=(), **flags):
        self._bench = bench
        self.requests = requests
        self.timeout = timeout or bench.hang_seconds
        self._json = bench.file('attnload.json')
        self._log = bench.file('attnload.log')
        self.command = [bench.attnload, target, '--warmup=0',
                        f'--requests={requests}' if requests else '--duration=86400',
                        f'--timeout={self.timeout}', '--check=1', f'--json={self._json}',
                        *(f'--shape={shape}' for shape in shapes),
                        *((f'--rate={rate}', f'--max_in_flight={max_in_flight}') if rate else
                          (f'--concurrency={concurrency or 4}',)),
                        *(f'--{name}={value}' for name, value in flags.items())]
        with open(self._log, 'wb') as log:
            self.process = bench.spawn(self.command, stdout=log, stderr=log, inside=inside)

    def running(self):
        return self.process.poll() is None

    def await_start(self):
        """Waits until the server has told it what it is: from then on it sends calls."""
        self._bench.eventually(lambda: self._has_started() or not self.running(),
                               'attnload does not start')
        require(self._has_started(), f'attnload has ended: {self.log()}')

    def _has_started(self):
        return re.search('^attnd .* at ', self.log(), re.M)

    def log(self):
        return self._log.read_text(errors='replace')

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self, may_not_begin=False):
        """Waits until every call has ended: an Outcome. Failed if one hangs.

        `may_not_begin`: the fault may hit what it first asks, which is what the server is; then
        there are no calls. A call may outlast its deadline by the client's two keepalive times,
        10 s each, where a write is stuck (client/README.md).
        """
        if self.requests is None:
            if not may_not_begin:
                self.await_start()
            self.process.send_signal(signal.SIGINT)
        limit = self.timeout + 20 + self._bench.hang_seconds
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failed(f'a call hangs: attnload goes on after {limit:.0f} s\n'
                         f'{self.log()}') from None
        if status == 1 and may_not_begin and not self._has_started():
            return Outcome(collections.Counter(), 0, 0, 0, 0, collections.Counter())
        # 1: no answer came, or a wrong one; which of the two the results tell.
        require(status in (0, 1) and self._json.exists() and self._json.stat().st_size > 0,
                f'attnload ended with {status} and without results: {self.command}\n{self.log()}')
        outcome = outcome_of(self._json.read_text())
        outcome.first_errors = re.findall(r'^  (?!OK)(?=[A-Z_]+ )(.*)$', self.log(), re.M)
        return outcome


def attnctl(bench, *arguments, status=0):
    """Runs attnctl, which must end with `status`; what it printed."""
    try:
        ran = subprocess.run([str(bench.attnctl), *map(str, arguments)], capture_output=True,
                             text=True, timeout=2 * bench.hang_seconds)
    except subprocess.TimeoutExpired:
        raise Failed(f'attnctl hangs: {arguments}') from None
    require(ran.returncode == status,
            f'attnctl {arguments} ended with {ran.returncode}, not {status}:\n'
            f'{ran.stdout}{ran.stderr}')
    return ran.stdout + ran.stderr


def check_real_data(bench, target, layer='layer0'):
    """Forward and backward of a layer of a real model, which must agree with the model's own."""
    data = ROOT / 'tests' / 'data' / 'minilm' / layer
    o, lse = bench.file('o.npy'), bench.file('lse.npy')
    common = [f'--server={target}', f'--timeout={bench.hang_seconds}s',
              *(f'--{name}={data}/{name}.npy' for name in 'qkv')]
    attnctl(bench, 'forward', *common, f'--o={o}', f'--lse={lse}', f'--expect_o={data}/o.npy',
            f'--expect_lse={data}/lse.npy')
    attnctl(bench, 'backward', *common, f'--d_o={data}/d_o.npy', f'--o={o}', f'--lse={lse}',
            *(f'--expect_d{name}={data}/d{name}.npy' for name in 'qkv'))
