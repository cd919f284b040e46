"""The operators of torch_npu that programs compare with, in plain torch, after their public documentation.

Each computes in float32 (or float64) and rounds once to the dtype of its result. `torch_npu.<name>` and
`torch.ops.npu.<name>` are the same function. An operator that is not here is an error by name.
"""

import math
import types

OPERATORS = {}


def operator(fn):
    OPERATORS[fn.__name__] = fn
    return fn


def _float(x):
    import torch

    return x if x.dtype in (torch.float32, torch.float64) else x.float()


# ---- activations ---------------------------------------------------------------------------------------------


@operator
def npu_swiglu(self, dim=-1):
    """The first half, through silu, times the second half."""
    import torch

    a, b = _float(self).chunk(2, dim)
    return (torch.nn.functional.silu(a) * b).to(self.dtype)


@operator
def npu_swiglu_backward(grad_output, self, dim=-1):
    import torch

    a, b = _float(self).chunk(2, dim)
    # the operator reads as much as the half needs, one element after the other, whatever the shape
    g = _float(grad_output).reshape(-1)[: a.numel()].view(a.shape)
    s = torch.sigmoid(a)
    return torch.cat([g * b * (s + a * s * (1 - s)), g * a * s], dim).to(self.dtype)


@operator
def npu_gelu(self, approximate="none"):
    import torch

    return torch.nn.functional.gelu(_float(self), approximate=approximate).to(self.dtype)


@operator
def npu_gelu_backward(grad, self, approximate="none"):
    import torch

    return torch.ops.aten.gelu_backward(_float(grad), _float(self), approximate=approximate).to(self.dtype)


@operator
def npu_fast_gelu(self):
    """x / (1 + exp(-1.702 |x|)) * exp(0.851 (x - |x|))."""
    import torch

    x = _float(self)
    return (x / (1 + torch.exp(-1.702 * x.abs())) * torch.exp(0.851 * (x - x.abs()))).to(self.dtype)


# ---- norms, positions, softmax -------------------------------------------------------------------------------


@operator
def npu_rms_norm(self, gamma, epsilon=1e-6):
    """(normed and scaled, 1 / rms)."""
    import torch

    x = _float(self)
    r = torch.rsqrt(x.square().mean(tuple(range(x.dim() - gamma.dim(), x.dim())), keepdim=True) + epsilon)
    return (x * r * _float(gamma)).to(self.dtype), r


@operator
def npu_add_rms_norm(x1, x2, gamma, epsilon=1e-6):
    """(normed sum, 1 / rms, sum)."""
    total = (_float(x1) + _float(x2)).to(x1.dtype)
    y, r = npu_rms_norm(total, gamma, epsilon)
    return y, r, total


@operator
def npu_rotary_mul(input, r1, r2, rotary_mode="half"):
    """x * r1 + rotate(x) * r2; "half" turns the two halves, "interleave" neighbours."""
    import torch

    x = _float(input)
    if rotary_mode == "interleave":
        turned = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    elif rotary_mode == "half":
        a, b = x.chunk(2, -1)
        turned = torch.cat([-b, a], -1)
    else:
        raise NotImplementedError(f"npu_rotary_mul: rotary_mode={rotary_mode!r}")
    return (x * _float(r1) + turned * _float(r2)).to(input.dtype)


@operator
def npu_scaled_masked_softmax(x, mask, scale=1.0, fixed_triu_mask=False):
    import torch

    v = _float(x) * scale
    if fixed_triu_mask:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(v.masked_fill(mask.bool(), -10000.0), -1).to(x.dtype)


@operator
def npu_cross_entropy_loss(input, target, weight=None, reduction="mean", ignore_index=-100, label_smoothing=0.0,
                           lse_square_scale_for_zloss=0.0, return_zloss=False):  # fmt: skip
    """(loss, log_prob, zloss, lse_for_zloss)."""
    import torch

    x = _float(input)
    log_prob = torch.log_softmax(x, -1)
    loss = torch.nn.functional.cross_entropy(
        x,
        target.long(),
        None if weight is None else _float(weight),
        None,
        ignore_index,
        None,
        reduction,
        label_smoothing,
    )
    lse = torch.logsumexp(x, -1)
    zloss = lse.square() * lse_square_scale_for_zloss if return_zloss else torch.zeros(())
    return loss.to(input.dtype), log_prob.to(input.dtype), zloss, lse if return_zloss else torch.zeros(())


