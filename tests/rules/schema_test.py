#!/usr/bin/env python3
"""Plants changes of the schema in a copy of it: some that break clients, some
that do not, and some that only look bad."""

import pathlib
import shutil
import tempfile
import unittest

import schema

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUF = schema.find_buf(ROOT)
ATTENTION = 'proto/attn/v1/attention.proto'


class SchemaTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(ROOT / 'proto', self.root / 'proto')
        shutil.rmtree(self.root / schema.RELEASES)
        (self.root / schema.RELEASES).mkdir()
        self.write_changelog('## 1.2.0 - unreleased', '## 1.1.0 - 2026-01-31')
        # What later changes are compared with is this very tree.
        self.assertEqual(self.record('1.1.0'), [])

    def write_changelog(self, *headings):
        (self.root / 'CHANGELOG.md').write_text('\n\n'.join(headings) + '\n')

    def record(self, version):
        return schema.record(BUF, self.root, version)

    def faults(self):
        return list(schema.faults(BUF, self.root))

    def change(self, old, new, path=ATTENTION):
        text = (self.root / path).read_text()
        self.assertEqual(text.count(old), 1, old)
        (self.root / path).write_text(text.replace(old, new))

    def assert_noticed(self, lines, *words):
        self.assertTrue(lines)
        for word in words:
            self.assertIn(word, '\n'.join(lines))

    def test_finds_nothing_where_nothing_changed(self):
        self.assertEqual(self.faults(), [])

    def test_lets_the_schema_grow(self):
        self.change('  Plan plan = 4;\n}', '  Plan plan = 4;\n  int32 new_option = 5;\n}')
        self.change('  PRIORITY_HIGH = 3;', '  PRIORITY_HIGH = 3;\n  PRIORITY_HIGHEST = 4;')
        self.change('message Streamed {}', 'message Streamed {}\n\nmessage Added {}')
        self.assertEqual(self.faults(), [])

    def test_lets_a_field_take_a_number_that_was_reserved_for_one(self):
        self.change('    RegionSlice region = 13;\n  }\n  reserved 12;',
                    '    RegionSlice region = 13;\n    string file = 12;\n  }')
        self.assertEqual(self.faults(), [])

    def test_notices_what_breaks_clients(self):
        for what, old, new in (
                ('deleted field', '  Priority priority = 3;\n', '  reserved 3;\n'),
                ('renamed field', 'optional float softcap = 3;', 'optional float soft_cap = 3;'),
                ('renumbered field', 'optional float softcap = 3;',
                 'optional float softcap = 11;'),
                ('type', 'optional float softcap = 3;', 'optional double softcap = 3;'),
                ('presence', 'optional float softcap = 3;', 'float softcap = 3;'),
                ('repeated', 'repeated int64 kv_start = 8;', 'int64 kv_start = 8;'),
                ('deleted value', '  PRIORITY_LOW = 1;\n', ''),
                ('swapped values', '  PLAN_HEADS = 3;', '  PLAN_HEADS = 9;'),
                ('deleted call', '  rpc Backward(BackwardRequest) returns (BackwardResponse);\n',
                 ''),
                ('streaming', 'returns (stream ExchangeResponse)', 'returns (ExchangeResponse)'),
                ('package', 'package attn.v1;', 'package attn.v2;')):
            with self.subTest(what):
                before = (self.root / ATTENTION).read_text()
                self.change(old, new)
                self.assert_noticed(self.faults(), ATTENTION, 'breaks clients of 1.1.0')
                (self.root / ATTENTION).write_text(before)

    def test_notices_a_deleted_file(self):
        (self.root / 'proto/attn/v1/region.proto').unlink()
        self.assert_noticed(self.faults(), 'region.proto', 'breaks clients of 1.1.0')

    def test_notices_bad_style(self):
        self.change('  PRIORITY_HIGH = 3;', '  PRIORITY_HIGH = 3;\n  HIGHEST = 4;')
        self.assert_noticed(self.faults(), ATTENTION, 'HIGHEST')

    def test_compares_with_the_last_release(self):
        self.change('  Plan plan = 4;\n}', '  Plan plan = 4;\n  int32 new_option = 5;\n}')
        self.write_changelog('## 1.10.0 - unreleased', '## 1.9.0 - unreleased')
        self.assertEqual(self.record('1.10.0'), [])
        self.change('  int32 new_option = 5;\n', '')
        self.assertEqual(self.record('1.9.0'), [])
        self.assert_noticed(self.faults(), 'new_option', 'breaks clients of 1.10.0')

    def test_notices_a_release_that_was_not_recorded(self):
        self.write_changelog('## 1.2.0 - 2026-02-28', '## 1.1.0 - 2026-01-31')
        self.assert_noticed(self.faults(), '1.2.0 has been released')
        self.assertEqual(self.record('1.2.0'), [])
        self.assertEqual(self.faults(), [])

    def test_notices_that_there_is_nothing_to_compare_with(self):
        self.write_changelog('## 1.1.0 - unreleased')
        (self.root / schema.RELEASES / '1.1.0.binpb').unlink()
        self.assert_noticed(self.faults(), 'no schema to compare with')

    def test_a_release_keeps_its_record(self):
        self.assert_noticed(self.record('1.1.0'), '1.1.0 has been released')
        self.assert_noticed(self.record('3.0.0'), 'no heading for 3.0.0')
        # Until it is out, a version's record follows the schema.
        for _ in range(2):
            self.assertEqual(self.record('1.2.0'), [])


if __name__ == '__main__':
    unittest.main()
