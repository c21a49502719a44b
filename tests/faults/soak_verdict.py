"""Whether what a server holds grows, judged from samples that were taken at times.

How it judges. What is held after a warm-up goes up and down: by what is under way, by when the C
library gives memory back. A leak is what goes up and stays. So the time is cut into thirds. The
first is warm-up: caches fill, threads start, and nothing is compared with it. Of the two others
the medians are compared, as half of all samples would have to be outliers to move one; a steady
leak moves it by all that is lost in a third of the time. Growth up to 2 % or 8 MiB, whichever is
more, is what was seen of servers without a leak.

Beside it stands the slope by Theil and Sen, the median of the slopes between all pairs of
samples, which says how much an hour it would be.

Under load, where a sample is what happens to be under way, medians differ by chance: there the
bound is wider by three standard errors of their difference.

Descriptors and threads are counted while nobody calls, and are whole numbers: of these the
largest of the last third may not exceed the largest of the middle one.
"""

import dataclasses
import itertools
import statistics

GROWTH_SHARE = 0.02
GROWTH_BYTES = 8 << 20


@dataclasses.dataclass
class Judgement:
    name: str
    middle: float  # median, or the largest of what is counted
    last: float
    bound: float  # what `last` may be
    per_hour: float  # by Theil and Sen
    samples: int

    @property
    def flat(self):
        return self.last <= self.bound

    def __str__(self):
        def text(value):
            return f'{value / 2**20:.1f} MiB' if self.name.endswith('bytes') else f'{value:.0f}'
        return (f'{self.name:24} {text(self.middle):>12} {text(self.last):>12} '
                f'{text(self.bound):>12} {text(self.per_hour):>12}  '
                f'{"flat" if self.flat else "GROWS"}')


HEAD = f'{"":24} {"middle third":>12} {"last third":>12} {"at most":>12} {"an hour":>12}'


def thirds(samples, name):
    """The values of `name` in the middle third of the time, and in the last."""
    if not samples:
        raise ValueError(f'no samples to judge {name} by')
    begin, end = samples[0]['seconds'], samples[-1]['seconds']
    third = (end - begin) / 3
    middle, last = [], []
    for sample in samples:
        if sample['seconds'] >= begin + 2 * third:
            last.append(sample[name])
        elif sample['seconds'] >= begin + third:
            middle.append(sample[name])
    if not middle or not last:
        raise ValueError(f'too few samples to judge {name} by: {len(samples)}')
    return middle, last


def slope(points, most=400):
    """Theil's and Sen's slope of (x, y) pairs; of evenly chosen ones where there are many."""
    points = points[::max(1, len(points) // most)]
    slopes = [(y2 - y1) / (x2 - x1)
              for (x1, y1), (x2, y2) in itertools.combinations(points, 2) if x2 > x1]
    return statistics.median(slopes) if slopes else 0


def _per_hour(samples, name):
    begin, end = samples[0]['seconds'], samples[-1]['seconds']
    return 3600 * slope([(sample['seconds'], sample[name]) for sample in samples
                         if sample['seconds'] >= begin + (end - begin) / 3])


def _error_of_median(values):
    """Its standard error, from the middle half of `values`: outliers do not count."""
    if len(values) < 4:
        return 0
    low, _, high = statistics.quantiles(values, n=4)
    return 1.2533 * (high - low) / 1.349 / len(values) ** 0.5


def judge_bytes(samples, name, errors=0):
    """`errors`: so many standard errors of the medians' difference are no growth."""
    parts = thirds(samples, name)
    middle, last = map(statistics.median, parts)
    chance = errors * sum(_error_of_median(part) ** 2 for part in parts) ** 0.5
    return Judgement(name, middle, last, middle + max(GROWTH_SHARE * middle, GROWTH_BYTES) + chance,
                     _per_hour(samples, name), len(samples))


def judge_count(samples, name):
    middle, last = (max(values) for values in thirds(samples, name))
    return Judgement(name, middle, last, middle, _per_hour(samples, name), len(samples))


def judge(samples):
    """Judgements of samples, dicts with 'seconds', 'phase' ('load' or 'rest') and what is held."""
    rest = [sample for sample in samples if sample['phase'] == 'rest']
    load = [sample for sample in samples if sample['phase'] == 'load']
    found = [judge_bytes(rest, name) for name in ('resident_bytes', 'heap_bytes')]
    found += [judge_count(rest, name) for name in ('descriptors', 'threads', 'all_threads')]
    under_load = judge_bytes(load, 'resident_bytes', errors=3)
    under_load.name = 'under load: bytes'
    return [*found, under_load]
