"""kernel.twin(*args): the written Ascend C on the host, through the headers of an installed toolkit.

The source is compiled in the vendor's CPU-debug mode with the headers under ASCEND_HOME_PATH and linked with this
project's own model of the hardware intrinsics (src/target/ascendc/twin). It runs on the given arguments, and so does
the simulator; the report says where the two differ. Nothing of a toolkit comes with this package.
"""

import ctypes
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from .errors import ArgumentError

CORES = {"MIX_AIC_1_2": "0, 1, 2", "AIC_ONLY": "0", "AIV_ONLY": "1", "MIX_AIC_1_0": "0", "MIX_AIV_1_0": "1"}
_BITS = {"bool": 8, "e4m3": 8, "e5m2": 8, "bf16": 16, **{f"{k}{b}": b for k in "fiu" for b in (8, 16, 32, 64)}}
DEFINES = {"__CCE_AICORE__": 220, "__DAV_C220__": 1, "__CCE_KT_TEST__": 1, "ASCENDC_CPU_DEBUG": 1, "ASCENDC_DEBUG": 1}


@dataclasses.dataclass
class Report:
    """outputs: by name "same", or the largest difference; faults: what the twin found, a line each."""

    outputs: dict
    faults: str

    @property
    def same(self):
        return not self.faults and all(v == "same" for v in self.outputs.values())

    def __str__(self):
        lines = [f"{n}: {v if v == 'same' else f'differs by up to {v}'}" for n, v in self.outputs.items()]
        return "\n".join(lines + self.faults.splitlines())


def _model():
    """The folder of the model's sources: in the package, or in a checkout beside it."""
    here = pathlib.Path(__file__).resolve().parent
    for folder in (here / "model", here.parent / "src" / "target" / "ascendc" / "twin"):
        if (folder / "glue.cpp").exists():
            return folder
    raise ArgumentError("twin: the sources of the model are not installed; use a checkout of the project")


def _includes():
    """The include folders of the toolkit that ASCEND_HOME_PATH names."""
    home = os.environ.get("ASCEND_HOME_PATH")
    if not home:
        raise ArgumentError("twin: it needs the headers of a toolkit; set ASCEND_HOME_PATH (source set_env.sh of CANN)")
    home = pathlib.Path(home)
    stub = home / "tools" / "tikicpulib" / "lib" / "include"
    api = next((d for d in sorted(home.glob("*-linux/ascendc/include")) if (d / "basic_api").is_dir()), None)
    if not (stub / "stub_fun.h").exists() or api is None:
        missing = home / "*-linux/ascendc/include/basic_api" if (stub / "stub_fun.h").exists() else stub / "stub_fun.h"
        raise ArgumentError(f"twin: there is no {missing}; the twin knows the layout of toolkit 8.1")
    basic, high = api / "basic_api", api / "highlevel_api"
    return [stub, basic, basic / "interface", basic / "impl", api, high, high / "lib", api.parents[1] / "include"]


def _program(source, tensors, sizes, blocks):
    """The written kernel with a main that runs it. tensors: bytes by C name; sizes: scalars by C name."""
    kernel = source.split("#ifndef __CCE_KT_TEST__")[0]
    name, parameters = re.search(r"void (\w+_kernel)\((.*?)\)\n", kernel).groups()
    kind = re.search(r"KERNEL_TYPE_(\w+)\)", kernel)[1]
    lines, call = [], []
    for parameter in filter(None, parameters.split(", ")):
        ctype, c_name = parameter.rsplit(" ", 1)
        if ctype == "GM_ADDR":
            lines.append(f'  uint8_t *{c_name} = driver.tensor("{c_name}", {tensors[c_name]});')
        call.append(c_name if ctype == "GM_ADDR" else "0" if c_name == "fftsAddr" else f"({ctype}){sizes[c_name]}")
    run = f"  return driver.run({blocks}, {{{CORES[kind]}}}, [&] {{ {name}({', '.join(call)}); }});"
    return "\n".join([kernel, '#include "driver.h"', "int main(int, char **argv)", "{", "  TwinDriver driver(argv[1]);",
                      *lines, run, "}", ""])  # fmt: skip


