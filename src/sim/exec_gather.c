/* exec_gather.c - pipe V: instructions that move elements of UB to other places.
 *
 * `gather` and `gatherb` read where their offsets point. The offsets are values that earlier instructions wrote, so
 * what is read is known when the instruction runs: an offset outside of the source region, or one that is not a
 * multiple of what it addresses, is a fault and its element stays as it was. `gather_mask` packs chosen elements to
 * the front of its result; behind them the result stays as it was. `transpose` works on matrices of 16 by 16
 * squares. `unpack4` and `pack4` convert between bytes of two int4 and f16. */
#include "machine.h"

#include <string.h>

enum { BLOCK = 32 };

/* All operands row-major in UB, start on 32 bytes, source and result of one dtype that the instruction takes. */
static bool legal_operands(Core *c, const Entry *e) {
  const Inst *i = e->inst;
  int out = i->n_args - 1;
  DType t = arg_buf(c, i, out)->type;
  for (int a = 0; a < i->n_args; a++) {
    if (!i->arg[a].buf) continue;
    if (!op_in_space(c, i, a, SPACE_UB)) return false;
    if (arg_buf(c, i, a)->fractal) return op_refuse(c, i, "vector operands are row-major");
    if (op_misaligned(c, i, a, "the byte address", entry_start(c, e, a), BLOCK)) return false;
  }
  if (!i->arg[0].buf || !i->arg[out].buf) return op_refuse(c, i, "the source and the result must be regions");
  if (arg_buf(c, i, 0)->type != t) return op_refuse(c, i, "the operands have different dtypes");
  return arch_has_dtype(c->m->sim->arch, op_info[i->op].dtypes, t) || op_no_dtype(c, i, t);
}

static bool legal_flat(Core *c, const Entry *e, int a) {
  return view_flat(&e->v[a]) || op_refuse(c, e->inst, "an operand is not one run of elements");
}

/* The result shares no byte with operand a. */
static bool apart(Core *c, const Entry *e, int a, int64_t a_bytes) {
  int out = e->inst->n_args - 1;
  int64_t as = entry_start(c, e, a), os = entry_start(c, e, out), ob = entry_bytes(c, e, out);
  if (!c->m->sim->checks || as + a_bytes <= os || os + ob <= as) return true;
  return op_refuse(c, e->inst, "the result overlaps an operand; the instruction does not work in place");
}

static void touch_run(Toucher *t, const Entry *e, int a, TouchKind kind) {
  touch(t, arg_buf(t->core, e->inst, a), kind, e->v[a].off, entry_bytes(t->core, e, a), 1, 0);
}

/* ---- gather, gatherb -------------------------------------------------------------------------------------- */

/* Bytes that offsets may point to: the region, or up to the end of the buffer when the region has gaps. */
static int64_t reach(const Core *c, const Entry *e) {
  return view_flat(&e->v[0]) ? entry_bytes(c, e, 0) : arg_buf(c, e->inst, 0)->bytes - e->v[0].off;
}

static int64_t item(const Core *c, const Entry *e) {
  return e->inst->op == OP_GATHERB ? BLOCK : arg_buf(c, e->inst, 0)->size;
}

/* Byte within the source of item k; negative: outside or not on a whole item. */
static int64_t place(const Core *c, const Entry *e, int64_t k, int64_t *offset) {
  uint32_t off;
  int64_t unit = item(c, e), base = e->inst->op == OP_GATHER ? e->s[2].i : 0;
  memcpy(&off, entry_ptr(c, e, 1) + k * 4, 4);
  int64_t at = *offset = (int64_t)off + base;
  return at < 0 || at % unit || at > reach(c, e) - unit ? -1 : at;
}

