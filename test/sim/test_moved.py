"""Instructions that move and sort elements, against numpy, and what they refuse."""

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_numbers import F16, F32, I16, I32, kernel, numbers, same, sim, vector  # noqa: E402

U16, U32 = np.uint16, np.uint32
ANY = pytest.mark.parametrize("dtype", [F32, F16, I32, I16, U16, U32], ids=lambda t: t.__name__)
SCORES = pytest.mark.parametrize("dtype", [F32, F16], ids=lambda t: t.__name__)


@ANY
def test_gather(tlc, tmp_path, dtype):
    a = numbers(dtype, 512)
    at = np.random.default_rng(1).integers(0, 500, 100).astype(U32)
    got = vector(tlc, tmp_path, f"gather %a, %b, {8 * a.itemsize} -> %r", dtype, at.shape, a, at * U32(a.itemsize))
    same(got, a[at + 8])


@ANY
def test_gather_blocks(tlc, tmp_path, dtype):
    a = numbers(dtype, 512)
    blocks = a.reshape(-1, 32 // a.itemsize)
    at = np.random.default_rng(2).integers(0, len(blocks), 16).astype(U32)
    same(vector(tlc, tmp_path, "gatherb %a, %b -> %r", dtype, blocks[at].shape, a, at * U32(32)), blocks[at])


@ANY
@pytest.mark.parametrize(
    "pattern, chosen", [(1, np.s_[::2]), (2, np.s_[1::2]), (4, np.s_[1::4]), (6, np.s_[3::4]), (7, np.s_[:])]
)
def test_gather_pattern(tlc, tmp_path, dtype, pattern, chosen):
    a = numbers(dtype, 203)
    same(vector(tlc, tmp_path, f"gather_mask %a, {pattern} -> %r", dtype, a[chosen].shape, a), a[chosen])


@SCORES
def test_gather_bits(tlc, tmp_path, dtype):
    """The result holds what is chosen, no more; the test asks for exactly that."""
    a = numbers(dtype, 128)
    bits = np.random.default_rng(3).integers(0, 2, 128, np.uint8)
    tile = np.packbits(bits, bitorder="little").view(U32 if dtype is F32 else U16)
    same(vector(tlc, tmp_path, "gather_mask %a, %b -> %r", dtype, (int(bits.sum()),), a, tile), a[bits == 1])


@ANY
@pytest.mark.parametrize("shape", [(16, 16), (48, 32), (16, 64)])
def test_transpose(tlc, tmp_path, dtype, shape):
    a = numbers(dtype, shape[0] * shape[1]).reshape(shape)
    same(vector(tlc, tmp_path, "transpose %a -> %r", dtype, shape[::-1], a), np.ascontiguousarray(a.T))


# ---- sorting --------------------------------------------------------------------------------------------------------


def records(score, index):
    """Records of 8 bytes: the score first, the index in the upper half."""
    out = np.zeros((len(score), 8), np.uint8)
    out[:, : score.itemsize] = score.view(np.uint8).reshape(len(score), -1)
    out[:, 4:] = index.astype(U32).view(np.uint8).reshape(len(score), 4)
    return out.reshape(-1).view(score.dtype)


def scores(dtype, n, seed=0):
    """With equal ones, and zeros of both signs."""
    x = np.random.default_rng(seed).integers(-20, 20, n).astype(dtype)
    x[:2] = [0.0, -0.0]
    return x


def order(x):
    return np.argsort(-x.astype(np.float64), kind="stable")


def bits(a):
    return a.view(np.uint8)


@SCORES
def test_sort32(tlc, tmp_path, dtype):
    a, index = scores(dtype, 96), np.random.default_rng(4).integers(0, 2**32, 96).astype(U32)
    want = np.concatenate([records(a[g:][:32][o], index[g:][:32][o]) for g in (0, 32, 64) for o in [order(a[g:][:32])]])
    got = vector(tlc, tmp_path, "sort32 %a, %b -> %r", dtype, want.shape, a, index)
    same(bits(got), bits(want))


@SCORES
@pytest.mark.parametrize("lengths", [(40, 24), (8, 3, 31), (32, 32, 32, 5)])
def test_merge(tlc, tmp_path, dtype, lengths):
    lists = [np.sort(scores(dtype, n, n))[::-1].copy() for n in lengths]
    parts = [records(x, np.arange(len(x)) + 1000 * k) for k, x in enumerate(lists)]
    size = 8 // np.dtype(dtype).itemsize
    want = np.concatenate(parts).reshape(-1, size)[order(np.concatenate(lists))].reshape(-1)
    ops = ", ".join(f"%{n}" for n in "abcd"[: len(parts)])
    got = vector(tlc, tmp_path, f"merge{len(parts)} {ops} -> %r", dtype, want.shape, *parts)
    same(bits(got), bits(want))


def test_nan_is_the_largest(tlc, tmp_path):
    a = np.arange(32, dtype=F32)
    a[7] = np.nan
    got = vector(tlc, tmp_path, "sort32 %a, %b -> %r", F32, (64,), a, np.arange(32, dtype=U32))
    assert np.isnan(got[0]) and got.view(U32)[1] == 7 and got[2] == 31


@SCORES
@pytest.mark.parametrize("op, place", [("row_argmax", np.argmax), ("row_argmin", np.argmin)])
def test_place_in_row(tlc, tmp_path, dtype, op, place):
    a = scores(dtype, 6 * 32).reshape(6, 32)
    got = vector(tlc, tmp_path, f"{op} %a -> %r", dtype, (12,), a)
    at = place(a, axis=1)
    same(got[0::2], a[np.arange(6), at])
    np.testing.assert_array_equal(got.view(U32 if dtype is F32 else U16)[1::2], at)


# ---- what is refused ------------------------------------------------------------------------------------------------


def refused(tlc, tmp_path, op, allocs, code, *, fills=()):
    text = kernel([], "\n".join(allocs), [*fills, "barrier all", op])
    (tmp_path / "k.tl").write_text("tl 1\n" + text)
    status, _, err = tlc("sim", "k.tl", cwd=tmp_path)
    assert status == 1 and f" TL{code:04d}: " in err, err
    return err


A, B, C = "alloc %a: ub f32[64] at 0", "alloc %b: ub u32[8] at 256", "alloc %c: ub f32[8] at 288"
FILLS = ("fill 1.0 -> %a", "fill 0 -> %b")


def test_offset_outside(tlc, tmp_path):
    err = refused(tlc, tmp_path, "gather %a, %b, 256 -> %c", [A, B, C], 801, fills=FILLS)
    assert "offset 0 of %b is byte 256 of %a, which has 256 bytes" in err


def test_offset_between_elements(tlc, tmp_path):
    assert "in items of 4" in refused(tlc, tmp_path, "gather %a, %b, 2 -> %c", [A, B, C], 801, fills=FILLS)


def test_offsets_that_nothing_wrote(tlc, tmp_path):
    refused(tlc, tmp_path, "gather %a, %b, 0 -> %c", [A, B, C], 802, fills=FILLS[:1])


def test_gather_in_place(tlc, tmp_path):
    gather = "gather %a, %b, 0 -> %a[%i * 8 +: 8]"  # where it is not seen before the run
    refused(tlc, tmp_path, f"for %i in 0..1 {{\n{gather}\n}}", [A, B], 804, fills=FILLS)


def test_more_chosen_than_room(tlc, tmp_path):
    allocs = [A, "alloc %m: ub u32[8] at 256", C]
    refused(tlc, tmp_path, "gather_mask %a, %m -> %c", allocs, 804, fills=(FILLS[0], "fill u32(4294967295) -> %m"))


def test_what_is_not_chosen_is_not_read(tlc, tmp_path):
    """Only the first half of each row was written; the pattern leaves the rest out."""
    text = kernel(
        ["%C: gm f32[16] out"],
        "alloc %a: ub f32[4, 8] at 0\nalloc %m: ub u32[1] at 128\nalloc %r: ub f32[16] at 160",
        ["fill 1.0 -> %a[0 +: 4, 0 +: 4]", "fill u32(252645135) -> %m", "barrier all", "gather_mask %a, %m -> %r"]
        + ["barrier all", "ub_to_gm %r -> %C"],
    )
    same(sim(tlc, tmp_path, text), np.ones(16, F32))
    (tmp_path / "k.tl").write_text("tl 1\n" + text.replace("252645135", "252645136"))
    status, _, err = tlc("sim", "--out", "C=out.npy", "k.tl", cwd=tmp_path)
    assert status == 1 and " TL0802: " in err, err
