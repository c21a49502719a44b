#!/usr/bin/env python3
"""What is kept of a run, and that its exit status is passed on."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

RECORD = pathlib.Path(__file__).resolve().parent / 'record.py'


class RecordTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name) / 'history'

    def record(self, *arguments):
        return subprocess.run([sys.executable, '-B', RECORD, f'--folder={self.folder}', *arguments],
                              capture_output=True, text=True)

    def test_keeps_every_line_and_what_it_ran_on(self):
        done = self.record('echo', '--commit=abc', '--', 'printf', 'one\n\nthree: 0.97\n')
        self.assertEqual((done.returncode, done.stdout), (0, 'one\n\nthree: 0.97\n'))
        [path] = self.folder.iterdir()
        self.assertRegex(path.name, r'^\d{4}-\d\d-\d\d-echo\.json$')
        kept = json.loads(path.read_text())
        self.assertEqual(kept['output'], ['one', '', 'three: 0.97'])
        self.assertEqual(kept['command'], ['printf', 'one\n\nthree: 0.97\n'])
        self.assertEqual((kept['name'], kept['commit'], kept['exit_status']), ('echo', 'abc', 0))
        self.assertTrue(kept['date'].startswith(path.name[:10]))
        self.assertTrue(kept['processor'])
        self.assertGreater(kept['cores'], 0)

    def test_a_missed_bar_is_kept_and_passed_on(self):
        done = self.record('missed', '--', 'sh', '-c', 'echo MISSED; exit 3')
        self.assertEqual(done.returncode, 3)
        [path] = self.folder.iterdir()
        kept = json.loads(path.read_text())
        self.assertEqual((kept['exit_status'], kept['output']), (3, ['MISSED']))

    def test_what_cannot_run_leaves_nothing(self):
        done = self.record('absent', '--', '/nowhere/bench')
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('/nowhere/bench: No such file', done.stderr)
        self.assertFalse(self.folder.exists())

    def test_a_name_is_no_path(self):
        done = self.record('../up', '--', 'true')
        self.assertEqual(done.returncode, 2)
        self.assertIn('NAME', done.stderr)


if __name__ == '__main__':
    unittest.main()