def _compile(folder, text):
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise ArgumentError("twin: there is no C++ compiler; install g++ or set CXX")
    model = _model()
    (folder / "kernel.cpp").write_text(text, encoding="utf-8")
    flags = [f"-D{k}={v}" for k, v in DEFINES.items()] + [f"-I{d}" for d in [model, *_includes()]]
    made = folder / "kernel"
    commands = (
        [os.environ.get("CC") or "cc", "-std=gnu17", "-O2", "-c", str(model / "twin.c"), "-o", "twin.o"],
        [compiler, "-std=c++17", "-O1", "-w", *flags, "kernel.cpp", str(model / "glue.cpp"), "twin.o", "-o", str(made)],
    )
    for command in commands:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise ArgumentError("twin: the written source does not compile with this toolkit:\n" + done.stderr[-4000:])
    return made


def run(kernel, args, kwargs, seconds=600):
    """The Report of one call. Arguments are as for a call of the kernel; outputs and workspaces start as zeros."""
    from .frontend.expr import evaluate

    _includes()  # what is missing is said before anything is done
    _, views, scalars, env, other, *_ = kernel._bind(args, kwargs)
    runs = kernel._variant(other) if other else kernel
    source = runs.get_kernel_source("ascendc")
    if "SyncAll" in source or re.search(r"CrossCoreSetFlag<[01],", source):
        raise ArgumentError("twin: blocks of this kernel wait for each other; the twin runs them one after another")
    scope = {**env, **{kernel.params[i].name: v for i, v in scalars.items()}}
    blocks = 1
    for _, extent in kernel.traced.builder.grid:
        blocks *= max(int(evaluate(extent, scope)), 0)
    c_names = re.findall(r"(\w+_gm)\b", re.search(r"_kernel\((.*?)\)\n", source)[1])
    size = _sizes(json.loads(runs._program.signature_json())["params"], scope, c_names)
    given = {re.sub(r"\W", "_", p.name) + "_gm": i for i, p in enumerate(kernel.params) if p.kind == "tensor"}
    values = {re.sub(r"\W", "_", n): v for n, v in scope.items()}
    values.update({f"{n}_in": v for n, v in list(values.items())})
    with tempfile.TemporaryDirectory(prefix="tilelang-twin-") as temporary:
        folder = pathlib.Path(temporary)
        made = _compile(folder, _program(source, size, values, blocks))
        for name in c_names:
            start = ctypes.string_at(views[given[name]].address, size[name]) if name in given else bytes(size[name])
            (folder / f"{name}.in").write_bytes(start)
        done = subprocess.run([str(made), str(folder)], capture_output=True, text=True, timeout=seconds)
        runs._run(env, views, scalars)
        outputs = {}
        for name, i in given.items():
            if kernel.params[i].role == "workspace" or name not in size:
                continue
            want, got = ctypes.string_at(views[i].address, size[name]), (folder / f"{name}.out").read_bytes()
            same = got == want
            outputs[kernel.params[i].name] = "same" if same else _difference(got, want, kernel.params[i].dtype)
    return Report(outputs, done.stdout + (done.stderr if done.returncode > 1 else ""))


def _sizes(params, scope, c_names):
    """Bytes of each tensor by its C name. params: of the lowered kernel, with the workspaces that passes made."""
    sizes = {}
    for p in params:
        if p["kind"] != "tensor":
            continue
        n = 1
        for extent in p["shape"]:
            text = re.sub(r"%?([A-Za-z_][\w.]*)", lambda m: str(scope.get(m[1], m[1])), str(extent))
            n *= int(eval(text, {"__builtins__": {}}, {"min": min, "max": max}))
        sizes[re.sub(r"\W", "_", p["name"]) + "_gm"] = max(n, 1) * _BITS[p["dtype"]] // 8
    missing = [n for n in c_names if n not in sizes]
    if missing:
        raise ArgumentError(f"twin: parameter {missing[0]} of the written kernel has another name in the program")
    return sizes


def _difference(got, want, dtype):
    import numpy as np

    from .language.dtypes import numpy_dtype

    a, b = (np.frombuffer(x, numpy_dtype(dtype)).astype(np.float64) for x in (got, want))
    return float(np.nanmax(np.where(a == b, 0, np.abs(a - b))))
