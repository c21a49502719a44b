#!/usr/bin/env python3
"""Checks the six doors of docs/design.md. Usage: doors.py ROOT

A table there follows one request through the code, a file and a function for
each door. Prints one line for every door that is not there any more, and fails
if there is one, or if there are not six.
"""

import pathlib
import re
import sys

PAGE = 'docs/design.md'
HEADING = 'One request, six doors'
DOORS = 6

# A row: its number, its file and its function; what else it says is for readers.
ROW = re.compile(r'^\| *(\d+) *\|[^|`]*`([^`|]+)`[^|]*\|[^|`]*`([^`|]+)`')
COMMENT = re.compile(r'//.*')


def section(page):
    """The lines below HEADING, up to the next heading."""
    lines = page.splitlines()
    starts = [i for i, line in enumerate(lines)
              if line.startswith('#') and line.lstrip('# ').rstrip() == HEADING]
    if not starts:
        return []
    below = lines[starts[0] + 1:]
    ends = [i for i, line in enumerate(below) if line.startswith('#')]
    return below[:ends[0]] if ends else below


def doors(page):
    """(number, path, function) of each row of the table, in order."""
    rows = (ROW.match(line) for line in section(page))
    return [(int(row[1]), row[2], row[3]) for row in rows if row]


def has_function(source, function):
    """Whether `source` defines or declares `function`, and not only calls it on
    an object or speaks of it."""
    name = re.escape(function.split('::')[-1])
    code = COMMENT.sub('', source)
    return re.search(rf'(?<![\w.>]){name}\s*[(<]', code) is not None


def faults(root):
    """What is wrong with the table in the tree at `root`, a line each."""
    found = doors((root / PAGE).read_text())
    numbers = [number for number, _, _ in found]
    if numbers != list(range(1, DOORS + 1)):
        yield f'{PAGE}: "{HEADING}" has doors {numbers}, not 1 to {DOORS}'
    for number, path, function in found:
        file = root / path
        if not file.is_file():
            yield f'{PAGE}: door {number}: there is no {path}'
        elif not has_function(file.read_text(), function):
            yield f'{PAGE}: door {number}: {path} has no {function}'


def main():
    root = pathlib.Path(sys.argv[1])
    if not (root / PAGE).is_file():
        sys.exit(f'{root} has no {PAGE}')
    found = list(faults(root))
    print('\n'.join(found) or f'all {DOORS} doors are there')
    sys.exit(1 if found else 0)


if __name__ == '__main__':
    main()
