/* run_time.c - a timed run: may the clock know all that decides what runs, its constants, and what it found as a
 * result. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* "name=value,..." into the timing table of this run. */
static bool set_constants(Run *r, ArchTime *t, const char *text) {
  while (text && *text) {
    size_t n = strcspn(text, "=");
    double *field = text[n] ? arch_time_field(t, arena_strn(&r->arena, text, n)) : NULL;
    char *end = NULL;
    double v = field ? strtod(text + n + 1, &end) : 0;
    if (!field || end == text + n + 1 || (*end && *end != ',') || !(v >= 0 && v < 1e12)) {
      Text names;
      text_init(&names, &r->arena);
      for (int i = 0; arch_time_name(i); i++) text_printf(&names, "%s%s", i ? ", " : "", arch_time_name(i));
      Diag *g = diag_add(r->diags, DIAG_TIME_CONSTANT, r->sim.k->loc,
                         "'%s' is not NAME=VALUE with the name of a time and a number", text);
      diag_fix(r->diags, g, "names: %s", text_str(&names));
      return false;
    }
    *field = v;
    text = end + (*end == ',');
  }
  return true;
}

/* Its value, or which element it is. */
static bool unknown_element(const Run *r, const int32_t *elem, const Element *el) {
  bool unknown = !run_known_element(&r->sim, el);
  for (int d = 0; d < r->sim.buf[el->buf].rank; d++) unknown |= elem[el->idx[d]] != 0;
  return unknown;
}

/* Registers whose value comes from an element that is not known; elem: which, plus one. */
static int32_t *unknown_registers(Run *r, const Program *p) {
  int32_t *elem = arena_array(&r->arena, int32_t, p->n_reg);
  for (bool again = true; again;) {
    again = false;
    for (int32_t i = 0; i < p->n_code; i++) {
      const Code *q = &p->code[i];
      int32_t from = 0;
      if (q->op == C_LOAD) from = unknown_element(r, elem, &p->elem[q->a]) ? q->a + 1 : 0;
      else if (q->op == C_MOV || q->op == C_CAST || q->op == C_BITS) from = elem[q->a];
      else if (q->op == C_STEP) from = elem[q->b];
      else if (q->op >= C_INT) from = elem[q->a] ? elem[q->a] : elem[q->b];
      else continue;
      if (!from || elem[q->d]) continue;
      elem[q->d] = from;
      again = true;
    }
  }
  return elem;
}

static bool report_unknown(Run *r, const Program *p, int32_t elem, const IrStmt *at, const char *what) {
  const Element *el = &p->elem[elem - 1];
  const SimBuf *b = &r->sim.buf[el->buf];
  Diag *g = diag_add(r->diags, DIAG_TIME_DATA, at->loc, "%s depends on a value of %%%s, which is not known without %s",
                     what, b->ir->name, b->space == SPACE_GM && !b->written ? "data" : "running the kernel");
  if (el->stmt->loc.line != at->loc.line) diag_other(r->diags, g, el->stmt->loc, "read here");
  diag_fix(r->diags, g, "pass the tensors, not their shapes alone: the kernel runs, and the clock follows it");
  return false;
}

/* What the clock does must not hang on data it does not have: an unknown value reads as 0, and that may only move an
 * address. */
static bool data_known(Run *r) {
  for (int side = 0; side < 2; side++) {
    const Program *p = &r->sim.prog[side];
    if (!p->code || !p->n_elem) continue;
    const int32_t *elem = unknown_registers(r, p);
    for (int32_t i = 0; i < p->n_code; i++) {
      const Code *q = &p->code[i];
      int32_t from = 0;
      if (q->op == C_JZ || q->op == C_JNZ) from = elem[q->a];
      if (q->op == C_LOOP) from = elem[q->d] ? elem[q->d] : elem[q->a] ? elem[q->a] : elem[q->b];
      if (from) return report_unknown(r, p, from, p->code_stmt[i], "how often this runs");
    }
    for (int32_t i = 0; i < p->n_inst; i++) {
      const Inst *x = &p->inst[i];
      for (int a = 0; a < x->n_args; a++)
        for (int d = 0; x->arg[a].buf && d < r->sim.buf[x->arg[a].buf].rank; d++)
          if (elem[x->arg[a].ext[d]]) return report_unknown(r, p, elem[x->arg[a].ext[d]], x->stmt, "a size");
    }
  }
  return true;
}

static void time_cores(const Clock *k, SimTime *out, Arena *a) {
  out->n_cores = k->m->n_cores;
  out->core = arena_array(a, SimTimeCore, out->n_cores + 1);
  int32_t number[2] = {0, 0};
  for (int32_t n = 0; n < out->n_cores; n++) {
    const TimeCore *t = &k->core[n];
    bool vector = k->m->core[n].vid >= 0;
    SimTimeCore *o = &out->core[n];
    *o = (SimTimeCore){vector ? 'v' : 'c', number[vector]++, t->blocks, t->start, t->end, {0}, {{0}}};
    for (int p = 0; p < CORE_PIPES; p++) {
      o->busy[p] = t->pipe[p].busy;
      memcpy(o->idle[p], t->pipe[p].idle, sizeof t->pipe[p].idle);
    }
  }
}