static bool legal_gather(Core *c, Entry *e) {
  const Inst *i = e->inst;
  int out = i->n_args - 1;
  if (!legal_operands(c, e)) return false;
  if (!i->arg[1].buf || arg_buf(c, i, 1)->size != 4 || dtype_is_float(arg_buf(c, i, 1)->type))
    return op_refuse(c, i, "the offsets must be u32 or i32");
  if (!legal_flat(c, e, 1) || !legal_flat(c, e, out)) return false;
  int64_t per = i->op == OP_GATHERB ? BLOCK / arg_buf(c, i, out)->size : 1;
  if (e->v[out].count != e->v[1].count * per)
    return op_refuse(c, i, "the result does not have one item for each offset");
  if (c->m->sim->checks && i->op == OP_GATHERB && e->v[1].count % 8)
    return op_refuse(c, i, "the number of offsets must be a multiple of 8");
  return apart(c, e, 0, reach(c, e)) && apart(c, e, 1, entry_bytes(c, e, 1));
}

static void touch_gather(Toucher *t, const Entry *e) {
  const SimBuf *src = arg_buf(t->core, e->inst, 0);
  int64_t unit = item(t->core, e), from = 0, to = 0, offset;
  touch_run(t, e, 1, TOUCH_READ);
  for (int64_t k = 0; k < e->v[1].count; k++) { /* neighbours together */
    int64_t at = place(t->core, e, k, &offset);
    if (at < 0 || (at >= from && at + unit <= to)) continue;
    if (at == to && to > from) {
      to += unit;
      continue;
    }
    if (to > from) touch(t, src, TOUCH_READ, e->v[0].off + from, to - from, 1, 0);
    from = at;
    to = at + unit;
  }
  if (to > from) touch(t, src, TOUCH_READ, e->v[0].off + from, to - from, 1, 0);
  touch_run(t, e, e->inst->n_args - 1, TOUCH_WRITE);
}

static void bad_offset(Core *c, const Entry *e, int64_t k, int64_t offset) {
  const Inst *i = e->inst;
  const SimBuf *src = arg_buf(c, i, 0);
  int64_t unit = item(c, e);
  if (c->tainted || fault_known(c, DIAG_SIM_BOUNDS, i->stmt, NULL)) return;
  Fault *f = fault(c, DIAG_SIM_BOUNDS, i->stmt, NULL,
                   "`%s`: offset %lld of %%%s is byte %lld of %%%s, which has %lld bytes in items of %lld (%s)",
                   inst_text(&c->m->arena, c, i->stmt), (long long)k, arg_buf(c, i, 1)->ir->name, (long long)offset,
                   src->ir->name, (long long)reach(c, e), (long long)unit, where(&c->m->arena, c));
  if (!f) return;
  f->other = src->ir->loc;
  fault_other(c, f, "%%%s is declared here", src->ir->name);
  fault_fix(c, f, "offsets count bytes: multiply indices by %lld", (long long)unit);
}

static void exec_gather(Core *c, const Entry *e) {
  const uint8_t *src = entry_ptr(c, e, 0);
  uint8_t *dst = entry_ptr(c, e, e->inst->n_args - 1);
  int64_t unit = item(c, e), offset;
  for (int64_t k = 0; k < e->v[1].count; k++) {
    int64_t at = place(c, e, k, &offset);
    if (at < 0) bad_offset(c, e, k, offset);
    else memmove(dst + k * unit, src + at, (size_t)unit);
  }
}

/* ---- gather_mask ------------------------------------------------------------------------------------------ */

/* Is element k chosen? Pattern 1: even, 2: odd, 3 to 6: one of each four, 7: all; else bit k. */
static bool is_chosen(const Core *c, const Entry *e, int64_t k) {
  if (e->inst->arg[1].buf) return entry_ptr(c, e, 1)[k / 8] >> k % 8 & 1;
  int64_t p = e->s[1].i;
  return p == 7 || (p <= 2 ? k % 2 == p - 1 : k % 4 == p - 3);
}

static int64_t n_chosen(const Core *c, const Entry *e) {
  int64_t n = 0;
  for (int64_t k = 0; k < e->v[0].count; k++) n += is_chosen(c, e, k);
  return n;
}

