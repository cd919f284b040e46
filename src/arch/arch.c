/* arch.c - the .def tables as structs, and questions about them. A line missing from a family's table does not
 * compile. */
#include "arch.h"

#include <string.h>

const char *const arch_default_chip = "910B2";

enum {
#define SPACE_SIZE(space, b, ph, a, source) a2_##space##_bytes = b, a2_##space##_physical = ph, a2_##space##_align = a,
#define LIMIT(field, value, source) a2_##field = value,
#include "a2.def"
#undef SPACE_SIZE
#undef LIMIT
#define SPACE_SIZE(space, b, ph, a, source) a5_##space##_bytes = b, a5_##space##_physical = ph, a5_##space##_align = a,
#define LIMIT(field, value, source) a5_##field = value,
#include "a5.def"
#undef SPACE_SIZE
#undef LIMIT
};

_Static_assert((int)a2_n_flags == (int)IR_FLAGS && (int)a5_n_flags == (int)IR_FLAGS &&
                   (int)a2_n_cross_flags == (int)IR_CROSS_FLAGS && (int)a5_n_cross_flags == (int)IR_CROSS_FLAGS,
               "the language has the flags of the chips");

#define SIZES(F, space) [SPACE_##space] = {F##_##space##_bytes, F##_##space##_physical, F##_##space##_align}
#define FAMILY(F)                                                                                                 \
  .space = {SIZES(F, UB), SIZES(F, L1), SIZES(F, L0A), SIZES(F, L0B), SIZES(F, L0C), [SPACE_GM] = {0, 0, 1}},        \
  .n_flags = F##_n_flags, .n_cross_flags = F##_n_cross_flags, .cross_flag_max = F##_cross_flag_max,               \
  .repeat_bytes = F##_repeat_bytes, .max_repeat = F##_max_repeat, .max_mmad = F##_max_mmad,                       \
  .max_burst_rows = F##_max_burst_rows, .max_burst_bytes = F##_max_burst_bytes,                            \
  .select_scratch = F##_select_scratch, .select_scratch_bytes = F##_select_scratch_bytes,                         \
  .queue_depth = F##_queue_depth
#define FAMILY_a2 FAMILY(a2)
#define FAMILY_a3 FAMILY(a2)
#define FAMILY_a5 FAMILY(a5)

static const Arch chips[] = {
#define CHIP(nm, fam, dav, c, v, clock, l2, hbm, source)                                                           \
  {.name = nm, .family = #fam, .npu_arch = dav, .aic = c, .aiv = v, .mhz = clock, .l2_bytes = (int64_t)(l2) << 20, \
   .hbm_bytes = (int64_t)(hbm) << 30, FAMILY_##fam},
#include "chips.def"
#undef CHIP
};

const Arch *arch_at(int i) { return i >= 0 && (size_t)i < TL_COUNT(chips) ? &chips[i] : NULL; }

const Arch *arch_find(const char *chip) {
  if (!chip) chip = arch_default_chip;
  for (size_t i = 0; i < TL_COUNT(chips); i++)
    if (!strcmp(chips[i].name, chip)) return &chips[i];
  return NULL;
}

bool arch_can_cast(const Arch *a, DType dst, DType src) {
  static const bool a2[DTYPE_COUNT][DTYPE_COUNT] = {
#define CASTPAIR(d, s) [DT_##d][DT_##s] = true,
#include "a2.def"
#undef CASTPAIR
  };
  static const bool a5[DTYPE_COUNT][DTYPE_COUNT] = {
#define CASTPAIR(d, s) [DT_##d][DT_##s] = true,
#include "a5.def"
#undef CASTPAIR
  };
  return !strcmp(a->family, "a5") ? a5[dst][src] : a2[dst][src];
}

DType arch_product(const Arch *a, DType t) {
  static const DType a2[DTYPE_COUNT] = {
#define PRODUCT(t, acc, source) [DT_##t] = DT_##acc + 1,
#include "a2.def"
#undef PRODUCT
  };
  static const DType a5[DTYPE_COUNT] = {
#define PRODUCT(t, acc, source) [DT_##t] = DT_##acc + 1,
#include "a5.def"
#undef PRODUCT
  };
  DType found = (strcmp(a->family, "a5") ? a2 : a5)[t];
  return found ? (DType)(found - 1) : DTYPE_COUNT;
}

bool arch_has_dtype(const Arch *a, DTypeRule rule, DType t) {
  (void)a; /* A2, A3 and 950 agree for the dtypes we lower to */
  switch (rule) {
  case RULE_ARITH: return t == DT_F16 || t == DT_F32 || t == DT_I16 || t == DT_I32;
  case RULE_FLOAT:
  case RULE_SEL: return t == DT_F16 || t == DT_F32;
  case RULE_CMP:
  case RULE_RELU: return t == DT_F16 || t == DT_F32 || t == DT_I32;
  case RULE_INT: return t == DT_I16 || t == DT_I32 || t == DT_U16 || t == DT_U32;
  case RULE_BITS: return t == DT_I16 || t == DT_U16;
  case RULE_MOVED:
  case RULE_INDEX: return dtype_size(t) == 2 || dtype_size(t) == 4;
  case RULE_SCORE: return t == DT_F16 || t == DT_F32;
  default: return true;
  }
}
