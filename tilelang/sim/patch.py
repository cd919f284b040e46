"""Replacing attributes of other modules, and putting them back in reverse order."""

import importlib.machinery
import sys

_ABSENT = object()


class Patches:
    """Every change goes through `set` or `module`; `undo` takes all of them back."""

    def __init__(self):
        self.done = []

    def set(self, owner, name, value):
        """owner.name = value; returns what was there, or None."""
        old = owner.__dict__.get(name, _ABSENT) if hasattr(owner, "__dict__") else getattr(owner, name, _ABSENT)
        setattr(owner, name, value)
        self.done.append((owner, name, old))
        return None if old is _ABSENT else old

    def wrap(self, owner, name, make):
        """owner.name = make(owner.name), if there is such a name."""
        old = getattr(owner, name, None)
        if old is not None:
            self.set(owner, name, make(old))

    def module(self, name, module):
        """`import name` gives `module`."""
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        self.done.append((sys.modules, name, sys.modules.get(name, _ABSENT)))
        sys.modules[name] = module

    def undo(self):
        while self.done:
            owner, name, old = self.done.pop()
            if owner is sys.modules:
                if old is _ABSENT:
                    owner.pop(name, None)
                else:
                    owner[name] = old
            elif old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
