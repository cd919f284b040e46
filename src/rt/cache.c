/* cache.c - from C++ source to a shared library in the cache of built kernels.
 *
 * The cache (cache_dir):
 *   built/KEY/     kernel.so, kernel.cpp, kernel.tl, command, SHA256SUMS - there as a whole or not at all
 *   failed/KEY/    the same without kernel.so, and `log`: what the compiler said
 *   tmp/           where a build works; locks/XX files to lock, one for all keys that begin with XX; compilers/
 * KEY is the SHA-256 of everything that goes in: the source without its comments, the compiler's version, the command
 * line (chip, target and flags are in it). A build locks its key, looks again, works in a directory of its own below
 * tmp and renames that to built/KEY; the lock dies with the process, and what a killed process left in tmp is removed
 * by the next one that gets the lock. A hit takes no lock: it compares the digests of the files, for disks lose bytes,
 * and marks the directory as used now; what is not as it was built is told and built again. After a build the least
 * recently used entries go until the rest fits cache_bytes. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "rt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const Loc nowhere = {0, 0, 0};

const char *rt_cache_dir(Arena *a) {
  const char *dir = rt_env("TILELANG_CACHE_DIR"), *base = rt_env("XDG_CACHE_HOME"), *home = rt_env("HOME");
  if (dir) return dir;
  if (base) return arena_printf(a, "%s/tilelang", base);
  return home ? arena_printf(a, "%s/.cache/tilelang", home) : NULL;
}

static bool cannot(Diags *d, const char *path) {
  Diag *g = diag_add(d, DIAG_RT_CACHE, nowhere, "%s: %s", path, strerror(errno));
  diag_fix(d, g, "make it writable, or name another directory in TILELANG_CACHE_DIR");
  return false;
}

/* Makes the directories and the path absolute: the program may go elsewhere while a kernel lives. */
static bool prepare(Arena *a, Diags *d, Build *b) {
  static const char *const parts[] = {"built", "failed", "tmp", "locks", "compilers"};
  char here[4096];
  if (!b->cache_dir) {
    Diag *g = diag_add(d, DIAG_RT_CACHE, nowhere, "there is no home directory to keep built kernels in");
    diag_fix(d, g, "name a directory in TILELANG_CACHE_DIR");
    return false;
  }
  if (b->cache_dir[0] != '/' && getcwd(here, sizeof here))
    b->cache_dir = arena_printf(a, "%s/%s", here, b->cache_dir);
  for (size_t i = 0; i < TL_COUNT(parts); i++) {
    const char *path = arena_printf(a, "%s/%s", b->cache_dir, parts[i]);
    if (!rt_make_dirs(a, path)) return cannot(d, path);
  }
  return true;
}

/* ---- locks ----------------------------------------------------------------------------------------------------- */

