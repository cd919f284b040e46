"""Tools that find out why a kernel computes what it computes: see docs/debugging.md."""
