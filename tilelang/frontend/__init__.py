"""Tracing of Python functions into IR text: expr (values), builder (statements), rewrite and hooks (Python's control flow)."""
