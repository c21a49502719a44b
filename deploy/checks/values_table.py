#!/usr/bin/env python3
"""Holds the table of values in the chart's README to values.yaml.

    deploy/checks/values_table.py CHART            fails where the two differ
    deploy/checks/values_table.py CHART --write    writes the table

Each value's line is the comment right above it; a value without one is an error, and so
is one that values.schema.json does not know, or one that it knows and values.yaml lacks.
"""

import argparse
import json
import pathlib
import sys

import yaml

BEGIN, END = "<!-- values: begin -->", "<!-- values: end -->"
# What Helm itself adds to the values of a chart within another.
NOT_IN_VALUES = {"global"}


def comment_above(lines, line, column):
    """The comment that ends right above lines[line], in one line; "" if there is none."""
    found = []
    while line > 0 and lines[line - 1].startswith(" " * column + "#"):
        line -= 1
        found.insert(0, lines[line].strip().lstrip("#").strip())
    return " ".join(found)


def leaves(node, lines, path=()):
    """(path, value, comment) of everything that is no mapping with members."""
    for key, value in node.value:
        here = (*path, key.value)
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from leaves(value, lines, here)
        else:
            comment = comment_above(lines, key.start_mark.line, key.start_mark.column)
            yield here, yaml.safe_load(yaml.serialize(value)), comment


def known(schema, definitions, path=()):
    """The paths of the schema's leaves."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[1]]
    if "properties" not in schema:
        yield path
        return
    for name, member in schema["properties"].items():
        if path or name not in NOT_IN_VALUES:
            yield from known(member, definitions, (*path, name))


def cell(text):
    return text.replace("|", "\\|")


def table(values):
    rows = ["| value | default | what it is |", "|---|---|---|"]
    for path, value, comment in values:
        default = json.dumps(value, ensure_ascii=False)
        rows.append(f"| `{'.'.join(path)}` | `{cell(default)}` | {cell(comment)} |")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chart", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()

    text = (options.chart / "values.yaml").read_text()
    values = list(leaves(yaml.compose(text), text.splitlines()))
    schema = json.loads((options.chart / "values.schema.json").read_text())
    in_schema = set(known(schema, schema["definitions"]))
    in_values = {path for path, _, _ in values}
    faults = [f"{'.'.join(path)}: has no comment above it" for path, _, line in values if not line]
    faults += [f"{'.'.join(p)}: values.schema.json lacks it" for p in in_values - in_schema]
    faults += [f"{'.'.join(p)}: values.yaml lacks it" for p in in_schema - in_values]

    readme = options.chart / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    _, after = rest.split(END)
    wanted = f"{before}{BEGIN}\n{table(values)}\n{END}{after}"
    if options.write:
        readme.write_text(wanted)
    elif readme.read_text() != wanted:
        faults.append(f"README.md: its table is not that of values.yaml; {__file__} --write")
    print("\n".join(sorted(faults)) or f"{len(values)} values, each with its line")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
