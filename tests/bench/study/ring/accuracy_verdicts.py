"""What is claimed of how near results come and of memory, and what runs of the plans say."""

from ring import accuracy, published
from ring.judge import judged, near, opened, partly
from ring.published import NOTE, RING


def memory_of_a_device(results):
    """In units of n d: 6 of them are claimed, whatever they are."""
    claim = 'a device holds 6nd'
    found = accuracy.row(results.get('accuracy', {}), 'forward', 'ring')
    if not found:
        return opened(claim, f'{NOTE}, {RING}')
    unit = found['len'] / found['devices'] * found['heads'] * found['dim']
    allocated, planned = max(found['allocated_bytes']), max(found['planned_bytes'])
    measured = (f'the plan `ring` holds {allocated / unit:.2f} nd bytes (Q 2, two blocks of K and '
                f'V 8, two states of O and LSE in f32 8), its count says {planned / unit:.2f}; 6nd '
                f'elements of 16 bits are 12 nd bytes; the note\'s own tables hold '
                f'{published.MEMORY_RATIO} × its 6nd')
    return judged(claim, f'{NOTE}, {RING}', measured, near(allocated, 6 * unit, 0.05))


def _worst(ratios):
    return ', '.join(f'{name} {ratio:.3f}' for name, ratio in ratios.items())


def as_near_as_one(results, op, partials):
    """By 16-bit tensor: RMS error to float64 over one device's."""
    part = results.get('accuracy', {})
    found = accuracy.row(part, op, 'blocks', partials)
    if partials == 'f32' and accuracy.row(part, op, 'ring'):
        found = accuracy.row(part, op, 'ring')
    if not found:
        return {}
    return {accuracy.NAMES[name]: of['rms'] / of['one_rms']
            for name, of in found['tensors'].items() if name != 'lse' and of['one_rms'] > 0}


def _of_lse(results, op):
    """What is f32 itself is beside the point, but not silent."""
    found = accuracy.row(results['accuracy'], op, 'ring')
    if not found or 'lse' not in found['tensors']:
        return ''
    of = found['tensors']['lse']
    return f'; LSE, f32 anyway, {of["rms"]:.1e} for {of["one_rms"]:.1e}'


def _table_of(op):
    def verdict(results):
        claim = f'{op} on 8 devices is as accurate as on one'
        rounded, kept = (as_near_as_one(results, op, partials) for partials in ('bf16', 'f32'))
        if not rounded or not kept:
            return opened(claim, NOTE)
        measured = (f'RMS error to float64 over one device\'s: partial results in 16 bits, as in '
                    f'the note, {_worst(rounded)}; in f32 {_worst(kept)}{_of_lse(results, op)}')
        fine = lambda ratios: max(ratios.values()) <= 1.02
        return partly(claim, NOTE, measured, {'partial results in 16 bits': fine(rounded),
                                              'those in f32': fine(kept)})
    return verdict


forward_accuracy, backward_accuracy = _table_of('forward'), _table_of('backward')


def published_differences(results):
    low, high = sorted(published.ACCURACY['mean'])
    claim = (f'O differs from one device\'s by {high:.2e} on average on rank 1, down to {low:.2e} '
             'on rank 7')
    found = accuracy.row(results.get('accuracy', {}), 'forward', 'blocks', 'bf16')
    if not found:
        return opened(claim, NOTE)
    means = [rank['mean'] for rank in found['tensors']['o']['ranks']]
    met = near(means[1], high, 0.25) and near(means[-1], low, 0.25)
    measured = f'16-bit partial results: {means[1]:.2e} and {means[-1]:.2e}, {means[0]:g} on rank 0'
    return judged(claim, NOTE, measured + (', within a quarter' if met else ''), met)


def difference_is_a_yardstick(results):
    claim = 'the difference from one device says how accurate a plan is'
    part = results.get('accuracy', {})
    rows = [r for r in accuracy.rows(part, 'forward') if r['plan'] != 'blocks']
    rows += accuracy.rows(part, 'forward', 'blocks', 'bf16')
    if not any(r['plan'] == 'ring' for r in rows):
        return opened(claim, NOTE)
    of = [(r['plan'] if r['plan'] != 'blocks' else '16-bit partial results', r['tensors']['o'])
          for r in rows]
    measured = 'mean difference of O, and RMS error over one device\'s: ' + '; '.join(
        f'{name} {o["mean"]:.1e}, {o["rms"] / o["one_rms"]:.3f}' for name, o in of)
    # It would order plans as errors do.
    by = lambda key: [name for name, o in sorted(of, key=lambda pair: pair[1][key])]
    return judged(claim, NOTE, measured, by('mean') == by('rms'))


def gather_is_one_device(results):
    claim = 'a plan can give one device\'s bits'
    found = accuracy.row(results.get('accuracy', {}), 'forward', 'gather')
    if not found:
        return opened(claim, 'this project')
    most = max(of['max'] for of in found['tensors'].values())
    return judged(claim, 'this project', f'`gather`: O and LSE differ by {most:g} at most',
                  most == 0)
