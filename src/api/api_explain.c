/* api_explain.c - what was chosen and why: memories, addresses, flags, times of passes; as text and as JSON. */
#include "api/api.h"

#include <string.h>

/* ---- explain ---------------------------------------------------------------------------------------------- */

/* First and last statement (numbers in program order) that touches each buffer. */
typedef struct { uint32_t *from, *to; uint32_t at; } Uses;

static void use(Uses *u, const IrBuf *b) {
  if (!u->from[b->id]) u->from[b->id] = u->at;
  u->to[b->id] = u->at;
}

static void use_load(IrExpr *e, void *user) {
  if (e->op == EX_LOAD) use(user, e->buf);
}

static void use_expr(IrExpr **e, void *user) { ir_walk_expr(*e, use_load, user); }

static bool use_stmt(IrStmt *s, void *user) {
  Uses *u = user;
  u->at = s->id;
  for (int i = 0; i < s->n_args; i++)
    if (s->args[i].kind == ARG_REGION) use(u, s->args[i].region.buf);
  if (s->op == ST_STORE) use(u, s->store.buf);
  ir_stmt_exprs(s, use_expr, u);
  return true;
}

static Uses find_uses(TlContext *c) {
  IrKernel *k = c->module->kernel;
  Uses u = {arena_array(&c->arena, uint32_t, k->bufs.len + 1), arena_array(&c->arena, uint32_t, k->bufs.len + 1), 0};
  ir_renumber(k);
  ir_walk(&k->body, use_stmt, &u);
  return u;
}

typedef struct { TlContext *c; Vec(const IrBuf *) bufs; Vec(const IrStmt *) syncs; } Chosen;

static bool collect(IrStmt *s, void *user) {
  Chosen *x = user;
  if (s->op == ST_ALLOC) vec_push(&x->c->arena, &x->bufs, s->alloc.buf);
  if (s->op >= ST_SET_FLAG && s->op <= ST_SYNC_ALL) vec_push(&x->c->arena, &x->syncs, s);
  return true;
}

static Chosen find_chosen(TlContext *c) {
  Chosen x = {.c = c};
  ir_walk(&c->module->kernel->body, collect, &x);
  return x;
}

/* Bytes of a memory that buffers reach, at most. */
static int64_t bytes_used(const Chosen *x, Space space) {
  int64_t used = 0;
  for (uint32_t i = 0; i < x->bufs.len; i++) {
    const IrBuf *b = x->bufs.data[i];
    if (b->space == space) used = max_i64(used, (b->addr < 0 ? 0 : b->addr) + ir_buf_bytes(b));
  }
  return used;
}

static const char *loc_text(TlContext *c, Loc loc) { return ir_loc_str(&c->arena, c->module, loc); }
static const char *shape_text(TlContext *c, const IrBuf *b) { return ir_shape_str(&c->arena, b->shape, b->rank); }
static const char *const cores_name[] = {"", "cube", "vector", "mix"};

static const char *sync_kind(const IrStmt *s) {
  static const char *const kinds[] = {"set_flag", "wait_flag", "barrier", "cross_set", "cross_wait", "sync_all"};
  return kinds[s->op - ST_SET_FLAG];
}

static void explain_buffers(TlContext *c, Text *t, const Chosen *x) {
  Uses u = find_uses(c);
  for (int space = 0; space < SPACE_COUNT; space++) {
    int64_t used = bytes_used(x, space);
    if (!used || space == SPACE_GM) continue;
    text_printf(t, "\n%s", space_info[space].name);
    if (space_info[space].physical && c->arch)
      text_printf(t, ": %lld of %lld bytes", (long long)used, (long long)c->arch->space[space].bytes);
    text_put(t, "\n");
    for (uint32_t i = 0; i < x->bufs.len; i++) {
      const IrBuf *b = x->bufs.data[i];
      if ((int)b->space != space) continue;
      text_printf(t, "  %%%s %s%s", b->name, dtype_info[b->type].name, shape_text(c, b));
      if (b->layout != LAYOUT_ND) text_printf(t, " %s", layout_name[b->layout]);
      if (b->addr >= 0) text_printf(t, " at %lld", (long long)b->addr);
      text_printf(t, ", %lld bytes", (long long)ir_buf_bytes(b));
      if (u.from[b->id]) text_printf(t, ", statements %u to %u", u.from[b->id], u.to[b->id]);
      text_printf(t, " (%s)", loc_text(c, b->loc));
      if (b->why) text_printf(t, ": %s", b->why);
      text_put(t, "\n");
    }
  }
}

