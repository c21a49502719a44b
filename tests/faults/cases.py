"""The cases by name."""

import re

CASES = {}


def case(function=None, *, namespaces=()):
    """Makes a function of a Bench a case, named after it: client_killed is ClientKilled.

    `namespaces`: of these kinds ('net', 'mount') it has its own, so that it may change what
    others would see.
    """
    if function is None:
        return lambda f: case(f, namespaces=namespaces)
    name = re.sub(r'(?:^|_)(\w)', lambda found: found[1].upper(), function.__name__)
    function.namespaces = namespaces
    CASES[name] = function
    return function
