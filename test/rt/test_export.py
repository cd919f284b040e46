"""kernel.export and tlc build: files that a C program uses without tlc and without Python."""

import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

import tilelang
import tilelang.language as T


def kernel(**options):
    """Both kinds of core, a workspace, symbolic sizes, a scalar."""
    n = T.symbolic("n")

    @T.prim_func
    def product(A: T.Tensor((n, 64), "float16"), B: T.Tensor((64, 32), "float16"), C: T.Tensor((n, 32), "float32"),
                f: T.float32):
        with T.Kernel(T.ceildiv(n, 32)) as by:
            a = T.alloc_shared((32, 64), "float16")
            b = T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.copy(A[by * 32, 0], a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            for i, j in T.Parallel(32, 32):
                c[i, j] = T.max(c[i, j] * f, 0.0)
            T.copy(c, C[by * 32, 0])

    return tilelang.compile(product, out_idx=[2], **options)


def run(*args, cwd=None, env=None):
    p = subprocess.run([str(a) for a in args], cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert p.returncode == 0, p.stdout + p.stderr
    return p


@pytest.fixture
def toolkit(card, mock_acl):
    shutil.copy(pathlib.Path(__file__).parent / "acl/acl.h", card.cann_home / "include/acl/acl.h")
    return card


def numbers():
    rng = np.random.default_rng(0)
    return rng.standard_normal((70, 64)).astype(np.float16), rng.standard_normal((64, 32)).astype(np.float16)


def check_launcher(exe, folder, env):
    a, b = numbers()
    a.tofile(folder / "a.bin")
    b.tofile(folder / "b.bin")
    run(exe, "-d", 1, "n=70", "f=0.5", "A=a.bin", "B=b.bin", "-o", "C=c.bin", cwd=folder, env=env)
    got = np.fromfile(folder / "c.bin", np.float32).reshape(70, 32)
    assert np.array_equal(got, kernel(device="sim")(a, b, 0.5)) and got.any()
    p = subprocess.run([exe, "n=70", "f=1", "A=b.bin"], cwd=folder, env=env, capture_output=True, text=True)
    assert p.returncode == 2 and "A: b.bin does not give 8960 bytes" in p.stderr
    p = subprocess.run([exe, "n=70"], cwd=folder, env=env, capture_output=True, text=True)
    assert p.returncode == 2 and "give f=VALUE" in p.stderr
    p = subprocess.run([exe, "n=70", "f=1"], cwd=folder, env={**env, "MOCK_FAULT": "product_kernel"},
                       capture_output=True, text=True)
    assert p.returncode == 1 and "aclrtSynchronizeStream(stream) failed with 507015" in p.stderr


def test_the_artifact_builds_and_runs(toolkit, tmp_path):
    """By hand, with the compiler of the toolkit and cc."""
    folder = tmp_path / "art"
    assert kernel().export(folder) == folder
    home = toolkit.cann_home
    run(home / "bin/bisheng", f"-L{home}/lib64", "product.cpp", "-o", "libproduct.so", cwd=folder)
    run("cc", "-Wall", "-Wextra", "-Werror", f"-I{home}/include", "product_run.c", f"-L{home}/lib64", "./libproduct.so",
        "-lascendcl", "-o", "product_run", cwd=folder)
    check_launcher(folder / "product_run", folder, {**os.environ, "LD_LIBRARY_PATH": str(home / "lib64")})


def test_the_cmake_file(toolkit, tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("needs cmake")
    kernel().export(tmp_path / "art")
    run("cmake", "-S", tmp_path / "art", "-B", tmp_path / "b")
    run("cmake", "--build", tmp_path / "b")
    check_launcher(tmp_path / "b/product_run", tmp_path,
                   {**os.environ, "LD_LIBRARY_PATH": str(toolkit.cann_home / "lib64")})


def test_the_description_and_the_header(tmp_path):
    kernel().export(tmp_path / "one")
    kernel().export(tmp_path / "two")
    files = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert files == ["CMakeLists.txt", "product.cpp", "product.h", "product.json", "product.tl", "product_run.c"]
    for name in files:  # the same bytes, and no path of this machine
        text = (tmp_path / "one" / name).read_text()
        assert text == (tmp_path / "two" / name).read_text() and str(tmp_path) not in text
    for target in ("ascendc", "pto"):  # several kernels fit into one program
        source = (kernel().export(tmp_path / target, target) / "product.cpp").read_text()
        assert "static void call(" in source and 'extern "C" void call(' not in source
    d = json.loads((tmp_path / "one/product.json").read_text())
    assert (d["kernel"], d["chip"], d["target"], d["file"]) == ("product", "910B2", "ascendc", "test_export.py")
    params = {p["name"]: p for p in d["parameters"]}
    assert [p["role"] for p in d["parameters"]][:4] == ["tensor", "tensor", "out", "scalar"]
    assert params["A"]["shape"] == ["n", 64] and params["C"]["dtype"] == "f32" and params["n"]["type"] == "int64_t"
    work, = (p for p in d["parameters"] if p["role"] == "workspace")
    (tmp_path / "sizes.c").write_text(f"""
        #include "product.h"
        int main(void) {{
          return !(product_blocks(0.5f, 70) == 3 && product_bytes_A(0.5f, 70) == 70 * 64 * 2 &&
                   product_bytes_B(0.5f, 70) == 4096 && product_bytes_{work["name"]}(0.5f, 70) > 0);
        }}""")
    for compiler in ("cc", "c++"):
        run(compiler, "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{tmp_path}/one", tmp_path / "sizes.c", "-o",
            tmp_path / "sizes")
        run(tmp_path / "sizes")


def test_sizes_are_64_bits_wide(tmp_path):
    @T.prim_func
    def wide(A: T.Tensor((32768, 32768), "float32"), B: T.Tensor((32768, 32768), "float32")):
        with T.Kernel(32768) as bx:
            a = T.alloc_shared((1, 1024), "float32")
            T.copy(A[bx, 0], a)
            T.copy(a, B[bx, 0])

    tilelang.compile(wide).export(tmp_path)
    (tmp_path / "sizes.c").write_text('#include "wide.h"\nint main(void) { return wide_bytes_A() != 4294967296; }')
    run("cc", tmp_path / "sizes.c", "-o", tmp_path / "sizes")
    run(tmp_path / "sizes")


def test_names_of_the_launcher_are_free(toolkit, tmp_path):
    @T.prim_func
    def main(load: T.Tensor((64,), "float32"), argc: T.Tensor((64,), "float32"), file: T.float32, check: T.int32):
        with T.Kernel(1):
            a = T.alloc_shared((64,), "float32")
            T.copy(load, a)
            for i in T.Parallel(64):
                a[i] = a[i] * file
            T.copy(a, argc)

    tilelang.compile(main).export(tmp_path)
    run("cc", "-Wall", "-Wextra", "-Werror", "-c", f"-I{toolkit.cann_home}/include", "main_run.c", cwd=tmp_path)


def test_tlc_build(tlc, tmp_path):
    (tmp_path / "k.tl").write_text(kernel().ir())
    assert tlc("build", tmp_path / "k.tl", "-o", tmp_path / "art", "-t", "pto", "--chip", "910B3") == (0, "", "")
    d = json.loads((tmp_path / "art/product.json").read_text())
    assert (d["target"], d["chip"]) == ("pto", "910B3")
    status, _, err = tlc("build", tmp_path / "k.tl")
    assert status == 2 and "-o DIR" in err


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(tilelang.CompileError, match="TL1112.*Not a directory"):
        kernel().export(tmp_path / "file" / "art")