const char *tl_explain(TlContext *c) {
  ENTER(c, false, NULL);
  if (!c->module && !api_loaded(c, "explain")) return NULL;
  IrKernel *k = c->module->kernel;
  Chosen x = find_chosen(c);
  Text t;
  text_init(&t, &c->arena);
  text_printf(&t, "kernel @%s", k->name);
  if (c->arch) text_printf(&t, " for %s", c->arch->name);
  if (k->cores) text_printf(&t, ", %s cores", k->cores == CORES_MIX ? "cube and vector" : cores_name[k->cores]);
  text_put(&t, "\n");
  explain_buffers(c, &t, &x);
  if (x.syncs.len) text_put(&t, "\nflags and barriers\n");
  for (uint32_t i = 0; i < x.syncs.len; i++) {
    const IrStmt *s = x.syncs.data[i];
    text_put(&t, "  ");
    ir_print_stmt(&t, k, s);
    text_printf(&t, " (%s)", loc_text(c, s->loc));
    if (s->why || s->hand == 1) text_printf(&t, ": %s", s->why ? s->why : "written by hand");
    text_put(&t, "\n");
  }
  if (c->pass.remarks.len) text_put(&t, "\nremarks\n");
  for (uint32_t i = 0; i < c->pass.remarks.len; i++) {
    const Remark *r = &c->pass.remarks.data[i];
    text_printf(&t, "  %s (%s): %s\n", r->pass, loc_text(c, r->loc), r->text);
  }
  if (c->stages.len) text_put(&t, "\ntimes\n");
  for (uint32_t i = 0; i < c->stages.len; i++)
    text_printf(&t, "  %-10s %.3f ms\n", c->stages.data[i].pass, 1e3 * c->stages.data[i].seconds);
  return text_str(&t);
}

/* ---- the same as JSON ------------------------------------------------------------------------------------- */

static void put_int(Text *t, const char *key, int64_t v) { text_printf(t, "\"%s\":%lld", key, (long long)v); }

static void put_extent(TlContext *c, Text *t, const IrExpr *e) {
  if (ir_is_const(e)) text_printf(t, "%lld", (long long)e->i);
  else text_json(t, ir_expr_str(&c->arena, e));
}

static void put_shape(TlContext *c, Text *t, const IrBuf *b) {
  text_put(t, "\"shape\":[");
  for (int d = 0; d < b->rank; d++) {
    if (d) text_put(t, ",");
    put_extent(c, t, b->shape[d]);
  }
  text_put(t, "]");
}

static void json_buffers(TlContext *c, Text *t, const Chosen *x) {
  Uses u = find_uses(c);
  text_put(t, "\"buffers\":[");
  for (uint32_t i = 0; i < x->bufs.len; i++) {
    const IrBuf *b = x->bufs.data[i];
    api_comma(t, i);
    text_put(t, "{");
    api_put_str(t, "name", b->name);
    text_printf(t, ",\"space\":\"%s\",\"dtype\":\"%s\",", space_info[b->space].name, dtype_info[b->type].name);
    put_shape(c, t, b);
    text_printf(t, ",\"layout\":\"%s\",\"addr\":%lld,\"bytes\":%lld,\"live\":[%u,%u],", layout_name[b->layout],
                (long long)b->addr, (long long)ir_buf_bytes(b), u.from[b->id], u.to[b->id]);
    api_put_str(t, "why", b->why);
    text_printf(t, ",\"line\":%u}", b->loc.line);
  }
  text_put(t, "],\n\"memory\":[");
  for (int space = 0, n = 0; space < SPACE_COUNT; space++) {
    int64_t used = bytes_used(x, space);
    if (!used || !space_info[space].physical) continue;
    api_comma(t, (uint32_t)n++);
    text_printf(t, "{\"space\":\"%s\",", space_info[space].name);
    put_int(t, "used", used);
    text_put(t, ",");
    put_int(t, "available", c->arch ? c->arch->space[space].bytes : 0);
    text_put(t, "}");
  }
  text_put(t, "]");
}

