"""A compiler of C++ for the chip that makes a library for mock_acl.c: `bisheng … kernel.cpp … -o kernel.so`.

The host part of the source is compiled as it stands; a launch becomes a call of mock_launch, with the program's IR
(the .tl file beside the source), whose parameters are those of `call` by name. Device code is not looked at. A source
with "THIS IS NO C++" in it is refused."""

import pathlib
import re
import subprocess
import sys

args = sys.argv[1:]
if "--version" in args:
    print("bisheng fake 1.0")
    sys.exit(0)
if "-fsyntax-only" in args:
    sys.exit(0 if "-xasc" in args else 1)

source = pathlib.Path(next(a for a in args if a.endswith(".cpp")))
out = args[args.index("-o") + 1]
text = source.read_text()
if "THIS IS NO C++" in text:
    print("kernel.cpp:3:1: error: unknown type name 'THIS'")
    sys.exit(1)
ir = source.with_suffix(".tl").read_text()
head = re.search(r"^kernel @\w+\((.*?)\) grid", ir, re.M | re.S).group(1)
params = re.findall(r"%([\w.]+): (gm )?(\w+)", head)
start = re.search(r"#ifndef __(CCE_KT_TEST__|CPU_SIM)", text).start()
host = text[start:].replace('#include "acl/acl.h"', "typedef void *aclrtStream;")
launch = re.search(r"(\w+)_kernel<<<(.*), nullptr, stream>>>\((.*)\);", host)
names = [a.strip() for a in launch.group(3).split(",") if a.strip() != "ffts"]
sizes = {n for n in names if not n.endswith("_gm")}
ordered = [p for p in params if p[1] or p[0] not in sizes] + [p for p in params if not p[1] and p[0] in sizes]
tensors = iter(p for p in params if p[1])
scalars = {p[0]: p for p in params if not p[1]}
table = [(n, next(tensors) if n.endswith("_gm") else scalars[n]) for n in names]


def kind(p):
    return "t" if p[1] else "f" if p[2] in ("f16", "bf16", "f32") else "i"


def quoted(s):
    return '"' + s.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


back = []
for i, (name, p) in enumerate(table):
    if not p[1]:
        continue
    if "tlc_bytes" in text:  # built by tlc: sizes by slot
        back.append(f"  bytes[{i}] = by_slot[{params.index(p)}];\n")
    else:  # exported: sizes by function of the header
        inside = ", ".join(f"(int64_t)values[{j}]" for j, (_, q) in enumerate(table) if not q[1])
        back.append(f"  bytes[{i}] = {source.stem}_bytes_{name.removesuffix('_gm')}({inside});\n")
slots = "".join(f"  slot[{params.index(p)}] = values[{i}];\n" for i, (_, p) in enumerate(table))
fill = f"  uint64_t slot[64] = {{0}};\n  int64_t by_slot[64] = {{0}};\n{slots}  tlc_bytes(slot, by_slot);\n"
sizes_from = "" if "tlc_bytes" in text else f'#include "{source.with_suffix(".h").resolve()}"'
values = ", ".join(f"bits({n})" for n in names)
host = host.replace(launch.group(0), f"const uint64_t values[] = {{{values}}};\n"
                    f"  mock_launch(&mock_kernel, mock_bytes, (uint32_t){launch.group(2)}, stream, values);")
stub = f"""#include <stdint.h>
#include <string.h>
{sizes_from}
struct MockKernel {{ const char *name, *ir; int n; const char *const *arg; const char *kinds; }};
extern "C" void mock_launch(const MockKernel *, void (*)(const uint64_t *, int64_t *), uint32_t, void *,
                            const uint64_t *);
static const char *const names[] = {{{", ".join(quoted(p[0]) for _, p in table)}}};
static const MockKernel mock_kernel = {{"{launch.group(1)}_kernel", {quoted(ir)}, {len(table)}, names,
                                       "{"".join(kind(p) for _, p in table)}"}};
static uint64_t bits(const void *p) {{ return (uint64_t)p; }}
static uint64_t bits(float f) {{ uint64_t v = 0; memcpy(&v, &f, sizeof f); return v; }}
template <typename T> static uint64_t bits(T v) {{ return (uint64_t)(int64_t)v; }}
extern "C" void tlc_bytes(const uint64_t *slot, int64_t *bytes);
static void mock_bytes(const uint64_t *values, int64_t *bytes)
{{
{fill if "tlc_bytes" in text else ""}{"".join(back)}}}
{host}
"""
made = source.with_name(source.stem + "_stub.cpp")
made.write_text(stub)
libs = [a for a in args if a.startswith("-L")] + ["-lascendcl"]
done = subprocess.run(["c++", "-O0", "-shared", "-fPIC", "-I.", str(made), *libs, "-o", out], capture_output=True,
                      text=True)
sys.stdout.write(done.stderr)
sys.exit(done.returncode)
