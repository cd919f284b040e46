/* time.c - the tables a2_time.def and a5_time.def as structs, and the closed formulas of one instruction. */
#include "arch.h"

#include <string.h>

static const ArchTime a2_time = {
#define TIME(field, value, unit, source) .field = value,
#include "a2_time.def"
#undef TIME
};
static const ArchTime a5_time = {
#define TIME(field, value, unit, source) .field = value,
#include "a5_time.def"
#undef TIME
};

static const ArchCost a2_cost[] = {
#define COST(key, per16, per32, head, source) {#key, per16, per32, head},
#include "a2_time.def"
#undef COST
};
static const ArchCost a5_cost[] = {
#define COST(key, per16, per32, head, source) {#key, per16, per32, head},
#include "a5_time.def"
#undef COST
};

/* Both families name every field: a field that is missing in a5_time.def is 0 there, so count them. */
enum {
#define TIME(field, value, unit, source) +1
  N_A2 = 0
#include "a2_time.def"
  ,
  N_A5 = 0
#include "a5_time.def"
#undef TIME
};
_Static_assert(N_A2 == N_A5 && N_A2 == sizeof(ArchTime) / sizeof(double), "a time is missing in a table");

static const struct { const char *name; size_t at; } fields[] = {
#define TIME(field, value, unit, source) {#field, offsetof(ArchTime, field)},
#include "a2_time.def"
#undef TIME
};

static bool is_a5(const Arch *a) { return !strcmp(a->family, "a5"); }

/* HBM bandwidth goes with the number of stacks: a part with half the memory has half of it. */
ArchTime arch_time(const Arch *a) {
  ArchTime t = is_a5(a) ? a5_time : a2_time;
  if (!is_a5(a)) t.hbm_gbps *= (double)a->hbm_bytes / (double)((int64_t)64 << 30);
  return t;
}

const ArchCost *arch_cost(const Arch *a, const char *key) {
  const ArchCost *list = is_a5(a) ? a5_cost : a2_cost;
  size_t n = is_a5(a) ? TL_COUNT(a5_cost) : TL_COUNT(a2_cost);
  for (size_t i = 0; i < n; i++)
    if (!strcmp(list[i].key, key)) return &list[i];
  return NULL;
}

const char *arch_time_name(int i) { return i >= 0 && (size_t)i < TL_COUNT(fields) ? fields[i].name : NULL; }

double *arch_time_field(ArchTime *t, const char *name) {
  for (size_t i = 0; i < TL_COUNT(fields); i++)
    if (!strcmp(fields[i].name, name)) return (double *)(void *)((char *)t + fields[i].at);
  return NULL;
}

double arch_launch_ns(const ArchTime *t, int64_t cores) { return t->launch_ns + t->core_ns * (double)cores; }

double arch_fetch_ns(const ArchTime *t, int64_t pairs) { return t->fetch_ns * (double)pairs; }

/* Fractals: 16x16x16 of 16 bits, 16x16x32 of 8 bits and 16x16x64 of 4 bits take a cycle,
 * 16x16x8 of 32 bits mmad_f32 cycles. */
double arch_mmad_cycles(const ArchTime *t, DType type, int64_t m, int64_t n, int64_t k) {
  int64_t k0 = 32 / dtype_size(type);
  double each = dtype_size(type) == 4 ? t->mmad_f32 : 1;
  return t->mmad_head + (double)(ceil_div(m, 16) * ceil_div(n, 16) * ceil_div(k, k0)) * each;
}

double arch_mmad_rate(const ArchTime *t, DType type) {
  return 2.0 * 16 * 16 * (32 / dtype_size(type)) * dtype_values(type) / (dtype_size(type) == 4 ? t->mmad_f32 : 1);
}

double arch_vector_rate(const Arch *a, DType type) { return (double)a->repeat_bytes / dtype_size(type); }

double arch_vector_cycles(const ArchCost *c, int64_t repeats, int size, double more_per_repeat) {
  return c->head + (double)repeats * ((size > 2 ? c->per32 : c->per16) + more_per_repeat);
}

double arch_inner_cycles(const ArchTime *t, int op, int64_t count, int size) {
  double bytes = (double)count * size;
  switch (op) {
  case OP_L1_TO_L0A: return t->l0_head + bytes / t->l0a_bus;
  case OP_L1_TO_L0B: return t->l0_head + bytes / t->l0b_bus;
  case OP_L0C_TO_L1: return t->fix_head + (double)count / t->fix_l1_elems;
  case OP_L1_FILL: return t->dma_head + bytes / t->l1_fill_bus;
  default: return 1;
  }
}

double arch_dma_cycles(double bus, double row_cycles, int64_t rows, int64_t row_bytes) {
  double n = (double)row_bytes / bus;
  return (double)rows * (n > row_cycles ? n : row_cycles);
}