static void json_flags(TlContext *c, Text *t, const Chosen *x) {
  text_put(t, "\"flags\":[");
  for (uint32_t i = 0; i < x->syncs.len; i++) {
    const IrStmt *s = x->syncs.data[i];
    bool pair = s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG;
    api_comma(t, i);
    text_printf(t, "{\"kind\":\"%s\",", sync_kind(s));
    api_put_str(t, "src", s->op != ST_SYNC_ALL && s->sync.src < PIPE_COUNT ? pipe_info[s->sync.src].name : NULL);
    text_put(t, ",");
    api_put_str(t, "dst", pair && s->sync.dst < PIPE_COUNT ? pipe_info[s->sync.dst].name : NULL);
    text_put(t, ",\"id\":");
    if (s->sync.id && s->op != ST_SYNC_ALL && s->op != ST_BARRIER) put_extent(c, t, s->sync.id);
    else text_put(t, "null");
    text_printf(t, ",\"hand\":%s,", s->hand == 1 ? "true" : "false");
    api_put_str(t, "why", s->why);
    text_printf(t, ",\"line\":%u}", s->loc.line);
  }
  text_put(t, "]");
}

const char *tl_explain_json(TlContext *c) {
  ENTER(c, false, NULL);
  if (!c->module && !api_loaded(c, "explain")) return NULL;
  IrKernel *k = c->module->kernel;
  Chosen x = find_chosen(c);
  Text text, *t = &text;
  text_init(t, &c->arena);
  text_put(t, "{");
  api_put_str(t, "kernel", k->name);
  text_put(t, ",");
  api_put_str(t, "chip", c->arch ? c->arch->name : NULL);
  text_put(t, ",");
  api_put_str(t, "cores", k->cores ? cores_name[k->cores] : NULL);
  text_put(t, ",\n");
  json_buffers(c, t, &x);
  text_put(t, ",\n");
  json_flags(c, t, &x);
  text_put(t, ",\n\"remarks\":[");
  for (uint32_t i = 0; i < c->pass.remarks.len; i++) {
    const Remark *r = &c->pass.remarks.data[i];
    api_comma(t, i);
    text_put(t, "{");
    api_put_str(t, "pass", r->pass);
    text_printf(t, ",\"line\":%u,", r->loc.line);
    api_put_str(t, "text", r->text);
    text_put(t, "}");
  }
  text_put(t, "],\n\"times\":[");
  for (uint32_t i = 0; i < c->stages.len; i++) {
    api_comma(t, i);
    text_put(t, "{");
    api_put_str(t, "pass", c->stages.data[i].pass);
    text_printf(t, ",\"seconds\":%.9f}", c->stages.data[i].seconds);
  }
  text_put(t, "]}\n");
  return text_str(t);
}

const char *tl_signature_json(TlContext *c) {
  ENTER(c, false, NULL);
  if (!c->module && !api_loaded(c, "the signature")) return NULL;
  IrKernel *k = c->module->kernel;
  Text text, *t = &text;
  text_init(t, &c->arena);
  text_put(t, "{");
  api_put_str(t, "kernel", k->name);
  text_put(t, ",\n\"params\":[");
  for (uint32_t i = 0; i < k->params.len; i++) {
    const IrBuf *b = k->params.data[i].buf;
    const IrVar *v = k->params.data[i].var;
    api_comma(t, i);
    text_put(t, "{");
    api_put_str(t, "name", b ? b->name : v->name);
    text_printf(t, ",\"kind\":\"%s\",\"dtype\":\"%s\"", b ? "tensor" : "scalar",
                dtype_info[b ? b->type : v->type].name);
    if (b) {
      text_put(t, ",");
      put_shape(c, t, b);
      text_printf(t, ",\"out\":%s,\"workspace\":%s", b->is_out ? "true" : "false", b->is_work ? "true" : "false");
    }
    text_put(t, "}");
  }
  text_put(t, "],\n\"grid\":[");
  for (uint32_t i = 0; i < k->grid_ext.len; i++) {
    if (i) text_put(t, ",");
    put_extent(c, t, k->grid_ext.data[i]);
  }
  text_put(t, "]}\n");
  return text_str(t);
}
