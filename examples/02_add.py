"""Vector add and axpy: 1-D with a tail, 2-D, several dtypes."""

import ml_dtypes
import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def vector_add(n, dtype, block=4096):
    @T.prim_func
    def add(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block)) as bx:
            a = T.alloc_shared((block,), dtype)
            b = T.alloc_shared((block,), dtype)
            T.copy(A[bx * block], a)  # reads past the end of A are clamped
            T.copy(B[bx * block], b)
            for i in T.Parallel(block):
                a[i] = a[i] + b[i]
            T.copy(a, C[bx * block])

    return add


@tilelang.jit(out_idx=[-1])
def axpy(m, n, rows=16, cols=128):
    @T.prim_func
    def axpy_2d(
        alpha: T.float32, X: T.Tensor((m, n), "float32"), Y: T.Tensor((m, n), "float32"), Z: T.Tensor((m, n), "float32")
    ):
        with T.Kernel(T.ceildiv(n, cols), T.ceildiv(m, rows)) as (bx, by):
            x = T.alloc_shared((rows, cols), "float32")
            y = T.alloc_shared((rows, cols), "float32")
            T.copy(X[by * rows, bx * cols], x)
            T.copy(Y[by * rows, bx * cols], y)
            for i, j in T.Parallel(rows, cols):
                y[i, j] = alpha * x[i, j] + y[i, j]
            T.copy(y, Z[by * rows, bx * cols])

    return axpy_2d


def main():
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float16", "bfloat16", "int32"):
        np_dtype = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
        a, b = ((rng.standard_normal(10007) * 100).astype(np_dtype) for _ in range(2))
        np.testing.assert_array_equal(vector_add(10007, dtype)(a, b), a + b)
        print(f"add {dtype}: exact")
    x, y = (rng.standard_normal((77, 333), dtype=np.float32) for _ in range(2))
    z = axpy(77, 333)(2.5, x, y)
    print(f"axpy 77 x 333: maximum error {np.abs(z - (np.float32(2.5) * x + y)).max():.1e}")
    np.testing.assert_allclose(z, np.float32(2.5) * x + y, rtol=1e-6)
    print("Kernel Output Match!")


if __name__ == "__main__":
    main()
