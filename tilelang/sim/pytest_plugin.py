"""Loaded by pytest under `python -m tilelang.sim -m pytest`, also in the processes it starts."""

from . import install

install()
