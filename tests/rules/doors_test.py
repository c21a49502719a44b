#!/usr/bin/env python3
"""Plants tables of doors that are wrong, each in its own way, and a right one."""

import pathlib
import tempfile
import unittest

import doors

# Each door's file, its function as the table names it, and the file's text.
TREE = [
    ('server/a.cc', 'Call::Submit', 'Status Call::Submit(Op op) {}'),
    ('server/b.cc', 'Scheduler::Submit', 'Status Scheduler::Submit(Work w) {}'),
    ('server/c.cc', 'GroupRun::Execute', 'Status GroupRun::Execute() {}'),
    ('kernels/d.h', 'Stream::Forward', 'class Stream { Status Forward(); };'),
    ('kernels/e.cc', 'Enqueue', 'template <>\nint Enqueue<float>(int n) {}'),
    ('kernels/f.cuh', 'ForwardKernel', '__global__ void\n    ForwardKernel(int n) {}'),
]


def page(tree, heading=doors.HEADING):
    rows = '\n'.join(f'| {number} | [`{path}`](../{path}) | `{function}` | `x` in | out |'
                     for number, (path, function, _) in enumerate(tree, 1))
    return (f'# Design\n\n| 7 | `other.cc` | `Other` |\n\n## {heading}\n\nSix of them.\n\n'
            f'| door | file | function | in | out |\n|---|---|---|---|---|\n{rows}\n\n'
            '## Next\n\n| 8 | `other.cc` | `Other` |\n')


def found(text, tree):
    """What is said of a tree of these files, with `text` as its page."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, source in [(doors.PAGE, text)] + [(path, text) for path, _, text in tree]:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(source)
        return list(doors.faults(root))


def with_source(index, source):
    """TREE with another text in one of its files."""
    tree = list(TREE)
    tree[index] = (*tree[index][:2], source)
    return tree


class DoorsTest(unittest.TestCase):

    def assert_noticed(self, lines, *words):
        self.assertEqual(len(lines), 1, lines)
        for word in words:
            self.assertIn(word, lines[0])

    def test_finds_six_doors_that_are_there(self):
        self.assertEqual(found(page(TREE), TREE), [])

    def test_notices_a_missing_file(self):
        self.assert_noticed(found(page(TREE), TREE[:2] + TREE[3:]), 'door 3', 'server/c.cc')

    def test_notices_a_missing_function(self):
        for source in ('Status GroupRun::Run() {}',
                       'Status GroupRun::ExecuteAll() {}',
                       'Status GroupRun::PreExecute() {}',
                       '// GroupRun::Execute() was here.',
                       'void Run() { run.Execute(); run_->Execute(); }'):
            with self.subTest(source=source):
                lines = found(page(TREE), with_source(2, source))
                self.assert_noticed(lines, 'door 3', 'server/c.cc', 'GroupRun::Execute')

    def test_notices_five_doors(self):
        self.assert_noticed(found(page(TREE[:5]), TREE), '[1, 2, 3, 4, 5]')

    def test_notices_seven_doors(self):
        tree = TREE + [('kernels/g.cc', 'Seventh', 'void Seventh() {}')]
        self.assert_noticed(found(page(tree), tree), '[1, 2, 3, 4, 5, 6, 7]')

    def test_notices_that_the_section_is_gone(self):
        self.assert_noticed(found(page(TREE, heading='Doors'), TREE), '[]')


if __name__ == '__main__':
    unittest.main()