int rt_try_lock(Arena *a, const char *cache, const char *key) {
  int fd = open(arena_printf(a, "%s/locks/%.2s", cache, key), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0 || !flock(fd, LOCK_EX | LOCK_NB)) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

void rt_unlock(int fd) {
  if (fd < 0) return;
  flock(fd, LOCK_UN); /* a process forked meanwhile may hold a copy of the descriptor */
  close(fd);
}

static int lock(Arena *a, Diags *d, const Build *b, const char *key) {
  for (long pause = 1000000;; pause = pause < 50000000 ? pause * 2 : pause) {
    int fd = rt_try_lock(a, b->cache_dir, key);
    if (fd >= 0) return fd;
    if (errno != EWOULDBLOCK && errno != EINTR) {
      cannot(d, arena_printf(a, "%s/locks/%.2s", b->cache_dir, key));
      return -1;
    }
    if (b->go_on && !b->go_on(b->user)) {
      diag_add(d, DIAG_RT_STOPPED, nowhere, "waiting for another build of %s was interrupted", b->name);
      return -1;
    }
    nanosleep(&(struct timespec){0, pause}, NULL);
  }
}

/* ---- entries --------------------------------------------------------------------------------------------------- */

static const char *const kept_files[] = {"kernel.so", "kernel.cpp", "kernel.tl", "command"};
#define SUMS "SHA256SUMS"

/* `digest  name`, as sha256sum has it; NULL: the file cannot be read. */
static const char *sum(Arena *a, const char *dir, const char *name) {
  size_t len = 0;
  const char *data = rt_read(a, arena_printf(a, "%s/%s", dir, name), &len);
  return data ? arena_printf(a, "%s  %s\n", rt_sha256(a, data, len), name) : NULL;
}

/* The library of an entry that is whole; NULL: there is none, or *wrong is the file that is not as it was built. */
static const char *entry(Arena *a, const char *cache, const char *key, const char **wrong) {
  const char *dir = arena_printf(a, "%s/built/%s", cache, key);
  const char *then = rt_read(a, arena_printf(a, "%s/" SUMS, dir), NULL);
  size_t len = 0;
  *wrong = then ? NULL : SUMS;
  for (size_t i = 0; i < TL_COUNT(kept_files) && !*wrong; i++) {
    const char *now = sum(a, dir, kept_files[i]);
    if (!now || !strstr(then, now)) *wrong = kept_files[i];
    else len += strlen(now);
  }
  if (!*wrong && strlen(then) != len) *wrong = SUMS;
  if (!*wrong) return arena_printf(a, "%s/kernel.so", dir);
  if (!rt_exists(dir)) *wrong = NULL; /* it is not there, or somebody drops it now */
  return NULL;
}

static const char *found(Arena *a, const char *cache, const char *key, const char **wrong) {
  const char *library = entry(a, cache, key, wrong);
  if (library) utimensat(AT_FDCWD, arena_printf(a, "%s/built/%s", cache, key), NULL, 0);
  return library;
}

typedef struct { const char *path, *key; int64_t bytes; struct timespec used; } Entry;
typedef Vec(Entry) Entries;

static void list(Arena *a, const char *dir, Entries *out) {
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));) {
    struct stat st;
    const char *path = arena_printf(a, "%s/%s", dir, e->d_name);
    if (e->d_name[0] == '.' || stat(path, &st)) continue;
    Entry x = {path, arena_str(a, e->d_name), 0, st.st_mtim};
    DIR *inner = opendir(path);
    for (struct dirent *f; inner && (f = readdir(inner));)
      if (f->d_name[0] != '.' && !stat(arena_printf(a, "%s/%s", path, f->d_name), &st)) x.bytes += st.st_size;
    if (inner) closedir(inner);
    vec_push(a, out, x);
  }
  if (d) closedir(d);
}

static int by_use(const void *x, const void *y) {
  const Entry *a = x, *b = y;
  if (a->used.tv_sec != b->used.tv_sec) return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
  if (a->used.tv_nsec != b->used.tv_nsec) return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
  return strcmp(a->key, b->key);
}

/* Out of the way at once, then bit by bit: a reader sees the whole entry or none. */
static void drop(Arena *a, const char *cache, const char *path, const char *key) {
  const char *away = arena_printf(a, "%s/tmp/%s-dropped-%ld", cache, key, (long)getpid());
  rt_remove_tree(a, away);
  rt_remove_tree(a, rename(path, away) ? path : away);
}

/* What processes that are gone left in tmp: nobody holds the lock of its key. */
static void sweep(Arena *a, const char *cache) {
  Entries left = {0};
  list(a, arena_printf(a, "%s/tmp", cache), &left);
  for (uint32_t i = 0; i < left.len; i++) {
    const Entry *e = &left.data[i];
    int fd = rt_try_lock(a, cache, e->key);
    if (fd < 0) continue;
    rt_remove_tree(a, e->path);
    rt_unlock(fd);
  }
}

static void evict(Arena *a, const Build *b, const char *keep) {
  int fd = rt_try_lock(a, b->cache_dir, "evict");
  if (fd < 0) return; /* somebody is at it */
  sweep(a, b->cache_dir);
  Entries all = {0};
  list(a, arena_printf(a, "%s/built", b->cache_dir), &all);
  list(a, arena_printf(a, "%s/failed", b->cache_dir), &all);
  int64_t total = 0;
  for (uint32_t i = 0; i < all.len; i++) total += all.data[i].bytes;
  if (all.len) qsort(all.data, all.len, sizeof *all.data, by_use);
  for (uint32_t i = 0; i < all.len && total > b->cache_bytes; i++) {
    if (!strcmp(all.data[i].key, keep)) continue;
    drop(a, b->cache_dir, all.data[i].path, all.data[i].key);
    total -= all.data[i].bytes;
  }
  rt_unlock(fd);
}

