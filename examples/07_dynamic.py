"""One compile, any number of rows: a symbolic size read from the tensor at every call."""

import numpy as np

import tilelang
import tilelang.language as T

N = 256


@tilelang.jit(out_idx=[-1])
def scale_rows(rows=32):
    M = T.symbolic("M")

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, rows)) as bx:
            x = T.alloc_shared((rows, N), "float32")
            T.copy(X[bx * rows, 0], x)
            for i, j in T.Parallel(rows, N):
                x[i, j] = x[i, j] * 2.0 + 1.0
            T.copy(x, Y[bx * rows, 0])

    return main


def main():
    kernel = scale_rows()
    for rows in (1, 7, 64, 1000):
        x = np.random.default_rng(rows).standard_normal((rows, N), dtype=np.float32)
        y = kernel(x)
        np.testing.assert_allclose(y, x * 2 + 1, rtol=1e-6)
        print(f"{rows:5d} rows: {kernel.last_run['blocks']} blocks")
    print("Kernel Output Match!")


if __name__ == "__main__":
    main()
