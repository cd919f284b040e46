"""kernel.explain(): the memories over time, as text and as a drawing."""

import xml.etree.ElementTree as tree

import tilelang
import tilelang.language as T
from tilelang import occupancy


@tilelang.jit(out_idx=[-1])
def product(n):
    @T.prim_func
    def f(A: T.Tensor((n, n), "float16"), B: T.Tensor((n, n), "float16"), C: T.Tensor((n, n), "float16")):
        with T.Kernel(n // 64, n // 64) as (bx, by):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            half = T.alloc_fragment((64, 64), "float16")
            for k in T.Pipelined(n // 64, num_stages=2):
                T.copy(A[by * 64, k * 64], a)
                T.copy(B[k * 64, bx * 64], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(64, 64):
                half[i, j] = T.max(c[i, j], 0)
            T.copy(half, C[by * 64, bx * 64])

    return f


def test_boxes_are_where_the_planner_put_them():
    data = product(128).explain_json()
    found = {space: (used, available, boxes) for space, used, available, boxes in occupancy.memories(data)}
    assert set(found) == {"l1", "l0a", "l0b", "l0c", "ub"}
    for used, available, boxes in found.values():
        assert max(b.high for b in boxes) == used <= available
        for i, a in enumerate(boxes):  # two buffers never share a byte at the same time
            for b in boxes[i + 1 :]:
                assert a.high <= b.low or b.high <= a.low or a.end < b.begin or b.end < a.begin
    names = {b.name for b in found["l1"][2]}
    assert names == {"a", "b"}


def test_text():
    text = product(128).explain()
    at = text.index("occupancy over time")
    l1 = text[text.index("l1: ", at) : text.index("l0a: ", at)].splitlines()
    rows = [line for line in l1 if line.endswith("|")]
    assert len({len(r) for r in rows}) == 1 and rows[-1].split()[0] == "0"
    assert any("A" in r.split("|")[1] for r in rows) and any("B" in r.split("|")[1] for r in rows)
    assert any(line.startswith("  A a f16[2, 64, 64]: 16384 bytes at 0") for line in l1)
    assert text == product(128).explain()


def test_svg(tmp_path):
    kernel = product(128)
    file = tmp_path / "memories.svg"
    kernel.explain(svg=file)
    root = tree.fromstring(file.read_text())
    space = "{http://www.w3.org/2000/svg}"
    titles = [t.text for t in root.iter(f"{space}title")]
    boxes = sum(len(b) for *_, b in occupancy.memories(kernel.explain_json()))
    assert len(titles) == boxes and any(t.startswith("a f16[2, 64, 64]: 16384 bytes") for t in titles)
    width, height = float(root.get("width")), float(root.get("height"))
    for r in root.iter(f"{space}rect"):
        x, y, w, h = (float(r.get(k, 0)) for k in ("x", "y", "width", "height"))
        assert 0 <= x and 0 <= y and x + w <= width + 0.2 and y + h <= height + 0.2 and w > 0 and h > 0
    assert file.read_text() == occupancy.svg(product(128).explain_json())
