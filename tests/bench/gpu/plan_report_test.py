"""That plan_report.py compares what belongs together."""

import json
import unittest

import plan_report


def plan(**values):
    row = {'plan': 'gather', 'op': 'forward', 'batch': 1, 'len': 16384, 'q_heads': 16,
           'kv_heads': 16, 'causal': True, 'left': -1, 'ms': 2.0, 'right': True}
    return {**row, **values}


def peer(**values):
    row = {'batch': 1, 'len': 16384, 'forward': {'ms': 3.0, 'by': 'ring'}, 'failed': {}}
    return {**row, **values}


def last(plans, peers):
    """The lines after the table's head."""
    plans = {'device': 'two', 'deterministic': True, 'rows': plans}
    peers = {'device': 'two', 'torch': '2', 'cudnn': 9, 'rows': peers}
    return plan_report.compare(plans, peers)[4:]


class PlanReportTest(unittest.TestCase):

    def test_the_best_number_of_sections_counts(self):
        [line] = last([plan(ms=2.5), plan(ms=2.0), plan(plan='heads', ms=1.9)], [peer()])
        self.assertEqual(line.split()[:8],
                         ['1', 'x', '16384', 'forward', '2.000', '1.900', '3.000', 'ring'])
        self.assertTrue(line.endswith('1.50  1.25  yes'), line)

    def test_other_rows_do_not(self):
        others = [plan(causal=False), plan(left=4096), plan(kv_heads=4), plan(batch=2),
                  plan(op='backward'), plan(plan='heads')]
        self.assertEqual(last(others, [peer()]), [])

    def test_a_bar_may_be_missed_by_what_is_faster(self):
        [line] = last([plan(ms=2.9)], [peer()])
        self.assertTrue(line.endswith('yes, MISSED'), line)
        [line] = last([plan(ms=3.1, right=False)], [peer()])
        self.assertTrue(line.endswith('NO, MISSED, WRONG'), line)

    def test_backward_is_to_be_as_fast(self):
        backward = peer(backward={'ms': 2.0, 'by': 'ring'})
        line = last([plan(op='backward')], [backward])[-1]
        self.assertTrue(line.endswith('1.00  1.00  NO'), line)

    def test_plans_that_go_round_are_beside_the_same_way(self):
        ways = {'striped ring': {'forward': 4.0}, 'ring': {'forward': 1.0}}
        lines = last([plan(), plan(plan='striped', ms=2.0)], [peer(ways=ways)])
        self.assertEqual(len(lines), 2)
        self.assertTrue(lines[1].endswith('striped ring       2.00  1.00  yes'), lines[1])

    def test_what_failed_is_said(self):
        self.assertEqual(last([], [peer(failed={'ring': 'no memory'})]),
                         ['1 x 16384    ring: no memory'])

    def test_the_last_line_of_that_name_is_read(self):
        lines = ['{"a": 1}', '{"a": 2}', 'text', json.dumps({'b': 3})]
        self.assertEqual(plan_report.read('\n'.join(lines), 'a'), 2)
        with self.assertRaises(ValueError):
            plan_report.read('text', 'a')


if __name__ == '__main__':
    unittest.main()