static bool legal_gather_mask(Core *c, Entry *e) {
  const Inst *i = e->inst;
  if (!legal_operands(c, e) || !legal_flat(c, e, 0) || !legal_flat(c, e, 2)) return false;
  if (i->arg[1].buf) {
    if (!legal_flat(c, e, 1)) return false;
    if (entry_bytes(c, e, 1) * 8 < e->v[0].count) return op_refuse(c, i, "there is not one bit for each element");
  } else if (e->s[1].i < 1 || e->s[1].i > 7) {
    return op_refuse(c, i, "the pattern is not one of 1 to 7");
  }
  int64_t n = c->time && i->arg[1].buf ? 0 : n_chosen(c, e); /* the clock has no mask to look at */
  if (n > e->v[2].count) return op_refuse(c, i, "more elements are chosen than the result holds");
  bool inside = entry_start(c, e, 0) == entry_start(c, e, 2); /* packing to the front may work in place */
  return (inside || apart(c, e, 0, entry_bytes(c, e, 0))) && (!i->arg[1].buf || apart(c, e, 1, entry_bytes(c, e, 1)));
}

static void touch_gather_mask(Toucher *t, const Entry *e) {
  if (e->inst->arg[1].buf)
    touch(t, arg_buf(t->core, e->inst, 1), TOUCH_READ, e->v[1].off, ceil_div(e->v[0].count, 8), 1, 0);
  const SimBuf *src = arg_buf(t->core, e->inst, 0), *dst = arg_buf(t->core, e->inst, 2);
  for (int64_t k = 0, n; k < e->v[0].count; k += n + 1) { /* runs of chosen elements: the others are not used */
    for (n = 0; k + n < e->v[0].count && is_chosen(t->core, e, k + n);) n++;
    if (n) touch(t, src, TOUCH_READ, e->v[0].off + k * src->size, n * src->size, 1, 0);
  }
  touch(t, dst, TOUCH_WRITE, e->v[2].off, n_chosen(t->core, e) * dst->size, 1, 0);
}

static void exec_gather_mask(Core *c, const Entry *e) {
  const uint8_t *src = entry_ptr(c, e, 0);
  uint8_t *dst = entry_ptr(c, e, 2);
  int64_t size = arg_buf(c, e->inst, 0)->size;
  for (int64_t k = 0, n = 0; k < e->v[0].count; k++)
    if (is_chosen(c, e, k)) memmove(dst + n++ * size, src + k * size, (size_t)size);
}

/* ---- transpose -------------------------------------------------------------------------------------------- */

static int64_t pitch_of(const Core *c, const Entry *e, int a) {
  return e->v[a].rows > 1 ? e->v[a].pitch : e->v[a].cols * arg_buf(c, e->inst, a)->size;
}

static bool legal_transpose(Core *c, Entry *e) {
  const Inst *i = e->inst;
  if (!legal_operands(c, e)) return false;
  for (int a = 0; a < 2; a++) {
    const View *v = &e->v[a];
    if (!v->rows) return op_refuse(c, i, "a matrix needs more than two strides");
    if (c->m->sim->checks && (v->rows % 16 || v->cols % 16))
      return op_refuse(c, i, "rows and columns must be multiples of 16");
    if (op_misaligned(c, i, a, "the distance of rows in bytes", pitch_of(c, e, a), BLOCK)) return false;
  }
  if (e->v[0].rows != e->v[1].cols || e->v[0].cols != e->v[1].rows)
    return op_refuse(c, i, "the result of a matrix [m, n] is [n, m]");
  const View *o = &e->v[1], *s = &e->v[0];
  int64_t os = entry_start(c, e, 1), ss = entry_start(c, e, 0), size = arg_buf(c, i, 0)->size;
  int64_t o_end = os + (o->rows - 1) * pitch_of(c, e, 1) + o->cols * size;
  int64_t s_end = ss + (s->rows - 1) * pitch_of(c, e, 0) + s->cols * size;
  if (!c->m->sim->checks || s_end <= os || o_end <= ss) return true;
  return op_refuse(c, i, "the result overlaps the source; the instruction does not work in place");
}

