"""The cache of compiled kernels: in memory, one dict a process. What was built for a card is kept on disk besides, by
content, in $TILELANG_CACHE_DIR or ~/.cache/tilelang (src/rt/cache.c)."""

_kernels = {}
_enabled = True


def clear_cache():
    """Forgets every compiled kernel."""
    _kernels.clear()


def enable_cache():
    global _enabled
    _enabled = True


def disable_cache():
    """Every kernel is compiled anew, and built anew for cards."""
    global _enabled
    _enabled = False


def enabled():
    return _enabled


def lookup(key, make):
    """The kernel under `key`, made if it is not there."""
    if not _enabled:
        return make()
    found = _kernels.get(key)
    if found is None:
        found = _kernels[key] = make()
    return found
