#!/usr/bin/env python3
"""That each verdict of the ring study follows from its numbers: made-up ones that confirm a claim,
and for each a change that turns it."""

import pathlib
import sys
import unittest
from unittest import mock

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / 'gpu'))

import claims
import ring_results
from ring import (accuracy, accuracy_verdicts, arithmetic_verdicts, formula_verdicts, gpu_verdicts,
                  plan_verdicts, published, verdicts)

def change(*path, to):
    """A change of the results: what lies at the path becomes `to`, or to(it)."""
    def apply(results):
        at = results
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to(at[path[-1]]) if callable(to) else to
    return apply


def of_accuracy(op, plan, partials, name, key, to):
    def apply(results):
        accuracy.row(results['accuracy'], op, plan, partials)['tensors'][name][key] = to
    return apply


def of_rank(rank, to):
    def apply(results):
        row = accuracy.row(results['accuracy'], 'forward', 'blocks', 'bf16')
        row['tensors']['o']['ranks'][rank]['mean'] = to
    return apply


def of_plan(kind, length, key, to):
    def apply(results):
        for row in results['plans']['balance']:
            if (row['plan'], row['len']) == (kind, length):
                row[key] = to(row[key])
    return apply


def of_time(plan, length, ms):
    def apply(results):
        for row in results['gpu']['table']['rows']:
            if (row['plan'], row['len'], row['op']) == (plan, length, 'forward'):
                row['ms'] = ms
    return apply


def without_overlap(results):
    for row in results['gpu']['connections']:
        row['ms'] = 2.0


def other_order(results):
    """Devices take blocks from the other side."""
    kept = results['plans']['timelines'][0]
    for compute in kept['computes']:
        compute['blocks'] = [(compute['device'] + compute['step']) % kept['devices']]


def all_compute_at_step_1(results):
    computes = results['plans']['timelines'][0]['computes']
    computes.append({**computes[0], 'device': 0, 'step': 1})


def all_compute_alike(results):
    """The same number of steps, though not all at the same ones."""
    kept = results['plans']['timelines'][0]
    kept['computes'] = [{**compute, 'device': device} for device in range(8)
                        for compute in kept['computes'] if compute['device'] == 0]


# By what judges: changes, each of which alone turns it.
TURNS = {
    formula_verdicts.softmax_by_lse: [change('formulas', 'softmax', 'finite', to=False),
                                      change('formulas', 'softmax', 'plain_finite', to=True),
                                      change('formulas', 'softmax', 'zeros', to=3)],
    formula_verdicts.gradient_of_lse: [change('formulas', 'gradient', 'error', to=1e-3)],
    formula_verdicts.recurrence: [change('formulas', 'recurrence', 'error', to=1e-5)],
    formula_verdicts.exact_over_shards: [change('formulas', 'exact', 3, 'f64', to=1e-9),
                                         change('formulas', 'exact', 3, 'rows_f64', to=1e-9),
                                         change('formulas', 'exact', 3, 'f32', to=1e-5)],
    formula_verdicts.merge_codes: [change('formulas', 'merges', 'difference', to=0.1),
                                   change('formulas', 'merges', 'example', 'exp', to=3),
                                   change('formulas', 'merges', 'example', 'sigmoid', to=3),
                                   change('formulas', 'merges', 'example', 'derived', to=4.537)],
    formula_verdicts.merge_overflow: [change('formulas', 'merges', 'overflow', 'exp', to=88.7),
                                      change('formulas', 'merges', 'overflow', 'sigmoid', to=88.7),
                                      change('formulas', 'merges', 'empty_is_nan', 'exp', to=True)],
    plan_verdicts.ring_as_listed: [other_order, all_compute_at_step_1,
                                   change('plans', 'full', 'computes', to=lambda c: c[::-1]),
                                   change('plans', 'full', 'computes', to=lambda c: c[1:])],
    plan_verdicts.cost_of_a_step: [change('plans', 'full', 'computes', 0, 'flops', to=1),
                                   change('plans', 'full', 'pulls', 0, 'bytes', to=1)],
    plan_verdicts.imbalance: [of_plan('ring', 16384, 'pairs', lambda of: [max(of)] * len(of)),
                              of_plan('ring', 16384, 'pairs', lambda of: of[::-1])],
    plan_verdicts.useful_steps: [all_compute_at_step_1, all_compute_alike],
    plan_verdicts.striped_is_balanced: [
        of_plan('striped', 4096, 'pairs', lambda of: [1.1 * of[0], *of[1:]])],
    plan_verdicts.striped_costs_nothing: [
        of_plan('striped', 4096, 'tiles', lambda of: [1.25 * n for n in of])],
    plan_verdicts.tokens_in_order: [change('plans', 'tokens', 0, 'rows', 1, to=[[1, 3, 1]]),
                                    change('formulas', 'tokens', 'zigzag', to=[0, 1, 2])],
    accuracy_verdicts.memory_of_a_device: [
        lambda results: accuracy.row(results['accuracy'], 'forward', 'ring').update(
            allocated_bytes=[10**9])],
    accuracy_verdicts.forward_accuracy: [
        of_accuracy('forward', 'blocks', 'bf16', 'o', 'rms', 1.1e-4),
        of_accuracy('forward', 'ring', 'f32', 'o', 'rms', 1.1e-4)],
    accuracy_verdicts.backward_accuracy: [
        of_accuracy('backward', 'blocks', 'bf16', 'dv', 'rms', 1.1e-4),
        of_accuracy('backward', 'ring', 'f32', 'dk', 'rms', 1.1e-4)],
    accuracy_verdicts.published_differences: [of_rank(1, 9e-4), of_rank(7, 9e-4)],
    accuracy_verdicts.difference_is_a_yardstick: [
        of_accuracy('forward', 'striped', 'f32', 'o', 'rms', 0.9e-4)],
    accuracy_verdicts.gather_is_one_device: [
        of_accuracy('forward', 'gather', 'f32', 'lse', 'max', 1e-6)],
    gpu_verdicts.accuracy_on_gpus: [
        change('gpu', 'accuracy', 0, 'tensors', 'o', 'rms', to=2e-4)],
    gpu_verdicts.copies_hide: [change('gpu', 'hiding', 0, 'tokens', to=9999),
                               change('gpu', 'hiding', 1, 'tokens', to=99)],
    gpu_verdicts.connections: [without_overlap],
    gpu_verdicts.ring_is_faster_than_one: [of_time('ring', 4096, 5.0)],
    gpu_verdicts.ring_reaches_its_bound: [of_time('ring', 128000, 4.0),
                                          of_time('ring', 128000, 2.0)],
    gpu_verdicts.striped_is_faster: [of_time('striped', 8192, 4.0)],
}

