#!/usr/bin/env python3
"""Tests soak_verdict: that it finds leaks, and takes nothing else for one."""

import random
import unittest

from soak_verdict import GROWTH_BYTES, judge, judge_bytes, slope

MIB = 1 << 20
MINUTES = 30


def series(resident, descriptors=lambda minute: 40, threads=lambda minute: 20, seed=1,
           minutes=MINUTES):
    """Samples of every two seconds under load, and one at rest a minute.

    The functions give what is held at a minute; under load 200 MiB of noise are added.
    """
    noise = random.Random(seed)
    samples = []
    for second in range(0, minutes * 60, 2):
        minute = second / 60
        rest = second % 60 == 58
        here = resident(minute) + (noise.uniform(-1, 1) if rest else noise.uniform(0, 200)) * MIB
        samples.append({'seconds': second, 'phase': 'rest' if rest else 'load',
                        'resident_bytes': here, 'heap_bytes': here / 2,
                        'descriptors': descriptors(minute) + (0 if rest else noise.randrange(9)),
                        'threads': threads(minute), 'all_threads': threads(minute) + 4})
    return samples


def growing(samples):
    return {judgement.name for judgement in judge(samples) if not judgement.flat}


class SoakVerdict(unittest.TestCase):

    def test_a_flat_server_is_flat_whatever_the_noise(self):
        for seed in range(20):
            self.assertEqual(growing(series(lambda minute: 100 * MIB, seed=seed)), set())

    def test_what_grows_in_the_warm_up_alone_is_flat(self):
        self.assertEqual(growing(series(lambda minute: min(minute, 9) * 50 * MIB)), set())

    def test_what_goes_up_and_down_is_flat(self):
        self.assertEqual(growing(series(lambda minute: (100 + 30 * (int(minute) % 3)) * MIB)),
                         set())

    def test_outliers_are_no_leak(self):
        self.assertEqual(growing(series(
            lambda minute: (900 if int(minute) in (22, 25, 27) else 100) * MIB)), set())

    def test_a_steady_leak_is_found(self):
        # A byte in a hundred of 100 MiB a minute: 10 MiB in a third.
        self.assertIn('resident_bytes', growing(series(lambda minute: (100 + minute) * MIB)))
        self.assertIn('under load: bytes', growing(series(lambda minute: (100 + 5 * minute) * MIB)))

    def test_a_leak_that_begins_late_is_found(self):
        self.assertIn('resident_bytes', growing(series(
            lambda minute: (100 + max(0, minute - 15) * 2) * MIB)))

    def test_growth_within_the_bound_is_flat(self):
        per_minute = 0.8 * GROWTH_BYTES / (MINUTES / 3)
        self.assertEqual(growing(series(lambda minute: 100 * MIB + minute * per_minute)), set())

    def test_a_large_server_may_vary_by_its_share(self):
        self.assertEqual(growing(series(lambda minute: (4000 + 2 * minute) * MIB)), set())
        self.assertIn('resident_bytes', growing(series(lambda minute: (4000 + 12 * minute) * MIB)))

    def test_one_descriptor_more_is_found(self):
        self.assertEqual(growing(series(lambda minute: 100 * MIB,
                                        descriptors=lambda minute: 40 + (minute > 25))),
                         {'descriptors'})

    def test_one_thread_more_is_found(self):
        self.assertEqual(growing(series(lambda minute: 100 * MIB,
                                        threads=lambda minute: 20 + (minute > 25))),
                         {'threads', 'all_threads'})

    def test_fewer_are_none(self):
        self.assertEqual(growing(series(lambda minute: (100 - minute) * MIB,
                                        threads=lambda minute: 20 - (minute > 15))), set())

    def test_too_few_samples_are_no_verdict(self):
        with self.assertRaises(ValueError):
            judge_bytes(series(lambda minute: 100 * MIB)[:1], 'resident_bytes')
        with self.assertRaises(ValueError):
            judge([])

    def test_slope_is_the_line_s_whatever_the_outliers(self):
        points = [(x, 3 * x + (1000 if x % 10 == 0 else 0)) for x in range(100)]
        self.assertAlmostEqual(slope(points), 3)


if __name__ == '__main__':
    unittest.main()
