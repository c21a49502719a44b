"""A Prometheus that runs what is shipped, only faster, and its HTTP API."""

import json
import pathlib
import re
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import processes

HERE = pathlib.Path(__file__).resolve().parent
SHIPPED = HERE.parents[1] / 'deploy/monitoring/prometheus'
TARGETS = 'targets: [attnd:7412]'  # as prometheus.yml has them
# Where the shipped files have a time: a range, how long an alert must hold, and how often
# Prometheus looks.
TIME = re.compile(r'(?<=\[)\d+[smhd](?=\])|(?<=for: )\d+[smhd]|(?<=_interval: )\d+[smhd]')
MILLISECONDS = {'s': 1000, 'm': 60_000, 'h': 3_600_000, 'd': 86_400_000}


def faster(text, factor):
    """`text` of a configuration or of rules with each of its times divided by `factor`, and
    nothing else changed."""
    return TIME.sub(lambda time: f'{int(time[0][:-1]) * MILLISECONDS[time[0][-1]] // factor}ms',
                    text)


def scrape_seconds(factor):
    """How often the faster configuration looks."""
    interval = re.search(r'scrape_interval: (\d+)s', (SHIPPED / 'prometheus.yml').read_text())
    return int(interval[1]) / factor


class Prometheus:
    def __init__(self, folder, factor):
        self.folder, self.factor = folder, factor
        self.url = f'http://{processes.HOST}:{processes.next_port()}'
        self.process = None

    def configure(self, targets):
        """Writes the shipped files, faster and with these targets."""
        text = (SHIPPED / 'prometheus.yml').read_text()
        if text.count(TARGETS) != 1:
            raise RuntimeError(f'prometheus.yml has no "{TARGETS}"')
        text = text.replace(TARGETS, f'targets: {json.dumps(targets)}')
        (self.folder / 'prometheus.yml').write_text(faster(text, self.factor))
        rules = (SHIPPED / 'alerts.yml').read_text()
        (self.folder / 'alerts.yml').write_text(faster(rules, self.factor))

    def start(self):
        tools = subprocess.run([HERE / 'prometheus.sh'], check=True, stdout=subprocess.PIPE,
                               text=True).stdout.strip()
        log = self.folder / 'prometheus.log'
        self.process = processes.start(
            [f'{tools}/prometheus', f'--config.file={self.folder}/prometheus.yml',
             f'--storage.tsdb.path={self.folder}/data',
             f'--web.listen-address={self.url.removeprefix("http://")}'],
            log)
        processes.wait_for('Prometheus to be ready', self.is_ready, self.process, log)

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def stop(self):
        if self.process is not None:
            processes.end(self.process)

    def is_ready(self):
        try:
            with urllib.request.urlopen(f'{self.url}/-/ready', timeout=5) as reply:
                return reply.status == 200
        except OSError:
            return False

    def ask(self, path, **parameters):
        """The data of the API's answer. ValueError: it says that the question is wrong. If
        there is none for long, as the machine is busy, it is asked again: live.py ends what
        takes too long."""
        query = urllib.parse.urlencode(parameters, doseq=True)
        while True:
            try:
                with urllib.request.urlopen(f'{self.url}/api/v1/{path}?{query}',
                                            timeout=30) as reply:
                    return json.load(reply)['data']
            except TimeoutError:
                pass
            except urllib.error.HTTPError as error:
                raise ValueError(error.read().decode()) from error

    def alerts(self):
        """Those that are pending or fire."""
        return self.ask('alerts')['alerts']

    def rules(self):
        """{name: what it says, before values are put in} of all alerts, as Prometheus has read
        them."""
        return {rule['name']: ' '.join(rule['annotations'].values())
                for group in self.ask('rules')['groups'] for rule in group['rules']
                if rule['type'] == 'alerting'}

    def values(self, expression):
        """{instance: value} now."""
        return {sample['metric'].get('instance'): float(sample['value'][1])
                for sample in self.ask('query', query=expression)['result']}

    def range(self, expression, start, end, step):
        """The values of each series between two times."""
        matrix = self.ask('query_range', query=expression, start=start, end=end, step=step)
        return [[float(value) for _, value in series['values']] for series in matrix['result']]
