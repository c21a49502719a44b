"""What is claimed of which device does what when, and what the plans have."""

from ring import published
from ring.judge import judged, near, opened
from ring.published import NOTE, RING, STRIPED


def timeline(results, plan):
    """Its causal plan on 8 devices, or None."""
    for kept in results.get('plans', {}).get('timelines', []):
        if (kept['plan'], kept['ran_as']) == (plan, plan):
            return kept
    return None


def listed(devices, causal):
    """What the listing has each device compute: step t over the block that came by t devices."""
    return {(device, step, (device - step) % devices) for device in range(devices)
            for step in range(devices) if step <= device or not causal}


def steps_of(kept):
    """(device, step, block), and whether each device's steps are in their order."""
    steps = [(c['device'], c['step'], block) for c in kept['computes'] for block in c['blocks']]
    by_device = [[s for d, s, _ in steps if d == device] for device in range(kept['devices'])]
    return set(steps), all(of == sorted(of) for of in by_device)


def ring_as_listed(results):
    claim = 'forward of the ring, as it is listed: step t is over block r − t'
    rings = [kept for kept in (timeline(results, 'ring'), results.get('plans', {}).get('full'))
             if kept]
    if not rings:
        return opened(claim, f'{NOTE}, {RING}')
    met, said = True, []
    for kept in rings:
        steps, in_order = steps_of(kept)
        met = met and in_order and steps == listed(kept['devices'], kept['causal'])
        every = kept['devices'] * (kept['devices'] - 1)
        said.append(f'{"causal" if kept["causal"] else "full"}: {len(steps)} steps, '
                    f'{len(kept["pulls"])} copies where the listing has {every}')
    return judged(claim, f'{NOTE}, {RING}', f'the plan on {rings[0]["devices"]} devices, '
                  f'{"; ".join(said)}', met)


def cost_of_a_step(results):
    claim = 'a step of n tokens a device takes 4n²d FLOPs and 4nd bytes, so n FLOP/B'
    kept = results.get('plans', {}).get('full')
    if not kept:
        return opened(claim, NOTE)
    n, d = kept['len'] // kept['devices'], kept['heads'] * kept['dim']
    flops = {c['flops'] for c in kept['computes']}
    sizes = {p['bytes'] for p in kept['pulls']}
    measured = (f'n = {n}, counted by the plan: {min(flops) / (n * n * d):g} n²d FLOPs, '
                f'{min(sizes) / (n * d):g} nd bytes of 16-bit K and V; K alone, which "2nb" is of, '
                f'is {min(sizes) / (2 * n * d):g} nd')
    return judged(claim, NOTE, measured, flops == {4 * n * n * d} and sizes == {4 * n * d})


def imbalance(results):
    claim = 'the ring\'s low efficiency under a causal mask comes from imbalance'
    source = f'{NOTE}, {STRIPED}'
    rows = [b for b in results.get('plans', {}).get('balance', [])
            if b['ran_as'] == 'ring' and b['len'] == 16384]
    if not rows:
        return opened(claim, source)
    met, said = True, []
    for b in rows:
        n, most = b['devices'], max(b['pairs'])
        used = sum(b['pairs']) / (n * most)
        met = met and near(used, n / (2 * n - 1))
        met = met and all(near(pairs / most, (2 * r + 1) / (2 * n - 1), 0.02)
                          for r, pairs in enumerate(b['pairs']))
        said.append(f'{n} devices {100 * used:.1f} % (N/(2N−1) is {100 * n / (2 * n - 1):.1f})')
    others = published.H800_PERCENT['ring']  # which lose to copies, too
    met = met and abs(others - 100 * 8 / 15) <= 4
    busy = ', '.join(f'{100 * pairs / max(rows[-1]["pairs"]):.0f}' for pairs in rows[-1]['pairs'])
    return judged(claim, source, f'of all devices\' time in use: {"; ".join(said)}; each of '
                  f'{rows[-1]["devices"]}: {busy} %; measured on 8 × H800 by '
                  f'zhuzilin/ring-flash-attention: {others} %', met)


def useful_steps(results):
    claim = 'only step 0 is useful to all devices; GPUs 0, 3 and 7 differ'
    kept = timeline(results, 'ring')
    if not kept:
        return opened(claim, NOTE)
    devices = kept['devices']
    by_step = [{c['device'] for c in kept['computes'] if c['step'] == step}
               for step in range(devices)]
    whole = [step for step, of in enumerate(by_step) if len(of) == devices]
    counts = [sum(device in of for of in by_step) for device in range(devices)]
    seen = [counts[i] for i in (0, 3, 7) if i < devices]
    return judged(claim, NOTE, f'steps that all compute in: {whole}; devices 0, 3 and 7 compute in '
                  f'{", ".join(map(str, seen))} of {devices} steps',
                  whole == [0] and len(set(seen)) == len(seen))


def striped_is_balanced(results):
    claim = 'striped is completely balanced'
    source = f'{NOTE}, {STRIPED}'
    rows = [b for b in results.get('plans', {}).get('balance', []) if b['ran_as'] == 'striped']
    if not rows:
        return opened(claim, source)
    ratio = lambda b: max(b['pairs']) * b['devices'] / sum(b['pairs'])
    most = {length: max(ratio(b) for b in rows if b['len'] == length)
            for length in sorted({b['len'] for b in rows})}
    measured = 'most pairs of a device over the mean: ' + ', '.join(
        f'{value:.4f} at length {length}' for length, value in most.items())
    return judged(claim, source, measured, max(most.values()) <= 1.005)


def tiles_over_pairs(b):
    """Of what the kernel's tiles hold, over the pairs that are visible."""
    return sum(b['tiles']) * 128 * 128 / sum(b['pairs'])


def striped_costs_nothing(results):
    claim = 'and so loses nothing by it'
    rows = results.get('plans', {}).get('balance', [])
    wanted = [(4, 16384), (8, 4096)]
    found = {(b['devices'], b['len'], b['ran_as']): tiles_over_pairs(b) for b in rows}
    if any((*of, kind) not in found for of in wanted for kind in ('striped', 'zigzag')):
        return opened(claim, STRIPED)
    measured = 'tiles of 128 × 128 hold more pairs than are visible by: ' + '; '.join(
        f'{devices} devices, length {length}: ' + ', '.join(
            f'{kind} {100 * (found[devices, length, kind] - 1):.1f} %'
            for kind in ('striped', 'zigzag')) for devices, length in wanted)
    return judged(claim, STRIPED, measured, all(
        found[(*of, 'striped')] <= 1.01 * found[(*of, 'zigzag')] for of in wanted))


def tokens_in_order(results):
    claim = 'extract_local takes tokens 1, 9, 17, … to rank 1 of 8'
    source = f'{NOTE}, zhuzilin/ring-flash-attention'
    rows = results.get('plans', {}).get('tokens', [])
    formulas = results.get('formulas', {}).get('tokens')
    if not rows or not formulas:
        return opened(claim, source)
    held = {row['plan']: plan_tokens(row, 1) for row in rows}
    met = all(held.get(plan) == tokens for plan, tokens in formulas.items())
    met = met and formulas['striped'][:3] == [1, 9, 17]
    list_of = lambda tokens: ', '.join(map(str, tokens))
    return judged(claim, source, 'of 64 tokens by its formula ' + '; '.join(
        f'{plan} {list_of(tokens)}' for plan, tokens in formulas.items()) +
        f'; the plans have {"the same" if met else "others"}', met)


def plan_tokens(row, device):
    return [first + i * step for first, count, step in row['rows'][device] for i in range(count)]
