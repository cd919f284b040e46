"""Which published row is which experiment: EXPERIMENTS says how to time it, `experiment_of` which row it belongs to,
and `reason` why a row has none.

A row's metric is computed from one timed run: see METRICS.
"""

import csv
import re
from pathlib import Path

import kernels as K

TABLE = Path(__file__).with_name("published.tsv")
A2, A2_BANK, A3, A5 = "910B1", "910B2", "910_9391", "950PR_958x"


def rows():
    with open(TABLE, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))


def is_unseen(row):
    """No constant was fitted to it."""
    return row["notes"].endswith("split=unseen")


class Experiment:
    """warm: L2 as an earlier run of the same left it: kernels that write much, and part of a larger run.
    family: what is left out together in cross-validation; scale: published work over simulated work."""

    def __init__(self, family, chip, make, *args, scale=1.0, warm=False, **kwargs):
        self.family, self.chip, self.make, self.args, self.kwargs = family, chip, make, args, kwargs
        self.scale, self.warm = scale, warm

    def text(self):
        return self.make(self.chip, *self.args, **self.kwargs)

    def smaller(self):
        """The same with a quarter of the rows on every core, for the many runs of a fit; one core alone is quick as it
        is, and rereads what L2 may no longer hold."""
        if self.make is not K.gemm or self.args[0] != 8192 or self.args[6] % 512 or self.args[6] == self.args[0]:
            return self
        m, n, k, bm, bn, bk, single_m, *rest = self.args
        small = Experiment(self.family, self.chip, self.make, m // 4, n, k, bm, bn, bk, single_m // 4, *rest,
                           scale=4 * self.scale, warm=self.warm, **self.kwargs)
        return small


def copies():
    out = {}
    for chip, tag, aiv, aic, small in ((A2, "A2", 48, 24, 6144), (A5, "950", 64, 32, 8192)):
        big = 12288
        ub = {1: (big, big, 1, 64), 2: (big, big, 64, 64), 3: (big, big, 64, 1024), 4: (big, big - 1, 64, 1024)}
        for n, (m, c, tm, tn) in ub.items():
            scale = 8.0 if n == 1 else 1.0
            out[f"{tag} UB {n}"] = Experiment("copy to UB", chip, K.copy_ub, aiv, m // int(scale), c, tm, tn,
                                              scale=scale)
        for n, split in ((5, 1), (6, 4)):
            out[f"{tag} UB {n}"] = Experiment("copy to UB", chip, K.copy_ub, aiv, big, big, 64, 1024, repeat=4,
                                              split=split)
        for n, stagger in ((7, False), (8, True)):
            out[f"{tag} UB {n}"] = Experiment("copy to UB", chip, K.copy_ub, aiv, small, 512, 128, 64, whole=True,
                                              stagger=stagger)
        l1 = {1: (big, 64), 2: (big, 256), 3: (big - 1, 256)}
        for n, (c, tn) in l1.items():
            out[f"{tag} L1 {n}"] = Experiment("copy to L1", chip, K.copy_l1, aic, big, c, 64, tn)
        for n, split in ((4, 1), (5, 4)):
            out[f"{tag} L1 {n}"] = Experiment("copy to L1", chip, K.copy_l1, aic, big, big, 64, 1024, repeat=4,
                                              split=split)
        for n, stagger in ((6, False), (7, True)):
            out[f"{tag} L1 {n}"] = Experiment("copy to L1", chip, K.copy_l1, aic, small, 512, 256, 64, whole=True,
                                              stagger=stagger)
    return out


def adds():
    out = {}
    for chip, tag, aiv, large in ((A2, "A2", 48, 16384), (A5, "950", 64, 21760)):
        out[f"{tag} add 1"] = Experiment("add", chip, K.add, 1, 1024, 8192, 4096, False, scale=8.0)
        out[f"{tag} add 2"] = Experiment("add", chip, K.add, aiv, 8192, 8192, 4096, False, serial=True, warm=True)
        out[f"{tag} add 3"] = Experiment("add", chip, K.add, aiv, 8192, 8192, large, False, serial=True, warm=True)
        out[f"{tag} add 4"] = Experiment("add", chip, K.add, aiv, 8192, 8192, large, True, warm=True)
    return out


