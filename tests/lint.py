#!/usr/bin/env python3
"""Looks at the sources without running them; fails if it finds something.

  tests/lint.py format            clang-format over every source
  tests/lint.py locks BUILD       clang's -Wthread-safety over what has a Mutex, and over a
                                  planted mistake that it must find
  tests/lint.py tidy BUILD        clang-tidy over what changed, then over what includes that,
                                  --most=N translation units of them (24)
      --since=REF                 what changed since REF, in commits or not; unless given, since
                                  this branch left origin/main, or in the last commit
      --all                       over everything, a quarter of an hour of two cores

BUILD is a configured and built folder (build/release): its compile_commands.json says how
sources are compiled, and messages are generated there.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
SOURCES = ('*.h', '*.cc', '*.cu', '*.cuh')
# A class whose one method forgets the lock, and one that holds it.
PLANTED = '''
#include "base/mutex.h"
class Counter {
 public:
  void Right() { attnd::MutexLock lock(mutex_); ++count_; }
  void Wrong() { ++count_; }
 private:
  attnd::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};
'''


def git(*arguments):
    """The words that git prints, or None where it fails: the tree may be a bare copy."""
    try:
        return subprocess.run(['git', *arguments], cwd=ROOT, check=True, capture_output=True,
                              text=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return None


def sources():
    """Every source of the tree, by its path from the root; nothing that was built."""
    paths = git('ls-files', '--', *SOURCES)
    if paths is None:
        found = (path.relative_to(ROOT) for pattern in SOURCES for path in ROOT.rglob(pattern))
        paths = [path.as_posix() for path in found if path.parts[0] != 'build']
    return sorted(path for path in paths if (ROOT / path).is_file())


def in_parallel(look, items):
    """The items of which look(item) is not '', each printed with what it says."""
    failed = []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for item, said in zip(items, pool.map(look, items)):
            if said:
                print(f'{item}:\n{said}', flush=True)
                failed.append(item)
    return failed


def run(command, directory=ROOT):
    """What a command says if it fails, else ''."""
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return '' if done.returncode == 0 else done.stdout or f'it ended with {done.returncode}'


def commands(build):
    """By path from the root: (folder, command) of each C++ translation unit of ours."""
    found = {}
    for entry in json.loads((build / 'compile_commands.json').read_text()):
        path = pathlib.Path(entry['file'])
        if path.suffix != '.cc' or not path.is_relative_to(ROOT) or path.is_relative_to(build):
            continue
        path = path.relative_to(ROOT).as_posix()
        # What runs on emulated GPUs is CUDA C++, which only our shadow headers let g++ read;
        # clang before 15 has no _Float16 on x86.
        if path.startswith('tests/emulation/') or '_Float16' in (ROOT / path).read_text():
            continue
        words = shlex.split(entry['command'])
        found[path] = (entry['directory'], words)
    return found


def for_clang(words):
    """A g++ command without its launcher, g++'s precompiled headers and outputs."""
    while words and not re.search(r'(g\+\+|c\+\+|clang\+\+)(-\d+)?$', words[0]):
        words = words[1:]
    kept = ['clang++']
    words = iter(words[1:])
    for word in words:
        if word == '-include':
            header = next(words)
            if not header.endswith('cmake_pch.hxx'):
                kept += [word, header]
        elif word == '-o':
            next(words)
        elif word not in ('-Winvalid-pch', '-c'):
            kept.append(word)
    return kept


def included_by(paths):
    """By header, from the root: the sources that include it."""
    users = {}
    for path in paths:
        for header in INCLUDE.findall((ROOT / path).read_text(errors='replace')):
            if header.startswith('attnd/'):
                header = 'client/include/' + header
            users.setdefault(header, set()).add(path)
    return users


def touched(since, paths, units):
    """The units that changed since `since`, then those that include what did."""
    changed = git('diff', '--name-only', since, '--', *SOURCES)
    if changed is None:
        print(f'git does not know what changed since {since}')
        return []
    changed = [path for path in changed if (ROOT / path).is_file()]
    users, seen, queue = included_by(paths), set(changed), list(changed)
    for path in queue:  # grows
        for user in sorted(users.get(path, ())):
            if user not in seen:
                seen.add(user)
                queue.append(user)
    return [path for path in queue if path in units]


def where_this_branch_began():
    base = git('merge-base', 'HEAD', 'origin/main')
    return base[0] if base and base != git('rev-parse', 'HEAD') else 'HEAD~1'


def check_format():
    paths = sources()
    failed = in_parallel(lambda path: run(['clang-format', '--dry-run', '-Werror', path]), paths)
    print(f'clang-format: {len(failed)} of {len(paths)} sources are not as it would have them')
    return failed


def check_locks(build):
    units = commands(build)
    with_mutex = [path for path in sources()
                  if not path.startswith('tests/') and path != 'base/mutex.h'
                  and 'Mutex' in (ROOT / path).read_text()]
    users = included_by(sources())
    chosen = sorted({unit for path in with_mutex for unit in [path, *users.get(path, ())]
                     if unit in units and not unit.startswith('tests/')})
    warn = ['-fsyntax-only', '-Wno-everything', '-Wthread-safety', '-Werror=thread-safety']
    failed = in_parallel(
        lambda path: run(for_clang(units[path][1]) + warn, units[path][0]), chosen)
    with tempfile.TemporaryDirectory() as folder:
        planted = pathlib.Path(folder) / 'planted.cc'
        planted.write_text(PLANTED)
        said = run(['clang++', '-std=c++20', f'-I{ROOT}', str(planted)] + warn)
    if "requires holding mutex 'mutex_'" not in said or said.count('error:') != 1:
        print(f'the planted mistake is not found:\n{said}')
        failed.append('planted.cc')
    print(f'-Wthread-safety: {len(failed)} of {len(chosen)} translation units with mutexes fail')
    return failed


def check_tidy(build, since, everything, most):
    units = commands(build)
    chosen = sorted(units) if everything else touched(since, sources(), units)
    left = 0 if everything else max(0, len(chosen) - most)
    if left:
        chosen = chosen[:most]
    database = build / 'lint'
    database.mkdir(exist_ok=True)
    (database / 'compile_commands.json').write_text(json.dumps(
        [{'directory': folder, 'file': str(ROOT / path), 'arguments': for_clang(words)}
         for path, (folder, words) in units.items()]))
    failed = in_parallel(
        lambda path: run(['clang-tidy', '-p', str(database), '--quiet', '--warnings-as-errors=*',
                          str(ROOT / path)]), chosen)
    print(f'clang-tidy: {len(failed)} of {len(chosen)} translation units have findings')
    if left:
        print(f'  {left} more include what changed: tests/lint.py tidy BUILD --all')
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=('format', 'locks', 'tidy'))
    parser.add_argument('build', nargs='?')
    parser.add_argument('--since')
    parser.add_argument('--all', action='store_true')
    parser.add_argument('--most', type=int, default=24)
    arguments = parser.parse_args()
    if arguments.what == 'format':
        sys.exit(1 if check_format() else 0)
    if not arguments.build:
        parser.error(f'{arguments.what} needs BUILD')
    build = pathlib.Path(arguments.build).resolve()
    if arguments.what == 'locks':
        sys.exit(1 if check_locks(build) else 0)
    since = arguments.since or where_this_branch_began()
    sys.exit(1 if check_tidy(build, since, arguments.all, arguments.most) else 0)


if __name__ == '__main__':
    main()