/* The elements of a statement are one row. */
static void time_elements(const Clock *k, const Program *p, SimTime *out) {
  SimTimeStmt *o = NULL;
  for (int32_t i = 0; i < p->n_elem; i++) {
    const Element *el = &p->elem[i];
    const InstTime *t = &k->inst[el->id].sum;
    if (el->peek) continue;
    if (!o || o->stmt != el->stmt) {
      o = &out->stmt[out->n_stmts++];
      *o = (SimTimeStmt){.stmt = el->stmt, .side = p->side, .pipe = PIPE_S};
    }
    k->number[el->id] = out->n_stmts - 1;
    o->count = max_i64(o->count, t->count);
    o->busy += t->scalar;
  }
}

static void time_stmts(const Clock *k, SimTime *out, Arena *a) {
  const Program *prog = k->sim->prog;
  out->stmt = arena_array(a, SimTimeStmt, prog[0].n_inst + prog[1].n_inst + prog[0].n_elem + prog[1].n_elem + 1);
  for (int side = 0; side < 2; side++) {
    for (int32_t i = 0; i < prog[side].n_inst; i++) {
      const Inst *x = &prog[side].inst[i];
      const InstTime *t = &k->inst[x->id].sum;
      k->number[x->id] = out->n_stmts;
      SimTimeStmt *o = &out->stmt[out->n_stmts++];
      *o = (SimTimeStmt){.stmt = x->stmt, .side = prog[side].side, .pipe = (Pipe)x->pipe, .count = t->count,
                         .busy = t->busy, .slowed = t->slowed, .gm_bytes = t->gm_bytes, .gm_most = t->gm_most,
                         .gm_rows = t->gm_rows, .ops = t->ops, .scalar = t->scalar};
      out->instructions += t->count;
      memcpy(o->idle, t->idle, sizeof t->idle);
    }
    time_elements(k, &prog[side], out);
  }
}

void time_all(Run *r) {
  Sim *s = &r->sim;
  SimTime *out = r->time;
  out->mhz = s->arch->mhz;
  out->last_event = -1;
  if (!run_prepare(r)) return;
  run_survey(r);
  const SimValues *follow = r->time_opt->follow;
  if (follow && follow->blocks == s->blocks && follow->cores == s->cores_per_block) {
    s->values = (SimValues *)follow; /* read only: the clock takes from it */
    run_mark_kept(r);
  } else if (!data_known(r)) {
    r->ok = false;
    return;
  }
  Clock *k = arena_new(&r->arena, Clock);
  SimTimeOptions o = *r->time_opt;
  if (!o.max_events) o.max_events = 1000000;
  r->machine = arena_new(&r->arena, Machine);
  r->n_machines = 1;
  r->machine->sim = s;
  arena_init(&r->machine->arena, r->arena.host, r->arena.oom);
  *k = (Clock){.sim = s, .m = r->machine, .arena = &r->machine->arena, .arch = *s->arch, .opt = &o, .keep = r->keep};
  k->t = arch_time(s->arch);
  if (!set_constants(r, &k->t, o.constants)) {
    r->ok = false;
    return;
  }
  k->inst = arena_array(k->arena, TimeInst, s->n_ids);
  k->number = arena_array(k->arena, int32_t, s->n_ids);
  k->blocks = o.blocks > 0 ? min_i64(s->blocks, o.blocks) : s->blocks;
  k->n_groups = (int32_t)min_i64(k->blocks, run_chip_cores(s));
  clock_run(k);
  run_collect(r);
  out->ticks = k->end;
  out->us = (double)k->end / TICKS / s->arch->mhz;
  out->blocks = k->blocks;
  out->launch = k->launch + k->fetch;
  out->gm_read_bytes = k->m->gm_read;
  out->gm_write_bytes = k->m->gm_write;
  out->l2_hit_bytes = k->mem.hit_bytes;
  out->l2_miss_bytes = k->mem.miss_bytes;
  out->hbm_write_bytes = k->mem.dirtied;
  out->write_back_bytes = k->mem.write_back;
  out->groups = k->n_groups;
  out->groups_there = run_chip_cores(s);
  time_cores(k, out, r->keep);
  time_stmts(k, out, r->keep);
  out->event = k->events.data;
  out->n_events = k->events.len;
  out->all_events = k->n_events;
  out->last_event = k->last_event;
  for (int64_t e = 0; e < out->n_events; e++) out->event[e].stmt = k->number[out->event[e].stmt];
}
