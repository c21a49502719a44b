"""What is claimed of the formulas of ring attention, and what numbers say."""

from ring import published
from ring.judge import judged, near, opened, partly
from ring.published import NOTE, RING


def softmax_by_lse(results):
    claim, found = 'softmax(x) = exp(x − LSE): no overflow, no underflow', results.get('formulas')
    if not found:
        return opened(claim, NOTE)
    found = found['softmax']
    measured = (f'scores to ±{found["scores"]:g} in f32: '
                f'{"all finite" if found["finite"] else "not all finite"}, '
                f'{found["zeros"]:,} of {found["elements"]:,} are 0; the largest of a row is off '
                f'by {found["error_by_lse"]:.1e} of itself, {found["error"]:.1e} where the largest '
                'score is taken out first')
    return partly(claim, NOTE, measured, {
        'overflow': found['finite'] and not found['plain_finite'],
        'underflow': found['zeros'] == 0})


def gradient_of_lse(results):
    claim, found = '∂LSE/∂x = softmax(x)', results.get('formulas')
    if not found:
        return opened(claim, NOTE)
    error = found['gradient']['error']
    return judged(claim, NOTE, f'central differences in float64 differ by {error:.0e} at most',
                  error <= 1e-8)


def recurrence(results):
    claim = 'softmax over two blocks is each block\'s, times sigmoid(±(LSE₁ − LSE₂))'
    found = results.get('formulas')
    if not found:
        return opened(claim, NOTE)
    found = found['recurrence']
    return judged(claim, NOTE, f'f32 is off by {found["error"]:.1e} at most, without blocks by '
                  f'{found["plain_error"]:.1e}', found['error'] <= 2 * found['plain_error'])


def exact_over_shards(results):
    claim = 'A/B over blocks of K and V is exact, and so is cutting Q alone'
    found = results.get('formulas')
    if not found:
        return opened(claim, f'{NOTE}, {RING}')
    rows = found['exact']
    most = max(max(row['f64'], row['rows_f64']) for row in rows)
    one = rows[0]['f32']
    measured = (f'1 to {rows[-1]["shards"]} shards: {most:.0e} at most in float64; in f32 '
                f'{max(row["f32"] for row in rows):.1e}, one shard {one:.1e}')
    return judged(claim, f'{NOTE}, {RING}', measured,
                  most <= 1e-13 and all(row['f32'] <= 4 * one for row in rows))


def merge_codes(results):
    claim = 'both codes that merge give the same, and the last lines of the derivation are theirs'
    found = results.get('formulas')
    if not found:
        return opened(claim, NOTE)
    found = found['merges']
    example, claimed = found['example'], published.SWAPPED
    measured = (f'codes differ by {found["difference"]:.1e} at most; of O = {example["out"]} with '
                f'LSE {example["lse"]} and a block\'s {example["block_out"]} with '
                f'{example["block_lse"]} both make {example["sigmoid"]:.3f}, the lines as they are '
                f'printed {example["derived"]:.3f}: their arguments are swapped')
    if near(example['derived'], example['sigmoid']):
        measured = measured.removesuffix(': their arguments are swapped')
    same = found['difference'] <= 1e-5 and near(example['exp'], claimed['right'])
    return partly(claim, NOTE, measured, {
        'the codes': same and near(example['sigmoid'], claimed['right']),
        'the lines': near(example['derived'], example['sigmoid'])})


def merge_overflow(results):
    claim = 'either code that merges is safe'
    source = f'{NOTE}; of exp EasyContext #14 says otherwise'
    found = results.get('formulas')
    if not found:
        return opened(claim, source)
    found = found['merges']
    ends = found['overflow']
    say = lambda end: 'never' if end is None else f'from {end:.2f} on'
    nan = ' and '.join(name for name, is_nan in found['empty_is_nan'].items() if is_nan)
    measured = (f'not finite where a block\'s LSE is above that so far by: with exp '
                f'{say(ends["exp"])}, with sigmoid {say(ends["sigmoid"])}; NaN of two empty '
                f'partial results: {nan or "neither"}')
    return partly(claim, source, measured, {
        'large differences with exp': ends['exp'] is None,
        'large differences with sigmoid': ends['sigmoid'] is None,
        'empty results': not nan})
