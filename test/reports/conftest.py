"""What the tests of user reports share. Each test is named by the id of a report of docs/user-reports.md and holds the
small reproduction that the report leads to: right numbers, or the message that a user needs."""

import numpy as np
import pytest

import tilelang
from tilelang import CompileError


@pytest.fixture
def fails():
    """fails(make) -> the errors that `make` raises."""

    def check(make, code=None, *words):
        with pytest.raises(CompileError) as caught:
            make()
        found = caught.value.errors
        if code is not None:
            assert code in [d.code for d in found], str(caught.value)
            text = str(caught.value)
            for w in words:
                assert w in text, text
        assert all(d.file == make.__code__.co_filename and d.line > 0 for d in found), str(caught.value)
        return found

    return check


@pytest.fixture
def run():
    """run(prim_func, *tensors, out_idx=None, **options) -> what the compiled kernel gives."""

    def call(func, *args, out_idx=-1, **options):
        return tilelang.compile(func, out_idx=out_idx, **options)(*args)

    return call


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def agree():
    """agree(got, want, rel=...): equal within a relative error of the largest value."""

    def check(got, want, rel=0.0):
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        assert got.shape == want.shape
        worst = np.abs(got - want).max() if got.size else 0.0
        assert worst <= rel * max(np.abs(want).max() if want.size else 0.0, 1e-30) or (rel == 0 and worst == 0), worst

    return check
