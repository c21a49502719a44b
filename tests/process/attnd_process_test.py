#!/usr/bin/env python3
"""A process that is not attnd, but does as it does, is found, looked at and ended."""

import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

import attnd_process

# Listens as it is told, writes the port file whole, and has one page; told --fail it ends.
FAKE = f'''#!{sys.executable}
import http.server, os, socket, sys
flags = dict(flag.partition('=')[::2] for flag in sys.argv[1:])
print('flags:', *sys.argv[1:], file=sys.stderr, flush=True)
if '--fail' in flags:
    sys.exit(3)
class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == '/readyz' else 503)
        self.end_headers()
        self.wfile.write(self.path.encode())
host, port = flags['--admin_address'].split(':')
admin = http.server.HTTPServer((host, int(port)), Pages)
tcp = socket.create_server((flags.get('--host', '127.0.0.1'), int(flags['--port'])))
with open(flags['--port_file'] + '.new', 'w') as file:
    file.write(str(tcp.getsockname()[1]))
os.rename(file.name, flags['--port_file'])
admin.serve_forever()
'''
METRICS = r'''# HELP calls Calls.
# TYPE calls counter
calls{method="Forward",code="OK"} 3
calls{method="Backward",code="OK"} 4
# TYPE up gauge
up 1
strange{a="x,y=\"1\"}",b=""} +Inf
'''


def runs(pid):
    """Whether there is such a process, but for its entry that nobody has asked for yet."""
    try:
        return bool(os.readlink(f'/proc/{pid}/exe'))
    except OSError:
        return False


class Processes(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.program = self.folder / 'attnd'
        self.program.write_text(FAKE)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def start(self, *flags, **options):
        server = attnd_process.Attnd(self.program, *flags, log=self.folder / 'log', **options)
        self.addCleanup(server.kill)
        return server

    def test_both_of_its_ports_are_found(self):
        server = self.start()
        self.assertEqual((server.host, server.admin[0]), ('127.0.0.1', '127.0.0.1'))
        self.assertNotEqual(server.port, server.admin[1])
        self.assertEqual(server.page('/x'), (503, '/x'))
        self.assertTrue(server.is_ready())

    def test_an_address_of_its_own_and_ports_that_it_keeps(self):
        own, port = attnd_process.own_address(), attnd_process.FIRST_PORT
        for _ in range(2):
            server = self.start(f'--host={own}', f'--port={port}',
                                f'--admin_address={own}:{port + 1}')
            self.assertEqual((server.target, server.admin), (f'{own}:{port}', (own, port + 1)))
            server.kill()
            self.assertFalse(server.is_ready())

    def test_a_later_flag_wins(self):
        self.assertEqual(self.start('--device=a', '--device=b').log().count('--device'), 1)

    def test_one_that_ends_says_why(self):
        with self.assertRaisesRegex(attnd_process.DidNotStart, '(?s)ended with 3.*flags: .*--fail'):
            self.start('--fail')

    def test_one_that_does_not_listen_is_ended(self):
        self.program.write_text('#!/bin/sh\necho $$ >&2\nexec sleep 1000\n')
        with self.assertRaisesRegex(attnd_process.DidNotStart, 'does not listen'):
            self.start(seconds=0)
        for pid in (self.folder / 'log').read_text().split():
            self.assertFalse(runs(pid))

    def test_its_exit_status(self):
        self.assertEqual(self.start().end(), -signal.SIGTERM)
        self.assertEqual(self.start().kill(), -signal.SIGKILL)

    def test_it_does_not_outlive_who_started_it(self):
        starter = subprocess.run(
            [sys.executable, '-c', 'import os, sys, attnd_process\n'
             'print(attnd_process.Attnd(sys.argv[1], log=sys.argv[2]).pid, flush=True)\n'
             'os.kill(os.getpid(), 9)', self.program, self.folder / 'log'],
            cwd=pathlib.Path(__file__).parent, stdout=subprocess.PIPE, text=True)
        self.assertEqual(starter.returncode, -signal.SIGKILL)
        deadline = time.monotonic() + 60
        while runs(starter.stdout.strip()) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(runs(starter.stdout.strip()))


class Metrics(unittest.TestCase):

    def test_samples(self):
        self.assertIn(('calls', {'method': 'Forward', 'code': 'OK'}, 3),
                      list(attnd_process.samples(METRICS)))
        self.assertIn(('strange', {'a': r'x,y=\"1\"}', 'b': ''}, float('inf')),
                      list(attnd_process.samples(METRICS)))

    def test_series_and_totals_and_kinds(self):
        series = attnd_process.series(METRICS)
        self.assertEqual(series['calls{code="OK",method="Backward"}'], 4)
        self.assertEqual(series['up'], 1)
        self.assertEqual(attnd_process.totals(METRICS)['calls'], 7)
        self.assertEqual(attnd_process.kinds(METRICS), {'calls': 'counter', 'up': 'gauge'})


if __name__ == '__main__':
    unittest.main()
