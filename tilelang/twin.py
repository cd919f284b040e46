"""kernel.twin(*args): the written Ascend C on the host, through the headers of an installed toolkit.

The core compiles the source in the vendor's CPU-debug mode with the headers under ASCEND_HOME_PATH, with this project's
own model of the hardware intrinsics, and runs it on a copy of the arguments (tl_twin in tilelang.h; `tlc twin` does the
same without Python). The simulator runs on another; the report says where the two differ.
"""

import ctypes
import dataclasses

import numpy as np

from .errors import CompileError, DeviceError
from .language.dtypes import numpy_dtype


@dataclasses.dataclass
class Report:
    """outputs: by name "same", or the largest difference; faults: what the twin found, a line each."""

    outputs: dict
    faults: list

    @property
    def same(self):
        return not self.faults and all(v == "same" for v in self.outputs.values())

    def __str__(self):
        lines = [f"{n}: {v if v == 'same' else f'differs by up to {v}'}" for n, v in self.outputs.items()]
        return "\n".join(lines + self.faults)


def run(kernel, args, kwargs, seconds=600):
    """The Report of one call. Arguments are as for a call of the kernel; outputs and workspaces start as zeros."""
    _, views, scalars, env, other, *_ = kernel._bind(args, kwargs)
    runs = kernel._variant(other) if other else kernel
    values, copies = runs._values(env, views, scalars), {}
    for i, v in enumerate(values):
        if isinstance(v, tuple):
            dtype = numpy_dtype(runs.params[i - len(runs.sizes)].dtype)
            size = int(np.prod(v[1], dtype=np.int64)) * dtype.itemsize
            copies[i] = (np.frombuffer(ctypes.string_at(v[0], size), dtype).copy(), v[0], size)
            values[i] = (copies[i][0].ctypes.data, v[1])
    program = runs._need("twin")
    with runs._lock:
        program.diags_clear()
        program.twin(values, seconds)
        found = runs.findings(program)
    errors = [d for d in found if d.severity == "error" and d.code != "TL1115"]
    if errors:
        raise (DeviceError if errors[0].code.startswith("TL11") else CompileError)(errors)
    runs._run(env, views, scalars)
    outputs = {}
    for i, (got, address, size) in copies.items():
        p = runs.params[i - len(runs.sizes)]
        if p.role != "workspace":
            want = np.frombuffer(ctypes.string_at(address, size), got.dtype)
            outputs[p.name] = _difference(got, want)
    return Report(outputs, [d.text for d in found if d.code == "TL1115"])


def _difference(got, want):
    """"same" if the bytes are, any NaN like another; else the largest difference, infinite where one is NaN."""
    a, b = (x.astype(np.float64) for x in (got, want))
    bytes_of = [x.view(np.uint8).reshape(x.size, x.itemsize) for x in (got, want)]
    same = (bytes_of[0] == bytes_of[1]).all(1) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(a == b, 0, np.nan_to_num(np.abs(a - b), nan=np.inf))
    return "same" if same.all() else float(np.max(np.where(same, 0, apart)))