def matmuls():
    """Library cases 0 to 8 and the basic-API scenarios, 8192 x 8192 x 8192, B transposed."""
    out, size = {}, 8192

    def one(name, family, chip, n, bm, single, step, **kw):
        bn = 256 if bm > 64 else 64
        out[name] = Experiment(family, chip, K.gemm, size, n, size, bm, bn, 64, *single, *step, **kw)

    lib, basic = "matmul library", "matmul basic API"
    for chip, tag, bm, n1, packets in ((A2, "A2", 128, 1536, (8, 4)), (A5, "950", 256, 1024, (4, 4))):
        # one core: a few columns, with L2 as the columns before left it
        one(f"{tag} matmul 0", lib, chip, 128, 64, (size, 128), (1, 1), scale=64.0, warm=True, l1_stages=1)
        one(f"{tag} matmul 1", lib, chip, 512, bm, (size, 512), (1, 1), scale=16.0, warm=True, l1_stages=1)
        two = (4096, 683) if tag == "A2" else (1024, 2048)
        one(f"{tag} matmul 2", lib, chip, size, bm, two, (1, 1), l1_stages=1)
        one(f"{tag} matmul 3", lib, chip, size, bm, (2048, n1), (1, 1), l1_stages=1)
        one(f"{tag} matmul 4", lib, chip, size, bm, (2048, n1), (2, 2))
        one(f"{tag} matmul 5", lib, chip, size, bm, (2048, n1), packets)
        one(f"{tag} matmul 6", lib, chip, size, bm, (1024, n1), packets, rounds=2)
        one(f"{tag} basic 1", basic, chip, size, bm, (2048, n1), packets)
        one(f"{tag} basic 2", basic, chip, size, bm, (1024, n1), packets, rounds=2)
        out[f"{tag} matmul 7"] = out[f"{tag} matmul 8"] = out[f"{tag} matmul 6"]
    return out


# pto-isa's cost tests: (kernel, config) -> instruction, tiles read, scalar. Tiles lie one behind the other.
GOLDENS = {
    ("pto_tadd_instr", "TADD"): ("add", 2, ""), ("pto_tmul_instr", "TMUL"): ("mul", 2, ""),
    ("pto_tdiv_instr", "TDIV"): ("div", 2, ""), ("pto_texp_instr", "TEXP"): ("exp", 1, ""),
    ("pto_tsqrt_instr", "TSQRT"): ("sqrt", 1, ""), ("pto_tmins_instr", "TMINS"): ("min", 1, "1"),
    ("pto_trowsum_instr", "TROWSUM"): ("row_sum", 1, ""), ("pto_trowmax_instr", "TROWMAX"): ("row_max", 1, ""),
}  # fmt: skip
GOLDEN_SHAPES = {
    "pto_tadd_instr": [("64x64", "f32"), ("64x64", "i32"), ("16x256", "f16"), ("64x64", "i16")],
    "pto_tmul_instr": [("64x64", "f32"), ("64x64", "i32"), ("16x256", "f16")],
    "pto_tdiv_instr": [("64x64", "f32"), ("64x64", "f16")],
    "pto_texp_instr": [("64x64", "f32"), ("64x64", "f16"), ("32x32", "f16"), ("32x32", "f32")],
    "pto_tsqrt_instr": [("64x64", "f32"), ("64x64", "f16")],
    "pto_tmins_instr": [("64x64", "f32"), ("64x64", "i32")],
    "pto_trowsum_instr": [("64x64", "f32"), ("64x128", "f16")],
    "pto_trowmax_instr": [("64x64", "f32"), ("64x128", "f16")],
}
# the compiler's own schedules of the published product of 6144³: name, depth of a tile, T.Persistent
OWN_GEMMS = [("A3 own gemm, T.Persistent", 256, True), ("A3 own gemm, a tile a block", 256, False),
             ("A3 own gemm, a tile a block, 128 deep", 128, False)]  # fmt: skip
NUMPY_DTYPE = {"fp32": "f32", "int32": "i32", "fp16": "f16", "int16": "i16"}


def unseen():
    """Kernels of rows that no constant was fitted to, but for two of the products (notes: split=unseen)."""
    out = {}
    for m, n, k in ((1024, 1024, 1024), (2048, 2048, 256), (2208, 2048, 512), (2208, 2048, 1024), (1024, 2368, 512),
                    (1024, 2368, 1024), (1024, 2368, 2048), (2058, 2048, 256), (2048, 2038, 256), (2058, 2038, 256)):
        out[f"950 catlass {m}x{n}x{k}"] = Experiment("catlass gemm", A5, K.gemm, m, n, k, 256, 256, 64, 256, 256, 2, 2,
                                                     trans_b=False)
    for chip, tag, cores, splits in ((A2, "A2", 48, 6), (A5, "950", 64, 8)):
        out[f"{tag} nd2nz"] = Experiment("nd2nz", chip, K.nd_to_nz, splits, 8, 8192, 144, 128, warm=True)
        out[f"{tag} gelu"] = Experiment("gelu", chip, K.gelu, cores, 8192, 8192, 8192, warm=True)
    out["A2 basic f32"] = Experiment("matmul basic API", A2, K.gemm, 8192, 8192, 8192, 128, 256, 64, 2048, 1536, 8, 4,
                                     out="f32")
    out["950 basic f32"] = Experiment("matmul basic API", A5, K.gemm, 8192, 8192, 8192, 256, 256, 64, 2048, 1024, 4, 4,
                                      out="f32")
    return out