static void touch_transpose(Toucher *t, const Entry *e) {
  for (int a = 0; a < 2; a++) {
    const SimBuf *b = arg_buf(t->core, e->inst, a);
    touch(t, b, a ? TOUCH_WRITE : TOUCH_READ, e->v[a].off, e->v[a].cols * b->size, e->v[a].rows,
          pitch_of(t->core, e, a));
  }
}

static void exec_transpose(Core *c, const Entry *e) {
  const uint8_t *src = entry_ptr(c, e, 0);
  uint8_t *dst = entry_ptr(c, e, 1);
  int64_t size = arg_buf(c, e->inst, 0)->size, sp = pitch_of(c, e, 0), dp = pitch_of(c, e, 1);
  for (int64_t r = 0; r < e->v[0].rows; r++)
    for (int64_t k = 0; k < e->v[0].cols; k++)
      memmove(dst + k * dp + r * size, src + r * sp + k * size, (size_t)size);
}

/* ---- unpack4, pack4 ----------------------------------------------------------------------------------------- */

static bool legal_pack(Core *c, Entry *e) {
  const Inst *i = e->inst;
  bool un = i->op == OP_UNPACK4;
  for (int a = 0; a < 2; a++) {
    if (!i->arg[a].buf) return op_refuse(c, i, "both operands must be regions");
    if (!op_in_space(c, i, a, SPACE_UB)) return false;
    if (arg_buf(c, i, a)->type != ((a == 0) == un ? DT_I4X2 : DT_F16))
      return op_refuse(c, i, un ? "it converts i4x2 to f16" : "it converts f16 to i4x2");
    if (op_misaligned(c, i, a, "the byte address", entry_start(c, e, a), BLOCK)) return false;
    if (!legal_flat(c, e, a)) return false;
  }
  if (e->v[un].count != 2 * e->v[!un].count) return op_refuse(c, i, "there must be two f16 for each byte");
  return apart(c, e, 0, entry_bytes(c, e, 0));
}

static void touch_pack(Toucher *t, const Entry *e) {
  touch_run(t, e, 0, TOUCH_READ);
  touch_run(t, e, 1, TOUCH_WRITE);
}

static void exec_pack(Core *c, const Entry *e) {
  const uint8_t *src = entry_ptr(c, e, 0);
  uint8_t *dst = entry_ptr(c, e, 1);
  int8_t pair[2];
  uint16_t value[2];
  for (int64_t k = 0; k < e->v[e->inst->op != OP_UNPACK4].count; k++) {
    if (e->inst->op == OP_UNPACK4) {
      for (int x = 0; x < 2; x++) value[x] = f32_to_f16((float)((src[k] >> 4 * x & 15) ^ 8) - 8);
      memcpy(dst + 4 * k, value, 4);
      continue;
    }
    convert(pair, DT_I8, src + 4 * k, DT_F16, 2, (CastMode)e->inst->cast);
    for (int x = 0; x < 2; x++) pair[x] = (int8_t)(pair[x] < -8 ? -8 : pair[x] > 7 ? 7 : pair[x]);
    dst[k] = (uint8_t)((pair[0] & 15) | pair[1] << 4);
  }
}

const OpImpl *impl_gather(StmtOp op) {
  static const OpImpl gather = {legal_gather, touch_gather, exec_gather},
                      gather_mask = {legal_gather_mask, touch_gather_mask, exec_gather_mask},
                      transpose = {legal_transpose, touch_transpose, exec_transpose},
                      pack = {legal_pack, touch_pack, exec_pack};
  switch (op) {
  case OP_GATHER:
  case OP_GATHERB: return &gather;
  case OP_GATHER_MASK: return &gather_mask;
  case OP_TRANSPOSE: return &transpose;
  case OP_UNPACK4:
  case OP_PACK4: return &pack;
  default: return NULL;
  }
}
