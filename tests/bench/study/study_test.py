#!/usr/bin/env python3
"""What of the study needs neither a GPU nor torch. Usage: study_test.py [REFERENCE_STUDY]"""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from dataclasses import asdict

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / 'gpu'))

import cases
import claims
import dram
import model
import page
import plots
import sides
import study

PROGRAM = None


class ModelTest(unittest.TestCase):

    def test_the_naive_way_goes_over_the_scores_as_often_as_is_claimed(self):
        reads, writes = model.score_passes(model.GPU['naive', 'forward'])
        self.assertEqual((reads, writes), (6 + 1, 5))  # and once for the product with V

    def test_bytes_are_counted_by_hand(self):
        passes = [model.Pass('p', {'X': 1}, {'r': 2}, {'M4': 1}, {'X4': 3}, 64)]
        found = model.traffic(passes, 3, 128, 32, 2)
        self.assertEqual(found.reads, 3 * (128 * 32 * 2 + 2 * 4 * 128 * 128))
        self.assertEqual(found.writes, 3 * (2 * 4 * 128 + 2 * 3 * 4 * 128 * 32))
        self.assertEqual(model.formula(passes), ('X + S/64 (M4)', '2 r + S/64 (3 X4)'))

    def test_a_last_block_may_be_short(self):
        passes = [model.Pass('p', block_reads={'r': 1}, block=64)]
        self.assertEqual(model.traffic(passes, 1, 65, 1, 2).reads, 2 * 4 * 65)

    def test_nobody_asks_for_less_than_the_least(self):
        for table, element in ((model.GPU, 2), (model.REFERENCE, 4)):
            for (_, direction), passes in table.items():
                for length in (128, 4096):
                    asked = model.traffic(passes, 4, length, 64, element)
                    least = model.least(direction, 4, length, 64, element)
                    self.assertGreaterEqual(asked.reads, least.reads)
                    self.assertGreaterEqual(asked.writes, least.writes)

    def test_long_sequences_cost_the_naive_way_most(self):
        total = lambda side: model.traffic(model.GPU[side, 'forward'], 1, 16384, 128, 2).total
        self.assertLess(total('flash_attention_2'), total('flash_attention_1'))
        self.assertLess(total('flash_attention_1'), total('naive'))

    def test_every_side_of_ours_has_a_model(self):
        ours = {(side, direction) for side in sides.SIDES for direction in sides.DIRECTIONS
                if sides.algorithm(side, direction)}
        self.assertEqual(ours, set(model.GPU))


def texts(plot):
    return [t.text for t in xml.fromstring(plot).iter('{http://www.w3.org/2000/svg}text')]


class PlotsTest(unittest.TestCase):

    def test_numbers_are_written_out_below_a_million(self):
        self.assertEqual([plots.number(x) for x in (0.5, 512, 1000.0, 16384, 1e5, 2e6)],
                         ['0.5', '512', '1000', '16,384', '100,000', '2e6'])

    def test_lines_have_all_that_was_given(self):
        lines = plots.line_plot('a < b', 'x of it', 'y of it',
                                [('one', '#123456', [(512, 3.0), (16384, 5.0)]),
                                 ('nowhere', '#654321', [])])
        for words in ('a < b', 'x of it', 'y of it', 'one', '512', '16,384'):
            self.assertIn(words, texts(lines))
        self.assertIn('#123456', lines)
        self.assertNotIn('nowhere', lines)

    def test_a_line_that_another_covers_is_thicker(self):
        line = lambda y: ('one', '#111111', [(512, y), (1024, y)])
        thick = 'stroke-width: 4'
        self.assertIn(thick, plots.line_plot('t', 'x', 'y', [line(3.0), line(3.01)]))
        self.assertNotIn(thick, plots.line_plot('t', 'x', 'y', [line(3.0), line(4.0)]))

    def test_bars_have_all_that_was_given(self):
        bars = plots.bar_plot('t', 'y', [('g', {'one': 2.0}), ('h', {'one': 1e3, 'two': 5.0})],
                              {'one': '#111111', 'two': '#121212', 'three': '#131313'}, log_y=True)
        self.assertEqual(bars.count('fill: #111111'), 2 + 1)  # two bars, and the legend's
        self.assertEqual(bars.count('fill: #131313'), 0)
        for words in ('g', 'h', 'one', 'two'):
            self.assertIn(words, texts(bars))

    def test_the_same_results_give_the_same_bytes(self):
        draw = lambda: plots.line_plot('t', 'x', 'y', [('one', '#111111', [(512, 3.0), (1024, 4.0)])])
        self.assertEqual(draw(), draw())
        self.assertNotIn('<dc:date>', draw())

    def test_without_a_point_there_is_no_plot(self):
        self.assertEqual(plots.line_plot('t', 'x', 'y', [('one', '#111111', [])]), '')
        self.assertEqual(plots.bar_plot('t', 'y', [], {'one': '#111111'}), '')

    def test_a_point_alone_is_drawn_unless_a_logarithm_has_none_of_it(self):
        one = lambda y: plots.line_plot('t', 'x', 'y', [('one', '#111111', [(512, y)])], log_y=True)
        xml.fromstring(one(3.0))
        self.assertEqual(one(0.0), '')