/* ---- building -------------------------------------------------------------------------------------------------- */

/* The source without `//` comments: they say where a statement comes from, which does not change what is built. */
static const char *without_comments(Arena *a, const char *source) {
  Text t;
  text_init(&t, a);
  for (const char *s = source; *s;) {
    size_t n = strcspn(s, "\n"), code = n, blank = strspn(s, " ");
    if (!strncmp(s + blank, "//", 2)) code = 0;
    text_putn(&t, s, code);
    text_put(&t, "\n");
    s += n + (s[n] != 0);
  }
  return text_str(&t);
}

static const char *key_of(Arena *a, const Build *b, const Compiler *c, char **command) {
  Text t;
  text_init(&t, a);
  text_printf(&t, "%s\n", c->version);
  for (char **w = command; *w; w++) text_printf(&t, "%s\n", *w);
  text_put(&t, without_comments(a, b->source));
  const char *text = text_str(&t);
  return rt_sha256(a, text, t.len);
}

static bool write_inputs(Arena *a, Diags *d, const Build *b, const char *dir, char **command) {
  Text t;
  text_init(&t, a);
  for (char **w = command; *w; w++) text_printf(&t, "%s%s", w == command ? "" : " ", *w);
  text_put(&t, "\n");
  const struct { const char *name, *text; } files[] = {
      {"kernel.cpp", b->source}, {"kernel.tl", b->ir}, {"command", text_str(&t)}};
  for (size_t i = 0; i < TL_COUNT(files); i++) {
    const char *path = arena_printf(a, "%s/%s", dir, files[i].name);
    if (!rt_write(path, files[i].text, strlen(files[i].text))) return cannot(d, path);
  }
  return true;
}

static const char *last_lines(Arena *a, const char *log, int n) {
  size_t len = log ? strlen(log) : 0;
  while (len && log[len - 1] == '\n') len--;
  size_t from = len;
  while (from && n) {
    from--;
    if (log[from] == '\n' && !--n) from++;
    if (!n) break;
  }
  return len ? arena_strn(a, log + from, len - from) : "nothing";
}

static void say_failed(Arena *a, Diags *d, const Build *b, RunEnd end, int code, const char *kept, Built *out) {
  const char *log = rt_read(a, arena_printf(a, "%s/log", kept), NULL);
  Diag *g;
  if (end == RUN_EXITED && code) out->messages = rt_messages(a, log);
  if (out->messages.len) return; /* the caller knows the lines */
  switch (end) {
  case RUN_TIMEOUT:
    g = diag_add(d, DIAG_RT_COMPILER_TIME, nowhere, "%s worked on %s for %d seconds and was stopped", out->compiler,
                 b->name, b->seconds);
    diag_fix(d, g, "smaller tiles or fewer unrolled loops make less code; TILELANG_BUILD_SECONDS allows more time");
    return;
  case RUN_STOPPED: diag_add(d, DIAG_RT_STOPPED, nowhere, "building %s was interrupted", b->name); return;
  case RUN_NOT_STARTED:
    g = diag_add(d, DIAG_RT_COMPILER_FAILED, nowhere, "%s does not start: %s", out->compiler, strerror(code));
    diag_fix(d, g, "run `tlc doctor`");
    return;
  case RUN_KILLED:
    g = diag_add(d, DIAG_RT_COMPILER_FAILED, nowhere, "%s was killed by signal %d while it built %s%s", out->compiler,
                 code, b->name, code == 9 ? " (out of memory?)" : "");
    break;
  default:
    g = diag_add(d, DIAG_RT_COMPILER_FAILED, nowhere, "%s %s %s; it said: %s", out->compiler,
                 code ? arena_printf(a, "ended with status %d for", code) : "made no library of", b->name,
                 last_lines(a, log, 8));
  }
  diag_fix(d, g, "source, command and log are in %s", kept);
}

