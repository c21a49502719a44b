#!/usr/bin/env python3
"""Checks that includes run downward only, and in no circles. Usage: layers.py ROOT

LEVELS lists the rooms of the house (folders with what lies beneath them) from
the lowest to the highest. A file may include what is in its own room and in the
rooms of lower levels: never a room of its own level, nor of a higher one.

Prints one line for every #include that breaks this, for every circle of files,
and for every file that is in no room; fails if there is one. The last line
counts what was seen.
"""

import pathlib
import re
import sys

LEVELS = (
    ('base',),
    ('base/guard', 'base/tls'),
    # The contract of all kernels, then those who keep it.
    ('kernels',),
    # A request shared out over several devices: as data, and on their streams.
    ('kernels/plan',),
    ('kernels/team',),
    ('kernels/reference',),
    ('kernels/cpu', 'kernels/cuda/device'),
    ('kernels/cuda/launch',),
    ('kernels/cuda/tile',),
    ('kernels/cuda/rows', 'kernels/cuda/sm80', 'kernels/cuda/sm90', 'kernels/cuda/team'),
    ('kernels/cuda/baselines', 'kernels/cuda/fused'),
    ('kernels/cuda',),
    ('kernels/cuda/absent', 'kernels/cuda/capi'),
    # What both ends of the wire share.
    ('proto/wire',),
    # The server, from a work's bytes to the program.
    ('server/work',),
    ('server/execution',),
    ('server/scheduling',),
    ('server/transfer',),
    ('server/http2', 'server/tls'),
    ('server/net',),
    ('server/identity',),
    ('server/region',),
    ('server/config',),
    ('server/telemetry',),
    ('server/front',),
    ('server/admin',),
    ('server',),
    ('server/program',),
    # The client: its public headers, the library, the programs.
    ('client/include',),
    ('client',),
    ('client/tls_guard',),
    ('client/attnctl', 'client/attnload'),
)
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
PARTS = ('base', 'kernels', 'proto', 'server', 'client')
SUFFIXES = {'.h', '.cc', '.cu', '.cuh'}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
# Where client programs find the public headers.
PUBLIC = 'attnd/'


def room_of(path):
    """The innermost room that holds the file at `path`, or None."""
    folders = path.split('/')[:-1]
    while folders:
        if '/'.join(folders) in LEVEL_OF:
            return '/'.join(folders)
        folders.pop()
    return None


def sources(root):
    for part in PARTS:
        for path in sorted((root / part).rglob('*')):
            if path.suffix in SUFFIXES:
                yield path.relative_to(root).as_posix()


def includes(root, path):
    """Pairs (line number, path from the root) of what a file includes of ours."""
    for number, line in enumerate((root / path).read_text().splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        header = found.group(1)
        if header.startswith(PUBLIC):
            header = 'client/include/' + header
        if header.split('/')[0] in PARTS:
            yield number, header


def circle_in(graph):
    """The nodes of one circle of `graph` (node: set of nodes), or None."""
    done, trail = set(), []

    def visit(node):
        if node in trail:
            return trail[trail.index(node):] + [node]
        if node in done:
            return None
        trail.append(node)
        for following in sorted(graph.get(node, ())):
            circle = visit(following)
            if circle:
                return circle
        trail.pop()
        done.add(node)
        return None

    for node in sorted(graph):
        circle = visit(node)
        if circle:
            return circle
    return None


def check(root):
    """(lines that say what is wrong, the number of files, that of includes)."""
    wrong, graph, files, arrows = [], {}, 0, 0
    for path in sources(root):
        files += 1
        room = room_of(path)
        if room is None:
            wrong.append(f'{path}: is in no room of LEVELS')
            continue
        for number, header in includes(root, path):
            arrows += 1
            graph.setdefault(path, set()).add(header)
            target = room_of(header)
            if target == room:
                continue
            if target is None:
                wrong.append(f'{path}:{number}: {header} is in no room of LEVELS')
            elif LEVEL_OF[target] > LEVEL_OF[room]:
                wrong.append(f'{path}:{number}: {header}: runs upward, from {room} to {target}')
            elif LEVEL_OF[target] == LEVEL_OF[room]:
                wrong.append(f'{path}:{number}: {header}: {room} and {target} are side by side')
    circle = circle_in(graph)
    if circle:
        wrong.append('a circle: ' + ' -> '.join(circle))
    return wrong, files, arrows


def main():
    root = pathlib.Path(sys.argv[1])
    if not (root / 'kernels' / 'attention.h').is_file():
        sys.exit(f'{root} is not the root of the tree')
    wrong, files, arrows = check(root)
    for line in wrong:
        print(line)
    print(f'{files} files, {arrows} includes, {len(wrong)} that run upward, sideways or in circles')
    sys.exit(1 if wrong else 0)


if __name__ == '__main__':
    main()