WIDE = '''==PROF== Connected to process 7
"ID","Process ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum"
"","","","byte","byte"
"0","7","void erfinv_kernel(float*)","64","32"
"1","7","void bmm<int, 4>(x)","1,000","2,000"
"2","7","exp","3","4"
"3","7","void erfinv_kernel(float*)","64","32"
"4","7","fused","5","6"
==PROF== Disconnected
'''
LONG = '''"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","fused","dram__bytes_read.sum","byte","1,000"
"0","fused","dram__bytes_write.sum","byte","2000"
"0","fused","other","%","7"
'''


class DramTest(unittest.TestCase):

    def test_reads_what_ncu_prints(self):
        self.assertEqual(dram.kernels(WIDE)[1], ('void bmm<int, 4>(x)', 1000, 2000))
        self.assertEqual(dram.kernels(LONG), [('fused', 1000, 2000)])

    def test_kernels_belong_to_the_case_before_them(self):
        rows = dram.sums([{'what': 'a'}, {'what': 'b'}], dram.kernels(WIDE))
        self.assertEqual([(r['what'], r['kernels'], r['read_bytes'], r['write_bytes'])
                          for r in rows], [('a', 2, 1003, 2004), ('b', 1, 5, 6)])
        with self.assertRaises(ValueError):
            dram.sums([{'what': 'a'}], dram.kernels(WIDE)[:0])

    def test_says_why_ncu_failed(self):
        self.assertEqual(dram._why('x\n==ERROR== ERR_NVGPUCTRPERM: no\nlast\n'),
                         'ERR_NVGPUCTRPERM: no')
        self.assertEqual(dram._why('\nlast\n'), 'last')
        self.assertEqual(dram._why(''), 'it said nothing')

    def test_every_side_is_asked_for_where_it_goes(self):
        asked = {(c['what'], c['direction']) for c in dram.wanted(['naive_autograd', 'torch'])}
        self.assertEqual(asked, {('eager', 'forward'), ('eager', 'backward'),
                                 ('naive_autograd', 'backward')})


def speed_row(case, direction, found, group='lengths'):
    """`found`: {side: (ms, bytes)}"""
    flops = case.flops if direction == 'forward' else case.backward_flops
    return {'set': group, 'case': asdict(case), 'name': case.name, 'direction': direction,
            'sides': {side: {'ms': ms, 'tflops': flops / ms / 1e9, 'extra_bytes': extra,
                             'mhz': 1980} for side, (ms, extra) in found.items()},
            'notes': ['Hopper: wrong: O differs'] if 'hopper' not in found else []}


