"""How a claim is judged by what was computed or measured of it."""

import claims
from claims import CONFIRMED, CORRECTED, OPEN

# How near a number must be to the one claimed, in parts of it.
NEAR = 0.01


def near(value, claimed, part=NEAR):
    return abs(value - claimed) <= part * abs(claimed)


def judged(claim, source, measured, met):
    return claims.Verdict(claim, source, measured, CONFIRMED if met else CORRECTED)


def opened(claim, source):
    return claims.Verdict(claim, source, '', OPEN)


def partly(claim, source, measured, met):
    """`met`: {of what: whether}; a part that is met confirms that part."""
    of = [what for what, holds in met.items() if holds]
    if len(of) == len(met):
        return claims.Verdict(claim, source, measured, CONFIRMED)
    verdict = f'{CONFIRMED} of {" and ".join(of)}, else {CORRECTED}' if of else CORRECTED
    return claims.Verdict(claim, source, measured, verdict)
