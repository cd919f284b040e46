"""The debugging methods of a Kernel and of a function under @tilelang.jit; what they need is loaded when one is called.
See docs/debugging.md."""


class Debugging:
    """interpret, compare, bisect, numerics, reproduce: of a Kernel, or of a function that is called with tensors."""

    def _called(self, args, kwargs):
        """(the Kernel of a call, its arguments, those by name)."""
        return self, args, kwargs

    def interpret(self, *args, **kwargs):
        """Runs the program as written, statement by statement with numpy, and returns what a call returns: a second
        opinion that shares neither the passes nor the simulator with it."""
        from .interpret import interpret_kernel

        return interpret_kernel(self, args, kwargs)

    def compare(self, *args, ref=None, rtol=None, atol=None, **kwargs):
        """Where the results of a call differ from `ref` - arrays, or a function of the arguments; left out: the
        interpreter's results. Gives a Comparison: printable, true when all agree; `save(path)` writes a heat map.
        Tensors of the caller are not written. `rtol`, `atol`: what counts as equal; left out: by dtype."""
        from .call import Call
        from .compare import asked, compare

        return compare(Call(*self._called(args, kwargs)), asked(ref, args), rtol, atol)

    def bisect(self, *args, rtol=None, **kwargs):
        """The first pass after which the numbers change by more than rounding (`rtol` of the largest value): a
        Bisection with the IR before and after it. Tensors of the caller are not written."""
        from .bisect import bisect
        from .call import Call

        return bisect(Call(*self._called(args, kwargs)), rtol)

    def numerics(self, *args, **kwargs):
        """Statements whose results overflow, underflow or become NaN with these arguments, and sums that are kept in
        fewer bits than what they are written to. Tensors of the caller are not written."""
        from .call import Call
        from .numerics import numerics

        return numerics(Call(*self._called(args, kwargs)))

    def reproduce(self, path, *args, launch=None, **kwargs):
        """Runs a call and writes IR, arguments, options, versions and the outcome to one file: `tlc replay FILE`.
        `launch`: which of several, from 1; left out: the first that fails, or the last."""
        from .call import Call
        from .reproduce import reproduce

        return reproduce(Call(*self._called(args, kwargs)), path, launch)


NAMES = tuple(n for n in vars(Debugging) if not n.startswith("_"))
