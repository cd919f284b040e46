/* targets.c - the table of writers. */
#include "target.h"

#include <string.h>

static const Target *const targets[] = {&target_ascendc, &target_pto};

const Target *target_at(int i) { return i >= 0 && (size_t)i < TL_COUNT(targets) ? targets[i] : NULL; }

const Target *target_find(const char *name) {
  if (!name || !strcmp(name, "auto")) return targets[0];
  for (size_t i = 0; i < TL_COUNT(targets); i++)
    if (!strcmp(targets[i]->name, name)) return targets[i];
  return NULL;
}
