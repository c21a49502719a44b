"""The part `accuracy` of the ring study: how far results of plans are from one device's and from
float64, device by device, as ring_study says."""

from ring import published
from ring.plans import KINDS, run_program

OPS = ('forward', 'backward')
TENSORS = {'forward': ('o', 'lse'), 'backward': ('dq', 'dk', 'dv')}
NAMES = {'o': 'O', 'lse': 'LSE', 'dq': 'dQ', 'dk': 'dK', 'dv': 'dV'}


def run(program, quick=False, device=None):
    """{'rows': one for each plan and op}; of `device`, or of the virtual ones that the note has."""
    if program is None:
        return {'skipped': 'no program was given (--ring)'}
    of = {**published.ACCURACY, **({'len': 256, 'heads': 1} if quick else {})}
    try:
        return {'rows': run_program(program, 'accuracy', device=device or f'cpu*{of["devices"]}',
                                    lens=of['len'], heads=of['heads'], dim=of['dim'], ops=OPS,
                                    plans=KINDS)}
    except (OSError, RuntimeError) as error:
        return {'skipped': str(error)}


def rows(part, op, plan=None, partials=None):
    """Those of a plan's own: one that has no backward runs as gather, and is not among them."""
    return [row for row in part.get('rows', []) if row['op'] == op and
            plan in (None, row['plan']) and partials in (None, row['partials']) and
            row['ran_as'] == row['plan']]


def row(part, op, plan, partials='f32'):
    """The one, or None."""
    found = rows(part, op, plan, partials)
    return found[0] if found else None


def detours(part):
    """(op, plan, what it ran as) of what ran as another plan."""
    return [(r['op'], r['plan'], r['ran_as']) for r in part.get('rows', [])
            if r['ran_as'] != r['plan']]
