"""Tensors for trying kernels out, and comparing results."""

from ..profiler import TensorSupplyType, make_tensor


def torch_assert_close(tensor_a, tensor_b, rtol=1e-2, atol=1e-3, max_mismatched_ratio=0.001, verbose=False,
                       equal_nan=True, check_dtype=True, base_name="LHS", ref_name="RHS", **ignored):  # fmt: skip
    """AssertionError when more than `max_mismatched_ratio` of the elements are further apart than
    atol + rtol * |tensor_b|."""
    import torch

    if tensor_a.shape != tensor_b.shape or (check_dtype and tensor_a.dtype != tensor_b.dtype):
        raise AssertionError(
            f"{base_name} is {tensor_a.dtype} {tuple(tensor_a.shape)},"
            f" {ref_name} is {tensor_b.dtype} {tuple(tensor_b.shape)}"
        )
    kind = torch.promote_types(tensor_a.dtype, tensor_b.dtype) if tensor_a.dtype.itemsize > 1 else torch.float32
    a, b = tensor_a.to(kind), tensor_b.to(kind)
    bad = ~torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    count, allowed = int(bad.sum()), int(bad.numel() * max_mismatched_ratio)
    if verbose:
        print(f"{count} of {bad.numel()} elements differ (allowed: {allowed})")
    if count > allowed:
        at = tuple(int(i) for i in bad.nonzero()[0])
        raise AssertionError(
            f"{count} of {bad.numel()} elements differ, {allowed} may; the first at {at}: {base_name} {a[at].item()},"
            f" {ref_name} {b[at].item()}"
        )
    return True


def get_tensor_supply(supply_type=TensorSupplyType.Integer):
    """A function that makes a torch tensor for a parameter of a kernel."""
    return lambda param: make_tensor(param.shape, param.dtype, supply_type, 0, "torch")


__all__ = ["TensorSupplyType", "get_tensor_supply", "make_tensor", "torch_assert_close"]
