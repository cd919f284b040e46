"""torch.npu.NPUGraph: what runs between capture_begin and capture_end is kept and can be run again.

While a graph is captured the work is done on the spot, because shapes are only known from results; tensors that were
there before get their contents back at the end of the capture, so that, as on the card, capturing changes nothing.
A replay does every torch operation and every kernel again, on the same memory.
"""

import contextlib
import copy

_open = []  # graphs being captured, innermost last


class NPUGraph:
    def __init__(self, keep_graph=False):
        self.steps = []

    def capture_begin(self, pool=None, capture_error_mode=None):
        import torch

        self.steps, self.before, self.made = [], {}, set()
        self.mode = _recorder(torch)(self)
        self.mode.__enter__()
        _open.append(self)

    def capture_end(self):
        _open.remove(self)
        self.mode.__exit__(None, None, None)
        for tensor, old in self.before.values():
            tensor.copy_(old)
        self.before, self.made = {}, set()

    def replay(self):
        for step in self.steps:
            step()

    def reset(self):
        self.steps = []

    def pool(self):
        return (0, 0)

    # ---- capturing ----------------------------------------------------------------------------------------------

    def about_to_write(self, tensor):
        """Keeps the contents of a tensor that the graph did not make."""
        key = tensor.untyped_storage().data_ptr()
        if key not in self.made and key not in self.before and tensor.numel():
            whole = tensor.detach().as_strided(*_whole(tensor))
            self.before[key] = (whole, whole.clone())

    def made_new(self, tensor):
        key = tensor.untyped_storage().data_ptr()
        if key not in self.before:
            self.made.add(key)


def _whole(tensor):
    n = tensor.untyped_storage().nbytes() // tensor.element_size()
    return (n,), (1,), 0


def _recorder(torch):
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Recorder(TorchDispatchMode):
        def __init__(self, graph):
            super().__init__()
            self.graph = graph

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            graph = self.graph
            schema = func._schema
            for a, v in zip(schema.arguments, args):
                if a.alias_info is not None and a.alias_info.is_write and isinstance(v, torch.Tensor):
                    graph.about_to_write(v)
            out = func(*args, **kwargs)
            outs = [v for v in tree_leaves(out) if isinstance(v, torch.Tensor)]
            if schema.is_mutable:
                graph.steps.append(lambda: func(*args, **kwargs))
            elif any(r.alias_info is not None for r in schema.returns):
                pass  # a view: the memory is the same
            else:
                for v in outs:
                    graph.made_new(v)

                def again():
                    new = [v for v in tree_leaves(func(*args, **kwargs)) if isinstance(v, torch.Tensor)]
                    for old, v in zip(outs, new):
                        old.copy_(v)

                graph.steps.append(again)
            return out

    return Recorder


@contextlib.contextmanager
def graph(npu_graph, pool=None, stream=None, capture_error_mode=None, **kwargs):
    """`with torch.npu.graph(g):` captures into g."""
    npu_graph.capture_begin()
    try:
        yield npu_graph
    finally:
        npu_graph.capture_end()


def kernel_runs(kernel, run, env, views, scalars):
    """Called for each kernel that is launched."""
    for g in _open:
        for i, v in views.items():
            if i in kernel.written and v.kind == "torch":
                (g.made_new if kernel.params[i].role == "out" else g.about_to_write)(v.keep)
        views_now, scalars_now = copy.copy(views), dict(scalars)
        g.steps.append(lambda: run(kernel, env, views_now, scalars_now))
    run(kernel, env, views, scalars)
