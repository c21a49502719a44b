"""That merge_bytes.py reads what Nsight Compute prints, and finds what moves too much."""

import unittest

import merge_bytes

KERNEL = 'void ForwardKernel<ForwardConfig<bf16, 128, 128, 0>>(LaunchParams)'
LSE = 16 * 8192 * 4
STATE = 128 * LSE + LSE
HEAD = ('"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
        '"Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit",'
        '"Metric Value"')
# What a launch's kernel reads beyond the L1 cache, and writes.
PLAIN, FIRST = (98304, 4096), (99328, 4096 + STATE)
MIDDLE, LAST = (98304 + STATE, 4096 + STATE), (98304 + STATE, 4096 + LSE)


def rows(number, read, written, name=KERNEL):
    start = f'"{number}","7","merge_bytes","127.0.0.1","{name}","1","14","(384, 1, 1)",' \
            '"(132, 1, 1)","0","9.0","Command line profiler metrics",'
    return [f'{start}"gpu__time_duration.sum","ns","987,654"',
            f'{start}"{merge_bytes.ASKED}","byte","{int(read * 1.0625):,}"',
            f'{start}"{merge_bytes.WRITTEN}","byte","{written:,}"',
            f'{start}"{merge_bytes.MISSED}","sector","{read // 32:,}"']


def said(launch, read, written):
    return f'{{"merge_bytes": {{"launch": "{launch}", "read": {read}, "written": {written}}}}}'


def recorded(kernels, right='true'):
    """As ncu prints it, lines of the program's between its own."""
    lines = ['==PROF== Connected to process 7 (/build/merge_bytes)',
             '==PROF== Profiling "ForwardKernel" - 0: 0%....50%....100% - 2 passes',
             said('plain', 0, 0),
             '==PROF== Profiling "ForwardKernel" - 1: ' + said('first', 0, STATE),
             said('middle', STATE, STATE), said('last', STATE, LSE),
             f'{{"merge_bytes_results": {{"o": "2.5e-03", "lse": "1.0e-06", "right": {right}}}}}',
             '==PROF== Disconnected from process 7', HEAD]
    for number, kernel in enumerate(kernels):
        lines += rows(number, *kernel)
    return '\n'.join(lines) + '\n'


def judged(*kernels, **arguments):
    return merge_bytes.judge(merge_bytes.parse(recorded(kernels, **arguments)))


class MergeBytesTest(unittest.TestCase):

    def test_a_state_read_and_written_once_is_held(self):
        lines, held = judged(PLAIN, FIRST, MIDDLE, LAST)
        self.assertTrue(held, lines)
        self.assertEqual(lines[5].split(),
                         ['middle', '0.988', '68.53', '64.50', '64.50', '1.000', '64.50', '64.50',
                          '1.000', 'yes'])
        self.assertIn('no other pass: 1 kernels each', lines)

    def test_values_and_units_are_read(self):
        run = merge_bytes.parse(recorded([PLAIN, FIRST, MIDDLE, LAST]))
        self.assertEqual([launch['written'] for launch in run.launches], [0, STATE, STATE, LSE])
        self.assertEqual(run.kernels[2].values[merge_bytes.MISSED], 98304 + STATE)
        self.assertEqual(run.kernels[2].values[merge_bytes.WRITTEN], 4096 + STATE)
        self.assertAlmostEqual(run.kernels[0].values[merge_bytes.TIME], 987654e-9)
        row = {'Metric Name': 'x', 'Metric Unit': 'Mbyte', 'Metric Value': '67.6'}
        self.assertAlmostEqual(merge_bytes.value(row), 67.6e6)

    def test_bytes_twice_are_missed(self):
        lines, held = judged(PLAIN, FIRST, (98304 + 2 * STATE, 4096 + STATE), LAST)
        self.assertFalse(held)
        self.assertEqual([line.split()[-1] for line in lines[3:7]], ['yes', 'yes', 'MISSED', 'yes'])
        self.assertFalse(judged(PLAIN, FIRST, (98304 + STATE, 4096 + 2 * STATE), LAST)[1])

    def test_a_state_where_none_is_expected_is_missed(self):
        self.assertFalse(judged(PLAIN, (98304 + STATE, 4096 + STATE), MIDDLE, LAST)[1])
        self.assertFalse(judged(PLAIN, FIRST, MIDDLE, (98304 + STATE, 4096 + STATE))[1])

    def test_what_is_not_counted_is_missed(self):
        self.assertFalse(judged(PLAIN, FIRST, (98304, 4096 + STATE), LAST)[1])
        self.assertFalse(judged(PLAIN, PLAIN, MIDDLE, LAST)[1])

    def test_a_twentieth_more_is_held(self):
        self.assertTrue(judged(PLAIN, FIRST, (98304 + int(1.04 * STATE), 4096 + STATE), LAST)[1])
        self.assertFalse(judged(PLAIN, FIRST, (98304 + int(1.06 * STATE), 4096 + STATE), LAST)[1])

    def test_another_pass_is_missed(self):
        merge = (STATE, STATE, 'MergeKernel(MergeParams)')
        lines, held = judged(PLAIN, FIRST, PLAIN, merge, LAST)
        self.assertFalse(held)
        self.assertIn('5 kernels', lines[0])
        # As many kernels for each launch, but not the same ones.
        none = (0, 0, 'Nothing()')
        lines, held = judged(PLAIN, none, FIRST, none, PLAIN, merge, LAST, none)
        self.assertFalse(held)
        self.assertTrue(lines[-2].startswith('MISSED: other kernels'), lines)

    def test_wrong_results_are_missed(self):
        lines, held = judged(PLAIN, FIRST, MIDDLE, LAST, right='false')
        self.assertFalse(held)
        self.assertTrue(lines[-1].endswith('WRONG'), lines)

    def test_what_cannot_be_read_is_said(self):
        text = recorded([PLAIN, FIRST, MIDDLE, LAST])
        for broken in (text[:text.index('"ID"')], text.replace('"last"', '"lost"'),
                       text.replace(merge_bytes.MISSED, 'other'),
                       text.replace('"987,654"', '"n/a"')):
            with self.assertRaises(merge_bytes.Unreadable):
                merge_bytes.parse(broken)


if __name__ == '__main__':
    unittest.main()
