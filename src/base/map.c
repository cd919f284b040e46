/* map.c - open-addressed hash map from text to a number; grows at half full, never shrinks. */
#include "base.h"

#include <string.h>

static uint32_t hash_text(const char *s, size_t n) { /* FNV-1a */
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
  return h;
}

static MapSlot *find(const Map *m, const char *key, size_t len) {
  for (uint32_t i = hash_text(key, len);; i++) {
    MapSlot *s = &m->slots[i & (m->cap - 1)];
    if (!s->key || (s->len == len && !memcmp(s->key, key, len))) return s;
  }
}

uint32_t map_get(const Map *m, const char *key, size_t len) { return m->cap ? find(m, key, len)->value : 0; }

void map_set(Arena *a, Map *m, const char *key, size_t len, uint32_t value) {
  if (m->count * 2 >= m->cap) {
    Map big = {arena_array(a, MapSlot, m->cap ? m->cap * 2 : 64), m->cap ? m->cap * 2 : 64, m->count};
    for (uint32_t i = 0; i < m->cap; i++)
      if (m->slots[i].key) *find(&big, m->slots[i].key, m->slots[i].len) = m->slots[i];
    *m = big;
  }
  MapSlot *s = find(m, key, len);
  if (!s->key) m->count++;
  *s = (MapSlot){key, (uint32_t)len, value};
}
