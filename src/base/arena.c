/* arena.c - bump allocation by lifetime: chunks double in size, everything dies at once.
 * With TL_HARD defined, each allocation has a chunk of its own, so that the address sanitizer sees both of its ends,
 * and freed memory is poisoned first, so that a pointer kept too long shows. */
#include "base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ArenaChunk { ArenaChunk *next; size_t size; };

#ifdef TL_HARD
enum { FIRST_CHUNK = 1, LARGEST_CHUNK = 1 };
#else
enum { FIRST_CHUNK = 16 * 1024, LARGEST_CHUNK = 4 * 1024 * 1024 };
#endif

static void *host_alloc(const TlAlloc *host, void *old, size_t size) {
  if (host) return host->alloc(host->user, old, size);
  if (size) return realloc(old, size);
  free(old);
  return NULL;
}

void arena_init(Arena *a, const TlAlloc *host, jmp_buf *oom) {
  memset(a, 0, sizeof *a);
  a->host = host;
  a->oom = oom;
}

void arena_free(Arena *a) {
  for (ArenaChunk *c = a->chunks, *next; c; c = next) {
    next = c->next;
#ifdef TL_HARD
    memset(c + 1, 0xDD, c->size - sizeof *c);
#endif
    host_alloc(a->host, c, 0);
  }
  a->chunks = NULL;
  a->cur = a->end = NULL;
}

static void add_chunk(Arena *a, size_t need) {
  size_t size = a->chunks ? a->chunks->size * 2 : FIRST_CHUNK;
  if (size > LARGEST_CHUNK) size = LARGEST_CHUNK;
  if (size < need + sizeof(ArenaChunk)) size = need + sizeof(ArenaChunk);
  ArenaChunk *c = need < SIZE_MAX / 4 ? host_alloc(a->host, NULL, size) : NULL;
  if (!c) {
    if (a->oom) longjmp(*a->oom, 1);
    abort();
  }
  c->size = size;
  c->next = a->chunks;
  a->chunks = c;
  a->cur = (char *)(c + 1);
  a->end = (char *)c + size;
}

void *arena_alloc(Arena *a, size_t size, size_t align) {
  uintptr_t at = ((uintptr_t)a->cur + align - 1) & ~(uintptr_t)(align - 1);
  if (!a->cur || size > (uintptr_t)a->end - at || at > (uintptr_t)a->end) {
    add_chunk(a, size + align);
    at = ((uintptr_t)a->cur + align - 1) & ~(uintptr_t)(align - 1);
  }
  a->cur = (char *)at + size;
  return memset((void *)at, 0, size);
}

char *arena_strn(Arena *a, const char *s, size_t n) {
  char *p = arena_alloc(a, n + 1, 1);
  memcpy(p, s, n);
  return p;
}

char *arena_str(Arena *a, const char *s) { return arena_strn(a, s, strlen(s)); }

char *arena_vprintf(Arena *a, const char *fmt, va_list ap) {
  Text t;
  text_init(&t, a);
  text_vprintf(&t, fmt, ap);
  return (char *)text_str(&t);
}

char *arena_printf(Arena *a, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  char *s = arena_vprintf(a, fmt, ap);
  va_end(ap);
  return s;
}

void vec_grow(Arena *a, void **data, uint32_t len, uint32_t *cap, size_t elem) {
  if (len < *cap) return;
  uint32_t grown = *cap ? *cap * 2 : 8;
  void *p = arena_alloc(a, grown * elem, 16);
  if (len) memcpy(p, *data, len * elem);
  *data = p;
  *cap = grown;
}