# Of published numbers alone: what they are in place of those that are, and what is said then.
PUBLISHED = {
    arithmetic_verdicts.what_decides: ({'GPUS': {'a GPU': {
        'dense': 100, 'sparse': 200, 'memory': 1, 'link': 0.5, 'claimed': 200}}}, 'confirmed'),
    arithmetic_verdicts.profiles: ({'PROFILES': {'copies are longer': 9999,
                                                 'computing is longer': 65536}}, 'corrected'),
    arithmetic_verdicts.table_of_h100: ({'H100_TFLOPS': {'total': 178, 'each': 178 * 64}},
                                        'confirmed'),
    plan_verdicts.imbalance: ({'H800_PERCENT': {'ring': 30}}, 'corrected'),
    arithmetic_verdicts.table_of_striped: ({'STRIPED_OVER_RING': (1.1,) * 6}, 'confirmed'),
}


def judge_by(verdict_function, results):
    return verdict_function(results).verdict


class VerdictsTest(unittest.TestCase):

    def test_every_claim_of_the_study_is_judged_by_its_number(self):
        self.assertEqual(list(verdicts.CLAIMS), list(range(1, 21)))

    def test_every_judge_is_turned_here(self):
        judges = {judge for judges in verdicts.CLAIMS.values() for judge in judges}
        self.assertEqual(judges, {*TURNS, *PUBLISHED})

    def test_what_holds_is_confirmed_and_any_change_turns_it(self):
        for judge, turns in TURNS.items():
            with self.subTest(judge.__name__):
                self.assertEqual(judge_by(judge, ring_results.every()), claims.CONFIRMED)
            for i, turn in enumerate(turns):
                with self.subTest(judge.__name__, turn=i):
                    results = ring_results.every()
                    turn(results)
                    self.assertIn(claims.CORRECTED, judge_by(judge, results))

    def test_published_numbers_decide_what_is_said_of_them(self):
        for judge, (numbers, then) in PUBLISHED.items():
            with self.subTest(judge.__name__):
                self.assertNotEqual(judge_by(judge, ring_results.every()), then)
                with mock.patch.multiple(published, **numbers):
                    self.assertEqual(judge_by(judge, ring_results.every()), then)

    def test_nothing_is_said_of_what_was_not_computed(self):
        for results in ({}, {part: {'skipped': 'no'} for part in ('plans', 'accuracy', 'gpu')}):
            for judge in TURNS:
                with self.subTest(judge.__name__):
                    found = judge(results)
                    self.assertEqual((found.verdict, found.measured), (claims.OPEN, ''))

    def test_what_holds_in_part_says_of_what(self):
        results = ring_results.every()
        change('formulas', 'merges', 'example', 'derived', to=4.537)(results)
        found = formula_verdicts.merge_codes(results)
        self.assertEqual(found.verdict, 'confirmed of the codes, else corrected')
        self.assertIn('printed 4.537: their arguments are swapped', found.measured)
        self.assertNotIn('swapped', formula_verdicts.merge_codes(ring_results.every()).measured)

    def test_a_plan_that_ran_as_another_says_nothing_of_its_own(self):
        results = ring_results.every()
        accuracy.row(results['accuracy'], 'forward', 'ring')['ran_as'] = 'gather'
        self.assertEqual(judge_by(accuracy_verdicts.memory_of_a_device, results), claims.OPEN)
        # Backward's partial results in f32 are then those of single blocks.
        accuracy.row(results['accuracy'], 'backward', 'ring')['ran_as'] = 'gather'
        of_accuracy('backward', 'blocks', 'f32', 'dq', 'rms', 2e-4)(results)
        self.assertIn(claims.CORRECTED, judge_by(accuracy_verdicts.backward_accuracy, results))

    def test_what_is_wrong_is_not_timed(self):
        results = ring_results.every()
        for row in results['gpu']['table']['rows']:
            row['right'] = row['plan'] != 'ring'
        self.assertEqual(judge_by(gpu_verdicts.ring_is_faster_than_one, results), claims.OPEN)


if __name__ == '__main__':
    unittest.main()