def others():
    out = {}
    for size in (1536, 3072, 6144, 7680):
        out[f"A3 gemm {size}"] = Experiment("pto gemm", A3, K.gemm, size, size, size, 128, 256, 64, size // 4,
                                            size // 6, 4, 4, out="f32")
    for name, bk, persistent in OWN_GEMMS:
        out[name] = Experiment("own gemm", A3, K.developer_gemm, 6144, 128, 256, bk, persistent)
    banks = [(0, 0x10100, 0x20000), (0, 0x4000, 0x10000), (0, 0x10000, 0x14100), (0, 0x10100, 0x4000),
             (0, 0x10100, 0x4020), (0, 0x10100, 0x10100)]
    for n, at in enumerate(banks, 1):
        out[f"A2 bank {n}"] = Experiment("instructions", A2_BANK, K.vector_loop, "add", 4096, "f32", at, 100,
                                         scale=10.0)
    for (kernel, config), (op, args, scalar) in GOLDENS.items():
        for shape, dtype in GOLDEN_SHAPES[kernel]:
            rows_, cols = (int(x) for x in shape.split("x"))
            bytes_ = rows_ * cols * (4 if dtype.endswith("32") else 2)
            name = f"A2 {config} {shape} {dtype}"
            if op.startswith("row"):
                out[name] = Experiment("instruction goldens", "910B3", K.row_reduction, op, rows_, cols, dtype)
            else:
                at = [i * bytes_ for i in range(args)] + [args * bytes_]
                out[name] = Experiment("instruction goldens", "910B3", K.vector_loop, op, rows_ * cols, dtype, at, 1,
                                       args=args, scalar=scalar)
    out["A2 mmad 256"] = Experiment("instructions", A2, K.mmad_loop, 128, 256, 64, 8)
    out["A2 mmad 128"] = Experiment("instructions", A2, K.mmad_loop, 128, 128, 64, 8)
    for blocks in (1, 32, 64, 128, 1024):
        out[f"950 empty {blocks}"] = Experiment("launch", A5, K.empty, blocks)
    return out


EXPERIMENTS = {**copies(), **adds(), **matmuls(), **unseen(), **others()}

# ---- rows -----------------------------------------------------------------------------------------------------------


def experiment_of(row):
    """Name of the experiment that this row measured, or None."""
    kernel, chip, config = row["kernel"], row["chip"], row["tile/config"]
    tag = "950" if chip.startswith("950") else "A2"
    if kernel.startswith("data_copy"):
        return f"{tag} {'UB' if 'UB' in kernel else 'L1'} {re.match(r'Scenario=([0-9]+)', config)[1]}"
    if kernel == "add" and "asc-devkit" in row["source"]:
        n = re.match(r"Case=([0-9]+)", config)[1]
        return f"{tag} add {n}" if n in "1234" else None
    if kernel == "matmul" and (m := re.match(r"(Case version=Case|Scenario=Scenario) ([0-9])", config)):
        return f"{tag} {'basic' if 'Scenario' in m[1] else 'matmul'} {m[2]}"
    if row["id"].startswith("U") and (name := {
        "catlass_gemm": f"950 catlass {row['shape']}", "nd2nz": f"{tag} nd2nz", "gelu": f"{tag} gelu",
        "matmul_fp32_out": f"{tag} basic f32", "add_c_api": "950 add 4"}.get(kernel)):  # fmt: skip
        return name
    if kernel == "gemm" and chip == "A3":
        return f"A3 gemm {row['shape'].split('x')[0]}"
    if kernel == "vec_add_ub_microbench":
        n = re.match(r"scenario ([0-9])", config)[1]
        return f"A2 bank {n}" if n in "123456" else None
    if (kernel, config) in GOLDENS:
        return f"A2 {config} {row['shape']} {NUMPY_DTYPE[row['dtype']]}"
    if kernel == "mmad_microbench" and "off" in config:
        return f"A2 mmad {row['shape'].split('x')[1]}"
    if kernel == "empty_kernel/gather" and "Ascend 950PR" in config:
        return f"950 empty {re.search(r'blocks=([0-9]+)', config)[1]}"
    return None


def skipped_metric(row, name):
    """Why this metric of a row with an experiment is not compared, or None."""
    metric = row["metric"]
    if row["id"] == "P0417":
        return "contradicts the duration of the same run: 43 % more cycles than that time has"
    if "scalar" in metric and " matmul " in name:
        return "scalar work of the Matmul library, which is not in the program"
    if "fixpipe" in metric and re.search(r"matmul [01238]|basic", name):
        return "the time includes waiting inside the instruction"
    if metric not in METRICS:
        return f"no such metric: {metric}"
    return None


REASONS = [
    (r"simt|SIMT", "SIMT programs are not expressible"),
    (r"add Case=0", "scalar loop of one core: its instruction sequence is not published"),
    (r"add Case=[56]", "loads that bypass L2 are not expressible"),
    (r"vec_add_ub_microbench", "a source that repeats one block: block strides are not expressible"),
    (r"mmad_microbench", "unit flags are not expressible"),
    (r"pto_t", "an instruction sequence that is not published, or an operand form that we do not have"),
    (r"vf_ub_bank|reg_trait|empty_kernel|integer_div|hash_table", "register programs of the 950 are not expressible"),
    (r"control_path|task_head", "a runtime's own control path, no kernel"),
    (r"allreduce|allgather|tget_p2p|MoeDistribute|DeepSeek|HCCL", "several cards"),
    (r"^(310P|910A)", "another chip family"),
    (r"torch|triton|CANN|FlagGems|Liger|DLC|SGEMM|ascend-rs", "the program is not published, or only host time is"),
    (r"pypto|PyPTO|simpler", "times of a runtime's tasks, whose programs are not in the text"),
]


def reason(row):
    """Why a row without an experiment has none."""
    text = " ".join((row["chip"], row["kernel"], row["tile/config"].split(";")[0], row["implementation"]))
    for pattern, why in REASONS:
        if re.search(pattern, text):
            return why
    return "shape, tiling or instruction sequence is not published"


# ---- metrics ---------------------------------------------------------------------------------------------------------


def pipe_us(j, pipe, side=None):
    return sum(p["busy_us"] for p in j["pipes"] if p["pipe"] == pipe and side in (None, p["side"]))


def core_us(j):
    return sum(c["end_us"] - c["start_us"] for c in j["cores"]) / len(j["cores"])


def scaled_us(us, once, e):
    """`once` of it happens once, however large the run."""
    return once + e.scale * (us - once)


def task_us(j, e):
    return scaled_us(j["us"], j["launch_us"], e)


def on_core_us(j, e):
    return scaled_us(core_us(j), j["launch_us"] - min(c["start_us"] for c in j["cores"]), e)


def ratio(j, pipe):
    return 100 * pipe_us(j, pipe) / core_us(j)


METRICS = {
    "task_duration": task_us,
    "time": lambda j, e: j["us"] * 1e-3,
    "aicore_time": on_core_us,
    "aiv_time": on_core_us,
    "aic_mac_time": lambda j, e: e.scale * pipe_us(j, "m"),
    "aic_scalar_time": lambda j, e: e.scale * pipe_us(j, "s"),
    "aic_mte1_time": lambda j, e: e.scale * pipe_us(j, "mte1"),
    "aic_mte2_time": lambda j, e: e.scale * pipe_us(j, "mte2"),
    "aiv_mte2_time": lambda j, e: e.scale * pipe_us(j, "mte2"),
    "aic_fixpipe_time": lambda j, e: e.scale * pipe_us(j, "fix"),
    "aiv_vec_time": lambda j, e: e.scale * pipe_us(j, "v"),
    "aic_total_cycles": lambda j, e: on_core_us(j, e) * len(j["cores"]) * j["mhz"],
    "aiv_total_cycles": lambda j, e: on_core_us(j, e) * len(j["cores"]) * j["mhz"],
    "l2_hit_rate": lambda j, e: 100 * j["l2_hit"],
    "read_bw": lambda j, e: j["gm_read_bytes"] / pipe_us(j, "mte2") * 1e-6,
    "rw_bw": lambda j, e: (j["gm_read_bytes"] + j["gm_write_bytes"]) / pipe_us(j, "mte2") * 1e-6,
    "TMATMUL_ratio": lambda j, e: ratio(j, "m"),
    "TEXTRACT_ratio": lambda j, e: ratio(j, "mte1"),
    "TLOAD_ratio": lambda j, e: ratio(j, "mte2"),
    "TSTORE_ratio": lambda j, e: ratio(j, "fix"),
    "ticks_50MHz_total": lambda j, e: e.scale * pipe_us(j, "v") * 50,
    "cycles": lambda j, e: pipe_us(j, "m") * j["mhz"],
    "profiled_cycles": lambda j, e: pipe_us(j, "v") * j["mhz"],
}
