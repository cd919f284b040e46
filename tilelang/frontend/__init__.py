"""Python functions to IR text: expr (values), builder (statements), rewrite, hooks (control flow), trace (kernels)."""
