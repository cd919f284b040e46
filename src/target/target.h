/* target.h - writers of C++ for the chip from the lowered IR. */
#ifndef TL_TARGET_H
#define TL_TARGET_H

#include "../arch/arch.h"

typedef struct {
  const char *name; /* "ascendc", "pto" */
  bool (*emit)(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, Text *out);
} Target;

const Target *target_find(const char *name); /* "auto" = "ascendc"; NULL: unknown */
const Target *target_at(int i);

extern const Target target_ascendc, target_pto;

#endif
