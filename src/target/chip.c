/* chip.c - what no writer can say because the chip has no instruction for it; what one language cannot say stands in
 * its writer. */
#include "cwriter.h"

static bool cannot(CWriter *w, const char *fix, const char *fmt, const char *a, const char *b) {
  cw_refuse(w, DIAG_EMIT_DTYPE, fix, fmt, a, b, w->arch->name);
  return false;
}

bool cw_chip_has(CWriter *w, const IrStmt *s) {
  if (s->op == ST_PARALLEL || (ir_is_op(s) && op_info[s->op].level == 's')) {
    cw_refuse(w, DIAG_EMIT_LEVEL, "run the passes first", "%s exists at source level only",
              s->op == ST_PARALLEL ? "parallel" : op_info[s->op].name);
    return false;
  }
  if (s->op == ST_BARRIER && s->sync.src == PIPE_S) {
    cw_refuse(w, DIAG_EMIT_SYNC, "leave it out: the scalar pipe runs in order", "barrier s does not exist");
    return false;
  }
  if (!ir_is_op(s)) return true;
  int last = s->n_args - 1;
  DType src = s->n_args && s->args[0].kind == ARG_REGION ? s->args[0].region.buf->type : DT_F32;
  DType dst = s->n_args && s->args[last].kind == ARG_REGION ? s->args[last].region.buf->type : DT_F32;
  switch (s->op) {
  case OP_CAST:
    if (arch_can_cast(w->arch, dst, src) || (src == dst && ir_attr_int(s, ATTR_MODE, CAST_NONE) == CAST_NONE))
      return true;
    return cannot(w, "go through f32 or f16", "cast from %s to %s is not one instruction of %s", dtype_info[src].name,
                  dtype_info[dst].name);
  case OP_COMPARE: {
    int64_t mode = ir_attr_int(s, ATTR_CMP, CMP_EQ);
    if (src != DT_I32 || mode == CMP_EQ) return true;
    return cannot(w, "cast the tiles to f32", "compare of %s knows eq only, not %s", dtype_info[src].name,
                  cmp_name[mode]);
  }
  case OP_ARANGE:
    if (arch_has_dtype(w->arch, RULE_ARITH, dst)) return true;
    return cannot(w, "use f16, f32, i16 or i32", "arange of %s", dtype_info[dst].name, "");
  case OP_BRCB:
    if (dtype_size(dst) == 2 || dtype_size(dst) == 4) return true;
    return cannot(w, "cast the tile to a 16-bit or 32-bit dtype", "brcb of %s", dtype_info[dst].name, "");
  case OP_L0C_TO_L1:
    if (dst == DT_F16 || dst == DT_BF16) return true;
    return cannot(w, "write f16 or bf16, or go through GM", "l0c_to_l1 cannot write %s", dtype_info[dst].name, "");
  default: return true;
  }
}

bool cw_scalar_reaches(CWriter *w, const IrBuf *b) {
  if (b->space == SPACE_GM || b->space == SPACE_UB) return true;
  cw_refuse(w, DIAG_EMIT_SCALAR, "copy the tile to GM or UB first", "the scalar unit cannot reach %s, which is in %s",
            b->name, space_info[b->space].name);
  return false;
}