def all_results():
    """Made up, of every part."""
    rows = []
    for n in (512, 2048, 8192):
        case = cases.Case(n, n, 16, 16, batch=16384 // n)
        rows += [speed_row(case, direction, {'naive': (8.0, 6 * n * 16384), 'torch': (9.0, 5 * n),
                                             'flash_attention_1': (4.0, 1 << 20),
                                             'flash_attention_2': (2.0, 1 << 20),
                                             'hopper': (1.0, 1 << 20)})
                 for direction in sides.DIRECTIONS]
    square = 4 * 4 * 40 * 2048**2
    rows.append(speed_row(cases.baseline(), 'forward', {'naive': (8.0, 1)}, 'paper'))
    rows.append(speed_row(cases.baseline(), 'backward', {'naive_autograd': (8.0, 6 * square)},
                          'paper'))
    shape = asdict(cases.baseline())
    moved = {'naive': 9e9, 'flash_attention_1': 5e9, 'flash_attention_2': 1e9}
    traffic = [{'what': side, 'direction': 'forward', 'shape': shape, 'kernels': 1,
                'read_bytes': count, 'write_bytes': count} for side, count in moved.items()]
    buffer = 4 * 8 * 4096 * 4096
    traffic.append({'what': 'eager', 'direction': 'forward', 'shape': [8, 4096, 128], 'kernels': 8,
                    'read_bytes': 7.1 * buffer, 'write_bytes': 5.0 * buffer})
    steps = [{'op': 'bmm', 'reads': 0, 'writes': 1}, {'op': 'all', 'reads': 7, 'writes': 4}]
    memory = [{'variant': variant, 'no_gradients': 2.0, 'forward': forward, 'retained': 2.0,
               'backward': 6.02} for variant, forward in (('all_named', 5.0),
                                                          ('product_unnamed', 4.0),
                                                          ('one_name', 2.0))]
    heap = {'naive': 2, 'online_softmax': 1, 'flash_attention_1': 1, 'flash_attention_2': 1}
    processor = [{'algorithm': name, 'kernel': f'reference/{name}', 'direction': 'forward',
                  'len': n, 'heads': 1, 'dim': 64, 'threads': 1, 'seconds': 0.1, 'flops': 1e9,
                  'heap_bytes': n**power, 'scratch_bytes': n} for n in (256, 1024)
                 for name, power in heap.items()]
    machine = {'GPU': 'a GPU', 'date': '2026-01-01'}
    return {'speed': {'rows': rows, 'machine': machine},
            'dram': {'rows': traffic, 'machine': machine},
            'naive': {'heads': 8, 'len': 8192, 'dim': 128, 'dtype': 'f32', 'buffer_bytes': buffer,
                      'memory': memory, 'trace': {'forward': steps, 'backward': steps},
                      'machine': machine},
            'cpu': {'rows': processor, 'processor': 'a CPU', 'machine': machine}}


def verdict_of(results, words):
    found = [v for v in claims.verdicts(results) if words in v.claim]
    assert len(found) == 1, words
    return found[0]


class ClaimsTest(unittest.TestCase):

    def test_nothing_is_said_of_what_was_not_measured(self):
        for results in ({}, {part: {'skipped': 'no'} for part in study.PARTS}):
            for verdict in claims.verdicts(results):
                self.assertEqual((verdict.verdict, verdict.measured), (claims.OPEN, ''))

    def test_a_number_is_confirmed_where_it_was_found(self):
        results = all_results()
        found = verdict_of(results, 'forward holds 4')
        self.assertEqual(found.verdict,
                         'confirmed with the product scaled in one expression, else corrected')
        self.assertIn('5.00 with a name for each matrix', found.measured)
        found = verdict_of(results, 'backward holds 6')
        self.assertEqual(found.verdict, claims.CONFIRMED)
        self.assertIn("6.00 in our own kernels, autograd's order", found.measured)
        results['speed']['rows'].pop()
        for row in results['naive']['memory']:
            row['backward'] = 7.0
        self.assertEqual(verdict_of(results, 'backward holds 6').verdict, claims.CORRECTED)

    def test_accesses_are_those_of_the_operators_and_of_the_memory(self):
        results = all_results()
        self.assertEqual(verdict_of(results, 'reads the score matrix').verdict, claims.CONFIRMED)
        results['dram']['rows'][-1]['read_bytes'] *= 2
        self.assertEqual(verdict_of(results, 'reads the score matrix').verdict, claims.CORRECTED)

    def test_growth_is_that_of_one_sequence(self):
        results = all_results()
        naive = verdict_of(results, "naive way's extra memory")
        self.assertEqual((naive.measured, naive.verdict),
                         ('length^2.00 forward, length^2.00 backward', claims.CONFIRMED))
        flash = verdict_of(results, "FlashAttention-2's grows")
        self.assertEqual((flash.measured, flash.verdict), ('length^1.00 backward', claims.CONFIRMED))
        self.assertIsNone(claims.growth([(512, 3)]))

    def test_speeds(self):
        results = all_results()
        self.assertEqual(verdict_of(results, 'twice as fast').verdict, claims.CONFIRMED)
        self.assertEqual(verdict_of(results, '20 to 50 %').verdict, claims.CORRECTED)
        self.assertEqual(verdict_of(results, '335').measured, '1374 TFLOP/s at most')
        self.assertEqual(verdict_of(results, '-1 moves less').measured,
                         '1.8 × less at length 2048')


class PageTest(unittest.TestCase):

    def test_a_page_of_everything(self):
        files = {**page.render(all_results()), **page.draw(all_results())}
        self.assertEqual(set(files), {'README.md', 'forward.svg', 'backward.svg', 'memory.svg',
                                      'traffic.svg', 'cpu.svg'})
        text = files['README.md']
        for words in ('| 2048 | full |', 'Hopper: wrong: O differs', '| naive | 0.34 | 17.70 |',
                      '**confirmed**', 'reference/naive', 'a GPU'):
            self.assertIn(words, text)
        for name in files:
            if name.endswith('.svg'):
                self.assertIn(f']({name})', text)
                xml.fromstring(files[name])

    def test_every_row_of_a_table_has_its_columns(self):
        for results in ({}, all_results()):
            columns = None
            for line in page.render(results)['README.md'].splitlines():
                if not line.startswith('|'):
                    columns = None
                    continue
                columns = columns or line.count('|')
                self.assertEqual(line.count('|'), columns, line)

    def test_what_was_skipped_says_why(self):
        text = page.render({'speed': {'skipped': 'no GPU'}})['README.md']
        self.assertIn('Not measured: no GPU.', text)
        self.assertIn('Not run.', text)


def run(*arguments):
    """The exit status of the command, which prints nothing here."""
    with contextlib.redirect_stdout(io.StringIO()):
        old, sys.argv = sys.argv, ['study.py', *arguments]
        try:
            return study.main()
        finally:
            sys.argv = old


class CommandTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / 'study'

    def read(self, name):
        return (self.out / name).read_text(encoding='utf-8')

    def test_runs_what_a_processor_can(self):
        if PROGRAM is None:
            self.skipTest('no program was given')
        status = run('--out', str(self.out), '--cpu', PROGRAM, '--parts', 'cpu', '--cpu_lens',
                     '32,64', '--quick')
        self.assertEqual(status, 0)
        rows = json.loads(self.read('results.json'))['cpu']['rows']
        self.assertEqual(len(rows), 2 * 2 * 5)
        naive = {(r['len'], r['direction']): r for r in rows if r['algorithm'] == 'naive'}
        square = 4 * 64 * 64
        self.assertGreater(naive[64, 'forward']['heap_bytes'], 2 * square)
        self.assertLess(naive[64, 'forward']['heap_bytes'], 10 * square)
        self.assertTrue(all(r['seconds'] > 0 for r in rows))
        self.assertIn('reference/flash_attention_2', self.read('README.md'))

    def test_keeps_what_it_does_not_run(self):
        self.out.mkdir()
        (self.out / 'results.json').write_text(json.dumps(all_results()), encoding='utf-8')
        self.assertEqual(run('--out', str(self.out)), 0)  # no part can run
        self.assertEqual(json.loads(self.read('results.json')), all_results())
        self.assertIn('**confirmed**', self.read('README.md'))

    def test_a_part_that_was_asked_for_and_cannot_run_is_an_error(self):
        self.assertEqual(run('--out', str(self.out), '--parts', 'cpu'), 1)
        self.assertIn('no program was given', self.read('README.md'))
        self.assertEqual(run('--out', str(self.out), '--render'), 0)
        (self.out / 'results.json').write_text(json.dumps(all_results()), encoding='utf-8')
        self.assertEqual(run('--out', str(self.out), '--parts', 'cpu'), 1)

    def test_an_unknown_part_is_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            with self.assertRaises(SystemExit):
                study.parse(['--out', 'x', '--parts', 'cpu,typo'])
        self.assertIn('typo', errors.getvalue())


if __name__ == '__main__':
    if len(sys.argv) > 1:
        PROGRAM = sys.argv.pop(1)
    unittest.main()
