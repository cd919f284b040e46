/* core.h - what the files of the model share; glue.cpp and the driver see twin.h alone. */
#ifndef TWIN_CORE_H
#define TWIN_CORE_H

#include "twin.h"

/* ---- order.c: faults, and the state of the core */
void twin_fault(const char *f, ...) __attribute__((format(printf, 1, 2)));
/* An operand must stand on a multiple of `to` bytes of the memory it is in; a setting must be from low to high. */
void twin_aligned(const char *instruction, const void *at, int to);
void twin_within(const char *instruction, const char *what, int64_t v, int64_t low, int64_t high);
/* Around what other cores must see as one; may be taken again inside. */
void twin_lock(void);
void twin_unlock(void);
/* Pipe p writes bytes. Writes that leave what is there need no order among each other. */
void twin_store(int p, char *d, const char *s, size_t bytes);

/* ---- numbers.c: an element at an address; of TW_I4 element i behind one. */
extern const int twin_size[TW_TYPES]; /* bytes */
static inline bool is_float(TwinType t) { return t <= TW_F32; }
double twin_get(TwinType t, const void *p);
int64_t twin_get_int(TwinType t, const void *p);
int twin_get_i4(const char *p, int i);
void twin_put_float(TwinType t, void *p, double v); /* rounded to nearest, ties to even */
void twin_put_int(TwinType t, void *p, int64_t v);  /* the low bytes */

/* ---- vector.c */
void twin_mask_begin(void); /* all lanes, nothing compared */

#endif