# ---- experts -------------------------------------------------------------------------------------------------


@operator
def npu_moe_token_permute(tokens, indices, num_out_tokens=None, padded_mode=False):
    """(tokens in the order of their experts, where each token went)."""
    import torch

    if padded_mode:
        raise NotImplementedError("npu_moe_token_permute: padded_mode=True")
    flat = indices.reshape(-1)
    topk = 1 if indices.dim() == 1 else indices.shape[1]
    order = torch.argsort(flat, stable=True)
    places = torch.argsort(order, stable=True).to(torch.int32)
    n = flat.numel() if not num_out_tokens else num_out_tokens if num_out_tokens > 0 else flat.numel() + num_out_tokens
    return tokens.index_select(0, order[: min(n, flat.numel())] // topk), places


@operator
def npu_moe_token_unpermute(permuted_tokens, sorted_indices, probs=None, padded_mode=False, restore_shape=None):
    """Tokens back in their own order, those of one token weighted and summed."""
    import torch

    if padded_mode:
        raise NotImplementedError("npu_moe_token_unpermute: padded_mode=True")
    topk = 1 if probs is None else probs.shape[1]
    x, at = permuted_tokens, sorted_indices.long()
    inside = at < x.shape[0]
    rows = x.index_select(0, torch.where(inside, at, 0)) * inside.unsqueeze(-1).to(x.dtype)
    rows = rows.reshape(-1, topk, x.shape[-1])
    if probs is not None:
        rows = (_float(rows) * _float(probs).unsqueeze(-1)).sum(1)
    else:
        rows = _float(rows).sum(1)
    return rows.to(x.dtype)


# ---- attention -----------------------------------------------------------------------------------------------


def _window(torch, sparse_mode, sq, sk, pre, following):
    """True where a query does not see a key."""
    i, j = torch.arange(sq).unsqueeze(1), torch.arange(sk).unsqueeze(0)
    if sparse_mode == 0:
        return (j > i + following) | (j < i - pre)
    if sparse_mode == 2:
        return j > i
    if sparse_mode == 3:
        return j > i + sk - sq
    if sparse_mode == 4:
        return (j > i + sk - sq + following) | (j < i + sk - sq - pre)
    return torch.zeros(sq, sk, dtype=torch.bool)


def _to_bnsd(x, layout, heads):
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    if layout == "BSH":
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)
    if layout == "SBH":
        return x.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
    raise NotImplementedError(f"attention: input_layout={layout!r}")


def _from_bnsd(x, layout):
    if layout == "BSND":
        return x.transpose(1, 2).contiguous()
    if layout == "BSH":
        return x.transpose(1, 2).flatten(-2).contiguous()
    if layout == "SBH":
        return x.permute(2, 0, 1, 3).flatten(-2).contiguous()
    return x


