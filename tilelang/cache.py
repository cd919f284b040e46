"""The cache of compiled kernels: in memory, one dict a process."""

_kernels = {}
_enabled = True


def clear_cache():
    """Forgets every compiled kernel."""
    _kernels.clear()


def enable_cache():
    global _enabled
    _enabled = True


def disable_cache():
    global _enabled
    _enabled = False


def lookup(key, make):
    """The kernel under `key`, made if it is not there."""
    if not _enabled:
        return make()
    found = _kernels.get(key)
    if found is None:
        found = _kernels[key] = make()
    return found
