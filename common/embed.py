#!/usr/bin/env python3
"""Compiles files into C.

embed.py statements OUT.c OUT.h FILE.sql...   struct db_statement sql_<name> for each file, and <directory>_statements[], all of
                                              them and NULL
embed.py files ARRAY OUT.c OUT.h FILE...      struct embedded_file ARRAY[], with the SHA-256 of each
"""
import hashlib
import os
import re
import sys


def c_string(data: bytes) -> str:
    lines = data.split(b"\n")
    out = []
    for number, line in enumerate(lines):
        if number < len(lines) - 1:
            line += b"\n"
        if not line:
            continue
        text = "".join(
            "\\n" if b == 10 else f"\\{chr(b)}" if b in b'"\\?' else chr(b) if 32 <= b < 127 else f"\\{b:03o}"
            for b in line
        )
        out.append(f'    "{text}"')
    return "\n".join(out) or '    ""'


def read_statement(path):
    """Lines without comments, which are for people: the server would parse them at every call. psql's `\\ir FILE`
    includes a file from the same directory."""
    lines = []
    with open(path, "rb") as f:
        for line in f.read().split(b"\n"):
            if line.startswith(b"\\ir "):
                lines += read_statement(os.path.join(os.path.dirname(path), line[4:].strip().decode()))
            elif line.strip() and not line.lstrip().startswith(b"--"):
                lines.append(line)
    return lines


def statements(out_c, out_h, files):
    header = ['#pragma once', '#include "common/db_conn.h"', ""]
    source = [f'#include "{include_name(out_h)}"', ""]
    names = []
    # Of the first file: others may be of the checkout's own directory, whose name can be anything.
    directory = os.path.basename(os.path.dirname(os.path.dirname(os.path.abspath(files[0]))))
    for path in files:
        name = re.sub(r"\W", "_", os.path.splitext(os.path.basename(path))[0])
        lines = read_statement(path)
        names.append(f"sql_{name}")
        header.append(f"extern const struct db_statement sql_{name};")
        text = c_string(b"\n".join(lines).strip().rstrip(b";"))
        source.append(f'const struct db_statement sql_{name} = {{\n    "{directory}_{name}",\n{text}}};\n')
    header.append(f"extern const struct db_statement *const {directory}_statements[];")
    source.append(f"const struct db_statement *const {directory}_statements[] = {{")
    source += [f"    &{statement}," for statement in names] + ["    NULL,", "};"]
    write(out_h, header)
    write(out_c, source)


def files_array(array, out_c, out_h, files):
    write(out_h, [
        "#pragma once", "#include <stddef.h>", '#include "common/embedded_file.h"', "",
        f"extern const struct embedded_file {array}[];", f"extern const size_t {array}_count;",
    ])
    source = [f'#include "{include_name(out_h)}"', "", f"const struct embedded_file {array}[] = {{"]
    for path in files:
        with open(path, "rb") as f:
            data = f.read()
        digest = hashlib.sha256(data).hexdigest()
        source.append(f'    {{"{os.path.basename(path)}", "{digest}", {len(data)},\n{c_string(data)}}},')
    source += ["};", f"const size_t {array}_count = {len(files)};"]
    write(out_c, source)


def include_name(out_h):
    return os.path.basename(out_h)


def write(path, lines):
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")


if sys.argv[1] == "statements":
    statements(sys.argv[2], sys.argv[3], sys.argv[4:])
else:
    files_array(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
