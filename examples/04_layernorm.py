"""Layer norm over rows: reductions, broadcast inside T.Parallel."""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def layer_norm(M, N, rows=8, eps=1e-5):
    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"),
        G: T.Tensor((N,), "float32"),
        B: T.Tensor((N,), "float32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, rows)) as bx:
            x = T.alloc_shared((rows, N), "float32")
            square = T.alloc_shared((rows, N), "float32")
            gain = T.alloc_shared((N,), "float32")
            bias = T.alloc_shared((N,), "float32")
            mean = T.alloc_shared((rows,), "float32")
            scale = T.alloc_shared((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            T.copy(G, gain)
            T.copy(B, bias)
            T.reduce_sum(x, mean, dim=1)
            T.tile.mul(mean, mean, 1.0 / N)
            for i, j in T.Parallel(rows, N):
                x[i, j] = x[i, j] - mean[i]
            T.tile.mul(square, x, x)
            T.reduce_sum(square, scale, dim=1)
            for i in T.Parallel(rows):
                scale[i] = 1.0 / T.sqrt(scale[i] * (1.0 / N) + eps)
            for i, j in T.Parallel(rows, N):
                x[i, j] = x[i, j] * scale[i] * gain[j] + bias[j]
            T.copy(x, Y[bx * rows, 0])

    return main


def main():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 768), dtype=np.float32) * 2 + 1
    g, b = rng.standard_normal(768, dtype=np.float32), rng.standard_normal(768, dtype=np.float32)
    y = layer_norm(300, 768)(x, g, b)
    d = x - x.mean(axis=1, keepdims=True)
    expected = d / np.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-5) * g + b
    print(f"layer norm 300 x 768: maximum error {np.abs(y - expected).max():.1e}")
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    print("Kernel Output Match!")


if __name__ == "__main__":
    main()