@operator
def npu_fusion_attention(query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None,
scale=1.0,
                         keep_prob=1.0, pre_tockens=2147483647, next_tockens=2147483647, inner_precise=0, prefix=None,
                         actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True,
                         sync=False):  # fmt: skip
    """(attention, row maxima, row sums, -, seed, offset, -)."""
    import torch

    if keep_prob != 1.0 or prefix is not None or actual_seq_qlen is not None:
        raise NotImplementedError("npu_fusion_attention: dropout, prefix and packed sequences")
    kv_heads = key.shape[1] if input_layout == "BNSD" else key.shape[2] if input_layout == "BSND" else None
    if kv_heads is None:
        size = query.shape[-1] // head_num
        kv_heads = key.shape[-1] // size
    q = _to_bnsd(query, input_layout, head_num)
    k, v = (_to_bnsd(t, input_layout, kv_heads) for t in (key, value))
    shape = (*q.shape[:3], k.shape[2])
    hidden = _window(torch, sparse_mode, *shape[2:], pre_tockens, next_tockens)
    if atten_mask is not None and sparse_mode in (0, 1):
        hidden = hidden | atten_mask.bool()
    hidden = hidden.expand(shape)
    top, total = (torch.empty(*q.shape[:3], 1) for _ in range(2))
    out = torch.empty(*q.shape[:3], v.shape[-1], dtype=query.dtype)
    for i in range(shape[0] * shape[1]):  # one head at a time: the scores of all are gigabytes
        at, kv = (i // shape[1], i % shape[1]), (i // shape[1], i % shape[1] * kv_heads // head_num)
        s = (_float(q[at]) @ _float(k[kv]).T).mul_(scale)
        if pse is not None:
            s += _float(pse.expand(shape)[at])
        s.masked_fill_(hidden[at], -math.inf)
        top[at] = s.amax(-1, keepdim=True)
        s.sub_(top[at].masked_fill(top[at] == -math.inf, 0.0)).exp_()
        total[at] = s.sum(-1, keepdim=True)
        out[at] = (s @ _float(v[kv]) / total[at].masked_fill(total[at] == 0, 1.0)).to(query.dtype)
    rows = tuple(t.expand(*t.shape[:-1], 8) for t in (top, total))  # one 32-byte block a row
    return (_from_bnsd(out, input_layout), *rows, torch.zeros(0), 0, 0, 0)


def _pages(cache, table, length):
    """Rows 0..length of one sequence of a paged cache, [length, heads, size]."""
    block = cache.shape[1]
    pages = table[: -(-length // block)].long()
    return cache.index_select(0, pages).flatten(0, 1)[:length]


@operator
def npu_sparse_flash_attention(query, key, value, sparse_indices, scale_value, sparse_block_size=1, block_table=None,
                               actual_seq_lengths_query=None, actual_seq_lengths_kv=None, query_rope=None,
                               key_rope=None,
                               layout_query="BSND", layout_kv="BSND", sparse_mode=3, attention_mode=2,
                               **kwargs):  # fmt: skip
    """Attention over the keys that sparse_indices names; one key head. (out, row maxima, row sums)."""
    import torch

    if sparse_block_size != 1:
        raise NotImplementedError(f"npu_sparse_flash_attention: sparse_block_size={sparse_block_size}")
    q = torch.cat([query, query_rope], -1) if query_rope is not None else query
    k = torch.cat([key, key_rope], -1) if key_rope is not None else key
    packed = layout_query == "TND"
    ends = actual_seq_lengths_query.tolist() if packed else None
    batches = len(ends) if packed else q.shape[0]
    out = torch.zeros(*q.shape[:-1], value.shape[-1], dtype=torch.float32)
    for b in range(batches):
        at = slice(ends[b - 1] if b else 0, ends[b]) if packed else b
        n = int(actual_seq_lengths_kv[b]) if actual_seq_lengths_kv is not None else k.shape[1]
        if layout_kv == "PA_BSND":
            keys, values = (_float(_pages(t, block_table[b], n)) for t in (k, value))
        else:
            keys, values = _float(k[b][:n]), _float(value[b][:n])
        queries, chosen = _float(q[at]), sparse_indices[at].long()
        rows = queries.shape[0]
        group = queries.shape[1] // keys.shape[1]
        for r in range(rows):
            last = n - rows + r + 1 if sparse_mode == 3 else n
            for h in range(keys.shape[1]):
                pick = chosen[r, h]
                pick = pick[(pick >= 0) & (pick < last)]
                heads = slice(h * group, (h + 1) * group)
                p = torch.softmax(queries[r, heads] @ keys[pick, h].T * scale_value, -1)
                out[at][r, heads] = p @ values[pick, h]
    return out.to(query.dtype), None, None


# ---- the two ways to reach them ------------------------------------------------------------------------------


def _missing(name):
    raise AttributeError(
        f"torch_npu.{name} has no counterpart in the simulated host; it has {', '.join(sorted(OPERATORS))}"
    )


def make_torch_npu(npu):
    """The module torch_npu."""
    m = types.ModuleType("torch_npu", "The part of torch_npu that programs compare with, on host memory.")
    m.__dict__.update(OPERATORS)
    m.npu = npu
    m.__version__ = "2.6.0"
    m.__getattr__ = _module_getattr
    return m


def _module_getattr(name):
    if name.startswith("__"):
        raise AttributeError(name)
    _missing(name)


class Namespace:
    """torch.ops.npu."""

    def __getattr__(self, name):
        found = OPERATORS.get(name)
        return found if found is not None else _missing(name)
