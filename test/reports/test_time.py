"""Reports about time: what the clock of the simulated chip says (`tlc sim --time`; it needs no data)."""

import json

import pytest

import tilelang.language as T


@pytest.fixture
def clock(tlc, tmp_path):
    """clock(prim_func) -> what `tlc sim --time --json` says of it."""

    def ask(func):
        (tmp_path / "k.tl").write_text(func.script())
        status, out, err = tlc("sim", "--time", "--json", "k.tl", cwd=tmp_path)
        assert status == 0, err
        return json.loads(out)

    return ask


def rows_of_exp(stages, trips):
    @T.prim_func
    def f(X: T.Tensor((trips, 4096), "float16"), Y: T.Tensor((trips, 4096), "float16")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((4096,), "float16")
            y = T.alloc_shared((4096,), "float16")
            for k in T.Pipelined(trips, num_stages=stages):
                T.copy(X[k, :], x)
                T.tile.exp(y, x)
                T.copy(y, Y[k, :])

    return f


def test_R067_a_start_across_two_lines_reads_both(clock):
    def load(offset):
        @T.prim_func
        def f(X: T.Tensor((4096,), "float16"), Y: T.Tensor((100,), "float16")):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((100,), "float16")
                T.copy(X[offset : offset + 100], x)
                T.copy(x, Y)

        return clock(f)

    inside, across = load(0), load(255)
    assert inside["gm_read_bytes"] == across["gm_read_bytes"] == 200
    assert across["l2_miss_bytes"] > inside["l2_miss_bytes"]


def test_R133_the_pipe_that_bounds_a_loop_is_named(clock):
    serial, overlapped = clock(rows_of_exp(0, 64)), clock(rows_of_exp(2, 64))
    assert overlapped["us"] < 0.7 * serial["us"]
    busy = {p["pipe"]: p["busy_us"] for p in overlapped["pipes"]}
    assert max(busy, key=busy.get) in ("mte2", "mte3", "v") and {"s", "v", "mte2", "mte3"} <= set(busy)


def test_R135_copies_run_under_the_computation(clock):
    r = clock(rows_of_exp(2, 64))
    busy = sum(p["busy_us"] for p in r["pipes"] if p["pipe"] in ("v", "mte2", "mte3"))
    assert r["us"] < 0.95 * busy


def test_R137_one_instruction_for_a_whole_tile(clock):
    @T.prim_func
    def f(X: T.Tensor((64, 64), "float32"), Y: T.Tensor((64, 64), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64, 64), "float32")
            T.copy(X, x)
            T.tile.add(x, x, 1.0)
            T.copy(x, Y)

    r = clock(f)
    assert [s["count"] for s in r["statements"] if s["pipe"] == "v" and s["text"].startswith("add")] == [1]


def test_R138_the_cost_of_a_launch_is_told_apart(clock):
    @T.prim_func
    def f(Y: T.Tensor((8,), "float32")):
        with T.Kernel(1) as bx:
            y = T.alloc_ub((8,), "float32")
            T.tile.fill(y, 1.0)
            T.copy(y, Y)

    r = clock(f)
    start = r["cores"][0]["start_us"]
    assert 0 < start < r["us"] and start > 0.5 * r["us"]
