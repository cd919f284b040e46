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

/* A parameter of `call`, the host entry of what a writer writes. */
typedef struct {
  const IrParam *param;
  int index;                 /* in the IR's order */
  const char *name, *type;   /* C identifier and type */
  const char **extent;       /* tensors: their sizes, C expressions of the scalars' names with 64 bits; else NULL */
  const char *elements;      /* tensors: the product */
} LaunchParam;
/* The parameters in the order of `call`, and the number of blocks as a C expression; -1: a size cannot be written. */
int target_launch(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, LaunchParam **out, const char **blocks);

extern const Target target_ascendc, target_pto;

#endif
