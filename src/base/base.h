/* base.h - what every other folder stands on: memory, text, tables, diagnostics. Knows no compilers.
 *
 * Memory: an Arena grows by bump allocation and dies whole. When the host allocator returns NULL the arena
 * jumps to its `oom` buffer, which src/api sets at each public entry; code above never tests for NULL, and
 * nothing leaks because nothing outlives its arena. */
#ifndef TL_BASE_H
#define TL_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TL_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define TL_APART __attribute__((noinline)) /* what a hot function seldom calls: it needs no registers for that */
#define TL_INLINE inline __attribute__((always_inline)) /* made for each constant that a caller passes */
#else
#define TL_PRINTF(f, a)
#define TL_APART
#define TL_INLINE inline
#endif

#define TL_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- arena ---------------------------------------------------------------------------------------- */

typedef struct {
  void *(*alloc)(void *user, void *old, size_t size); /* realloc semantics; size 0 frees */
  void *user;
} TlAlloc;

typedef struct ArenaChunk ArenaChunk;
typedef struct {
  const TlAlloc *host; /* NULL: the C library's realloc */
  ArenaChunk *chunks;
  char *cur, *end;
  jmp_buf *oom; /* where an allocation that the host refuses goes; NULL: abort() */
} Arena;

void arena_init(Arena *a, const TlAlloc *host, jmp_buf *oom);
void arena_free(Arena *a);                               /* frees everything; the arena can be used again */
void *arena_alloc(Arena *a, size_t size, size_t align);  /* zeroed */
char *arena_strn(Arena *a, const char *s, size_t n);     /* NUL-terminated copy */
char *arena_str(Arena *a, const char *s);
char *arena_printf(Arena *a, const char *fmt, ...) TL_PRINTF(2, 3);
char *arena_vprintf(Arena *a, const char *fmt, va_list ap);
#define arena_new(a, T) ((T *)arena_alloc((a), sizeof(T), _Alignof(T)))
#define arena_array(a, T, n) ((T *)arena_alloc((a), sizeof(T) * (size_t)(n), _Alignof(T)))

/* ---- growable array: Vec(T) v = {0}; vec_push(arena, &v, x); v.data[i], v.len ------------------------ */

#define Vec(T) struct { T *data; uint32_t len, cap; }
#define vec_push(a, v, x)                                                                              \
  (vec_grow((a), (void **)&(v)->data, (v)->len, &(v)->cap, sizeof(*(v)->data)), (v)->data[(v)->len++] = (x))
void vec_grow(Arena *a, void **data, uint32_t len, uint32_t *cap, size_t elem);

/* ---- map from text to a 32-bit value (0 is "absent") -------------------------------------------------- */

typedef struct { const char *key; uint32_t len, value; } MapSlot;
typedef struct { MapSlot *slots; uint32_t cap, count; } Map;
uint32_t map_get(const Map *m, const char *key, size_t len);
void map_set(Arena *a, Map *m, const char *key, size_t len, uint32_t value); /* key must outlive the map */

/* ---- text builder ------------------------------------------------------------------------------------ */

typedef struct { Arena *arena; char *data; size_t len, cap; } Text;
void text_init(Text *t, Arena *a);
void text_put(Text *t, const char *s);
void text_putn(Text *t, const char *s, size_t n);
void text_printf(Text *t, const char *fmt, ...) TL_PRINTF(2, 3);
void text_vprintf(Text *t, const char *fmt, va_list ap);
void text_double(Text *t, double v);           /* shortest decimal that reads back as v; "inf" "-inf" "nan" */
const char *text_str(Text *t);                 /* NUL-terminated; "" when nothing was written */
void text_json(Text *t, const char *s);        /* s as a quoted JSON string */

/* ---- diagnostics ------------------------------------------------------------------------------------- */

/* A place: file 0 is the .tl text itself, 1.. are the `file` lines of the module (Python sources). */
typedef struct { uint32_t line; uint16_t col, file; } Loc;

typedef enum { SEV_NOTE, SEV_WARNING, SEV_ERROR } Severity;

typedef enum {
#define DIAG(id, number, severity, title) DIAG_##id,
#include "diag.def"
#undef DIAG
  DIAG_COUNT
} DiagCode;

/* One diagnostic: a sentence about one place, at most one second place, at most one thing to change. */
typedef struct {
  DiagCode code;
  Severity severity;
  Loc loc;
  const char *text;       /* what is wrong: names, bytes asked and there */
  Loc other;              /* line 0: none */
  const char *other_text; /* what stands at the second place */
  const char *fix;        /* the smallest change that cures it, or NULL */
} Diag;

typedef struct { Arena *arena; Vec(Diag) list; uint32_t n_errors; uint32_t limit; } Diags;

void diags_init(Diags *d, Arena *a);
/* Appends and returns the new entry (valid until the next one), so that callers may fill other/fix.
 * Past `limit` errors (default 20) further ones are counted, not kept. */
Diag *diag_add(Diags *d, DiagCode code, Loc loc, const char *fmt, ...) TL_PRINTF(4, 5);
void diag_other(Diags *d, Diag *g, Loc loc, const char *fmt, ...) TL_PRINTF(4, 5);
void diag_fix(Diags *d, Diag *g, const char *fmt, ...) TL_PRINTF(3, 4);
bool diag_told(const Diags *d, DiagCode code, const Loc *at); /* is there one such, at that place (NULL: anywhere)? */
/* A page of docs/errors, the last one is {0, 0}; the build writes the table from the files. */
typedef struct { const char *code, *text; } DiagPage;
extern const DiagPage diag_pages[];

int diag_number(DiagCode code);            /* the NNNN of TLNNNN */
const char *diag_title(DiagCode code);     /* the short title of diag.def */
Severity diag_severity(DiagCode code);

/* A limit of our own. With TL_TINY defined limits are so low that tests run into all of them. */
#ifdef TL_TINY
#define TL_LIMIT(n, tiny) (tiny)
#else
#define TL_LIMIT(n, tiny) (n)
#endif

/* ---- small arithmetic --------------------------------------------------------------------------------- */

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