/* With the lock of `key` held: builds in a directory of its own and puts it where it belongs. */
static const char *build(Arena *a, Diags *d, const Build *b, const char *key, char **command, Built *out) {
  const char *dir = arena_printf(a, "%s/tmp/%s-%ld", b->cache_dir, key, (long)getpid());
  rt_remove_tree(a, dir);
  if (!rt_make_dirs(a, dir)) return cannot(d, dir), NULL;
  const char *log = arena_printf(a, "%s/log", dir), *library = arena_printf(a, "%s/kernel.so", dir);
  Run r = {.argv = command, .dir = dir, .log = log, .seconds = b->seconds, .go_on = b->go_on, .user = b->user};
  int code = 0;
  struct stat st;
  if (!write_inputs(a, d, b, dir, command)) return rt_remove_tree(a, dir), NULL;
  RunEnd end = rt_run(&r, &code);
  bool ok = end == RUN_EXITED && !code && !stat(library, &st) && st.st_size;
  if (ok) {
    Text t;
    text_init(&t, a);
    for (size_t i = 0; i < TL_COUNT(kept_files); i++) text_put(&t, sum(a, dir, kept_files[i]));
    const char *file = arena_printf(a, "%s/" SUMS, dir), *sums = text_str(&t);
    if (!rt_write(file, sums, strlen(sums))) return cannot(d, file), rt_remove_tree(a, dir), NULL;
    unlink(log);
  }
  const char *home = arena_printf(a, "%s/%s/%s", b->cache_dir, ok ? "built" : "failed", key);
  if (rt_exists(home)) drop(a, b->cache_dir, home, key);
  if (rename(dir, home)) return cannot(d, home), rt_remove_tree(a, dir), NULL;
  out->kept = home;
  if (!ok) return say_failed(a, d, b, end, code, home, out), NULL;
  return arena_printf(a, "%s/kernel.so", home);
}

bool rt_build(Arena *a, Diags *d, const Build *asked, Built *out) {
  Build copy = *asked, *b = &copy;
  *out = (Built){0};
  Toolkit kit = rt_toolkit(a, "");
  if (!kit.compiler) {
    Diag *g = diag_add(d, DIAG_RT_NO_TOOLKIT, nowhere, "%s: there is no CANN toolkit to build it with (%s)", b->name,
                       !kit.home ? "ASCEND_HOME_PATH is not set, no bisheng on PATH"
                                 : arena_printf(a, "no bisheng in %s", kit.home));
    diag_fix(d, g, RT_NO_CARD_FIX);
    return false;
  }
  out->compiler = kit.compiler;
  if (!prepare(a, d, b)) return false;
  Compiler c;
  if (!rt_compiler(a, &kit, b, &c)) {
    Diag *g = diag_add(d, DIAG_RT_COMPILER_FAILED, nowhere, "%s --version fails", kit.compiler);
    diag_fix(d, g, "run `tlc doctor`: is it made for this machine, and is the toolkit's set_env.sh sourced?");
    return false;
  }
  if (c.damaged)
    diag_add(d, DIAG_RT_CACHE_DAMAGED, nowhere, "%s is not as it was written; %s is asked again", c.damaged,
             kit.compiler);
  char **command = rt_command(a, &c, b);
  out->key = key_of(a, b, &c, command);
  const char *wrong = NULL;
  if (!b->fresh && (out->library = found(a, b->cache_dir, out->key, &wrong))) return out->cached = true;
  int fd = lock(a, d, b, out->key);
  if (fd < 0) return false;
  if (!b->fresh) out->library = found(a, b->cache_dir, out->key, &wrong); /* built while we waited */
  out->cached = out->library != NULL;
  if (wrong)
    diag_add(d, DIAG_RT_CACHE_DAMAGED, nowhere, "%s/built/%s/%s is not as it was built; %s is built again",
             b->cache_dir, out->key, wrong, b->name);
  if (!out->library) out->library = build(a, d, b, out->key, command, out);
  rt_unlock(fd);
  if (!out->cached) evict(a, b, out->key);
  return out->library != NULL;
}
