"""T.im2col: rows of a convolution's windows, so that a convolution is a matrix product."""

from ..errors import fail
from ..frontend.builder import current
from ..frontend.expr import binary, describe, value_of, wrap
from ..frontend.hooks import If
from .loops import serial
from .ops import copy, fill, region_of


def _when(cond, then, otherwise):
    """`if cond: then() else: otherwise()` of the chip."""
    test = If(cond, None)
    if test.then():
        then()
    if test.orelse():
        otherwise()
    test.end()


def im2col(img, col, nhw_step, c_step, kernel, stride, dilation, pad):
    """col[r, c] := element c_step * columns + c of the window of output pixel nhw_step * rows + r; zero outside.

    img is (n, height, width, channels); a window is kernel x kernel x channels, channels fastest; pixels are counted
    over (n, out height, out width). channels and the columns of col divide one another.
    """
    what = "T.im2col"
    b = current(what)
    n, height, width, channels = img.shape
    rows, columns = region_of(col, what).ext[-2:]
    kernel, stride, dilation, pad = (value_of(v) for v in (kernel, stride, dilation, pad))
    numbers = (channels, rows, columns, kernel, stride, dilation, pad)
    if not all(isinstance(v, int) for v in numbers) or (channels % columns and columns % channels):
        fail(
            1002,
            f"{what} of {describe(img)} into {describe(col)}: the channels and the columns must divide one another",
            fix="choose block_K so that one divides the other",
        )
    out_h = (height + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    out_w = (width + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    step = min(columns, channels)  # columns that belong to one pixel of the window
    for r in serial(rows):
        pixel = b.let("pixel", wrap(nhw_step) * rows + r)
        for part in range(columns // step):
            at = c_step * columns + part * step
            tap, c0 = at // channels, at % channels
            y = pixel // out_w % out_h * stride + tap // kernel * dilation - pad
            x = pixel % out_w * stride + tap % kernel * dilation - pad
            y, x = b.let("y", wrap(y)), b.let("x", wrap(x))
            inside = [y >= 0, y < height, x >= 0, x < width, pixel < n * out_h * out_w, wrap(tap) < kernel * kernel]
            cond = inside[0]
            for test in inside[1:]:
                cond = binary("&&", cond, test)
            to = col[r, part * step : (part + 1) * step]
            _when(
                cond,
                lambda: copy(img[pixel // (out_h * out_w), y, x, c0 : c0 + step], to),
                lambda: fill(to, 0),
            )


c2d_im2col = im2col

__all__ = ["c2d_im2col", "im2col"]
