/* moved_ascendc.c - Ascend C of the instructions that move or sort elements of UB.
 *
 * Each is one call of a function of prelude_ascendc.def, which cuts the work into repeats and fills the parameter
 * structures of the toolkit. Where an instruction knows only unsigned dtypes, tiles are read as such. */
#include "ascendc.h"

static const char *run(CWriter *w, const IrStmt *s, int arg, DType as) {
  const IrRegion *r = &s->args[arg].region;
  const char *name = w->buf_name[r->buf->id], *at;
  IrRows rows;
  if (!ir_rows(w->k, r, &rows)) rows.off = cw_num(w, 0);
  at = ir_is_int(rows.off, 0) ? name : arena_printf(w->arena, "%s[%s]", name, cw_str(w, rows.off));
  if (as == r->buf->type) return at;
  return arena_printf(w->arena, "%s.ReinterpretCast<%s>()", at, cw_type(as));
}

static DType bits_type(DType t) { return dtype_size(t) == 2 ? DT_U16 : DT_U32; }

static const char *merge_lists(CWriter *w, const IrStmt *s) {
  int n = s->n_args - 1;
  DType t = s->args[n].region.buf->type;
  Text tiles, lengths;
  text_init(&tiles, w->arena);
  text_init(&lengths, w->arena);
  for (int i = 0; i < 4; i++) { /* the lists that are not there repeat the first one, of length 0 */
    IrExpr *count = i < n ? cw_op(w, EX_FDIV, ir_count(w->k, &s->args[i].region), cw_num(w, 8 / dtype_size(t)))
                          : cw_num(w, 0);
    text_printf(&tiles, ", %s", run(w, s, i < n ? i : 0, t));
    text_printf(&lengths, ", %s", cw_str(w, count));
  }
  return arena_printf(w->arena, "%s%s", text_str(&tiles), text_str(&lengths));
}

void ac_moved(CWriter *w, const IrStmt *s, const Spelling *sp) {
  int out = s->n_args - 1;
  DType t = s->args[out].region.buf->type;
  const char *dst = run(w, s, out, t), *src = run(w, s, 0, t);
  IrExpr *n = cw_bind(w, ir_count(w->k, &s->args[s->op == OP_GATHER || s->op == OP_GATHERB].region), "n");
  IrExpr *guard = cw_guard(w, NULL, n);
  if (guard) cw_open(w, "if (%s)", cw_str(w, guard));
  switch (s->op) {
  case OP_GATHER:
    cw_line(w, "%s(%s, %s, %s, %s, %s);", sp->api, dst, src, run(w, s, 1, DT_U32),
            cw_scalar(w, s->args[2].scalar, DT_U32), cw_str(w, n));
    break;
  case OP_GATHERB:
    cw_use(w, HELP_GATHER_BLOCKS);
    t = bits_type(t);
    cw_line(w, "GatherBlocks(%s, %s, %s, %s);", run(w, s, 2, t), run(w, s, 0, t), run(w, s, 1, DT_U32), cw_str(w, n));
    break;
  case OP_GATHER_MASK:
    cw_use(w, HELP_TAKE_CHOSEN);
    cw_line(w, "TakeChosen(%s, %s, %s, %s);", dst, src,
            s->args[1].kind == ARG_REGION ? run(w, s, 1, s->args[1].region.buf->type)
                                          : arena_printf(w->arena, "(uint8_t)%s", cw_atom(w, s->args[1].scalar)),
            cw_str(w, n));
    break;
  case OP_UNPACK4: /* n is what the first operand counts: bytes of two int4, or f16 */
    cw_line(w, "%s(%s, %s.ReinterpretCast<int4b_t>(), RoundMode::CAST_NONE, %s);", sp->api, dst,
            run(w, s, 0, s->args[0].region.buf->type), cw_str(w, cw_mul(w, n, 2)));
    break;
  case OP_PACK4: {
    int64_t mode = ir_attr_int(s, ATTR_MODE, CAST_NONE);
    cw_line(w, "%s(%s.ReinterpretCast<int4b_t>(), %s, RoundMode::%s, %s);", sp->api, dst,
            run(w, s, 0, s->args[0].region.buf->type), ac_round_mode(mode == CAST_NONE ? CAST_RINT : mode),
            cw_str(w, n));
    break;
  }
  case OP_SORT32:
    cw_use(w, HELP_SORT_GROUPS);
    cw_line(w, "SortGroups(%s, %s, %s, %s);", dst, src, run(w, s, 1, DT_U32), cw_str(w, n));
    break;
  default:
    cw_use(w, HELP_MERGE_LISTS);
    cw_line(w, "MergeLists<%d>(%s%s);", out, dst, merge_lists(w, s));
  }
  if (guard) cw_close(w);
}

void ac_transpose(CWriter *w, const IrStmt *s, const Spelling *sp) {
  (void)sp;
  IrRows a, b;
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  DType t = bits_type(src->buf->type);
  if (!ir_rows(w->k, src, &a) || !ir_rows(w->k, dst, &b)) {
    cw_refuse(w, DIAG_EMIT_FORM, "copy a plane at a time", "transpose: a matrix needs more than two strides");
    return;
  }
  const IrBuf *bufs[2] = {src->buf, dst->buf};
  IrExpr *pitch[2];
  for (int i = 0; i < 2; i++) pitch[i] = bufs[i]->shape[bufs[i]->rank - 1];
  cw_use(w, HELP_TRANSPOSE_TILE);
  cw_line(w, "TransposeTile(%s, %s, %s, %s, %s, %s);", run(w, s, 1, t), run(w, s, 0, t),
          cw_str(w, src->ext[src->buf->rank - 2]), cw_str(w, src->ext[src->buf->rank - 1]), cw_str(w, pitch[0]),
          cw_str(w, pitch[1]));
}
