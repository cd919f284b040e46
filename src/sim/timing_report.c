/* timing_report.c - the result of a timed run as JSON and as a table, and the sums over cores that people compare with
 * msprof.
 *
 * A ratio is what msprof calls aic_mac_ratio and so on: busy time of a pipe over the time its core ran, both summed
 * over the cores of that kind. */
#include "sim.h"

#include <stdlib.h>

static double us_of(const SimTime *r, int64_t ticks) { return (double)ticks / 256 / r->mhz; }

static void put_us(Text *t, const char *key, const SimTime *r, int64_t ticks) {
  text_printf(t, "\"%s\":%.4f", key, us_of(r, ticks));
}

static bool has_pipe(int p, char side) {
  char s = pipe_info[p].side;
  return p != PIPE_ALL && (s == 'b' || s == side);
}

double sim_time_ratio(const SimTime *r, Pipe p, char side) {
  int64_t busy = 0, ran = 0;
  for (int32_t n = 0; n < r->n_cores; n++) {
    const SimTimeCore *c = &r->core[n];
    if ((side && c->kind != side) || !has_pipe(p, c->kind)) continue;
    busy += c->busy[p];
    ran += c->end - c->start;
  }
  return ran > 0 ? (double)busy / (double)ran : 0;
}

static void put_idle(Text *t, const SimTime *r, const int64_t *idle) {
  text_put(t, "{");
  for (int i = 0, n = 0; i < SIM_IDLE_COUNT; i++) {
    if (!idle[i]) continue;
    text_put(t, n++ ? "," : "");
    put_us(t, sim_idle_name[i], r, idle[i]);
  }
  text_put(t, "}");
}

/* A pipe over all cores of one kind that have it; false: there is none. */
typedef struct { int64_t busy, idle[SIM_IDLE_COUNT]; } Mean;
static bool mean_of(const SimTime *r, int p, char side, Mean *m) {
  int64_t cores = 0;
  *m = (Mean){0};
  for (int32_t c = 0; c < r->n_cores; c++) {
    if (r->core[c].kind != side || !has_pipe(p, side)) continue;
    cores++;
    m->busy += r->core[c].busy[p];
    for (int i = 0; i < SIM_IDLE_COUNT; i++) m->idle[i] += r->core[c].idle[p][i];
  }
  if (!cores) return false;
  m->busy /= cores;
  for (int i = 0; i < SIM_IDLE_COUNT; i++) m->idle[i] /= cores;
  return true;
}

static int put_pipes(Text *t, const SimTime *r, char side, int n) {
  for (int p = 0; p < PIPE_ALL; p++) {
    Mean m;
    if (!mean_of(r, p, side, &m)) continue;
    text_printf(t, "%s\n {\"side\":\"%s\",\"pipe\":\"%s\",\"ratio\":%.6f,", n++ ? "," : "",
                side == 'c' ? "cube" : "vector", pipe_info[p].name, sim_time_ratio(r, (Pipe)p, side));
    put_us(t, "busy_us", r, m.busy);
    text_put(t, ",\"idle_us\":");
    put_idle(t, r, m.idle);
    text_put(t, "}");
  }
  return n;
}

static void put_cores(Text *t, const SimTime *r) {
  for (int32_t n = 0; n < r->n_cores; n++) {
    const SimTimeCore *c = &r->core[n];
    text_printf(t, "%s\n {\"kind\":\"%s\",\"number\":%d,\"blocks\":%lld,", n ? "," : "",
                c->kind == 'c' ? "cube" : "vector", c->number, (long long)c->blocks);
    put_us(t, "start_us", r, c->start);
    text_put(t, ",");
    put_us(t, "end_us", r, c->end);
    text_put(t, ",\"busy_us\":{");
    for (int p = 0, m = 0; p < PIPE_ALL; p++) {
      if (!has_pipe(p, c->kind)) continue;
      text_put(t, m++ ? "," : "");
      put_us(t, pipe_info[p].name, r, c->busy[p]);
    }
    text_put(t, "},\"idle_us\":{");
    for (int p = 0, m = 0; p < PIPE_ALL; p++) {
      if (!has_pipe(p, c->kind)) continue;
      text_printf(t, "%s\"%s\":", m++ ? "," : "", pipe_info[p].name);
      put_idle(t, r, c->idle[p]);
    }
    text_put(t, "}}");
  }
}

static const char *file_of(const IrKernel *k, Loc l) {
  return l.file < k->module->files.len ? k->module->files.data[l.file] : "";
}

/* Operations a cycle of a core at which a statement could run; 0: it computes nothing. */
static double rate_of(const Arch *arch, const SimTimeStmt *s) {
  ArchTime t = arch_time(arch);
  if (!s->ops) return 0;
  DType type = s->stmt->args[s->pipe == PIPE_M ? 0 : s->stmt->n_args - 1].region.buf->type;
  return s->pipe == PIPE_M ? arch_mmad_rate(&t, type) : arch_vector_rate(arch, type);
}

/* Tera-operations a second of the whole chip at the rate of the statement that computes most. */
static double peak_tops(const Arch *arch, const SimTime *r) {
  const SimTimeStmt *most = NULL;
  for (int32_t i = 0; i < r->n_stmts; i++)
    if (!most || r->stmt[i].ops > most->ops) most = &r->stmt[i];
  return most ? rate_of(arch, most) * (most->side == 'c' ? arch->aic : arch->aiv) * r->mhz * 1e-6 : 0;
}

static void put_stmts(Text *t, const IrKernel *k, const Arch *arch, const SimTime *r) {
  for (int32_t i = 0; i < r->n_stmts; i++) {
    const SimTimeStmt *s = &r->stmt[i];
    Text line;
    text_init(&line, t->arena);
    ir_print_stmt(&line, k, s->stmt);
    text_printf(t, "%s\n {\"id\":%d,\"text\":", i ? "," : "", i);
    text_json(t, text_str(&line));
    text_put(t, ",\"file\":");
    text_json(t, file_of(k, s->stmt->loc));
    text_printf(t, ",\"line\":%u,\"col\":%u,\"side\":\"%s\",\"pipe\":\"%s\",\"count\":%lld,", s->stmt->loc.line,
                s->stmt->loc.col, s->side == 'c' ? "cube" : "vector", pipe_info[s->pipe].name, (long long)s->count);
    put_us(t, "busy_us", r, s->busy);
    text_put(t, ",");
    put_us(t, "scalar_us", r, s->scalar);
    text_put(t, ",");
    put_us(t, "slowed_us", r, s->slowed);
    text_printf(t, ",\"gm_bytes\":%lld,\"gm_most\":%lld,\"gm_rows\":%lld,\"ops\":%lld,", (long long)s->gm_bytes,
                (long long)s->gm_most, (long long)s->gm_rows, (long long)s->ops);
    double rate = rate_of(arch, s);
    text_printf(t, "\"least_us\":%.4f,\"idle_us\":", rate ? (double)s->ops / rate / r->mhz : 0);
    put_idle(t, r, s->idle);
    text_put(t, "}");
  }
}

void sim_time_json(Text *t, const IrKernel *k, const Arch *arch, const SimTime *r) {
  int64_t l2 = r->l2_hit_bytes + r->l2_miss_bytes;
  text_put(t, "{\"kernel\":");
  text_json(t, k->name);
  text_printf(t, ",\"chip\":\"%s\",\"us\":%.4f,\"cycles\":%lld,\"mhz\":%.0f,\"blocks\":%lld,\"instructions\":%lld,\n",
              arch->name, r->us, (long long)((r->ticks + 128) / 256), r->mhz, (long long)r->blocks,
              (long long)r->instructions);
  text_printf(t,
              "\"groups\":%d,\"groups_there\":%d,\"gm_read_bytes\":%lld,\"gm_write_bytes\":%lld,\"l2_hit_bytes\":%lld,"
              "\"l2_miss_bytes\":%lld,\"hbm_write_bytes\":%lld,\"write_back_bytes\":%lld,\"l2_hit\":%.6f,\n",
              r->groups, r->groups_there, (long long)r->gm_read_bytes, (long long)r->gm_write_bytes,
              (long long)r->l2_hit_bytes, (long long)r->l2_miss_bytes, (long long)r->hbm_write_bytes,
              (long long)r->write_back_bytes,
              l2 ? (double)r->l2_hit_bytes / (double)l2 : 0);
  put_us(t, "launch_us", r, r->launch);
  text_printf(t, ",\"peak_tops\":%.4f,\"peak_gbps\":%.1f,\n", peak_tops(arch, r), arch_time(arch).hbm_gbps);
  text_put(t, "\"pipes\":[");
  put_pipes(t, r, 'v', put_pipes(t, r, 'c', 0));
  text_put(t, "],\n\"cores\":[");
  put_cores(t, r);
  text_put(t, "],\n\"statements\":[");
  put_stmts(t, k, arch, r);
  text_put(t, "]}\n");
}

/* ---- for people ----------------------------------------------------------------------------------------- */

static void text_pipes(Text *t, const SimTime *r) {
  text_put(t, "\npipe            busy us   ratio   idle us:");
  for (int i = 0; i < SIM_IDLE_COUNT; i++) text_printf(t, " %9s", sim_idle_name[i]);
  text_put(t, "\n");
  for (int side = 0; side < 2; side++)
    for (int p = 0; p < PIPE_ALL; p++) {
      char kind = side ? 'v' : 'c';
      Mean m;
      if (!mean_of(r, p, kind, &m) || !m.busy) continue;
      text_printf(t, "%-6s %-5s %10.2f  %5.1f%%           ", side ? "vector" : "cube", pipe_info[p].name,
                  us_of(r, m.busy), 100 * sim_time_ratio(r, (Pipe)p, kind));
      for (int i = 0; i < SIM_IDLE_COUNT; i++) text_printf(t, " %9.2f", us_of(r, m.idle[i]));
      text_put(t, "\n");
    }
}

typedef struct { const SimTimeStmt *s; int64_t waits; int32_t at; } Line;

static int by_time(const void *x, const void *y) {
  const Line *a = x, *b = y;
  int64_t p = a->s->busy + a->waits, q = b->s->busy + b->waits;
  return p != q ? (p < q ? 1 : -1) : a->at - b->at;
}

static void text_stmts(Text *t, const IrKernel *k, const SimTime *r) {
  Line *line = arena_array(t->arena, Line, r->n_stmts + 1);
  int64_t core_us[2] = {1, 1};
  for (int32_t c = 0; c < r->n_cores; c++) core_us[r->core[c].kind == 'v'] += r->core[c].end - r->core[c].start;
  for (int32_t i = 0; i < r->n_stmts; i++) {
    line[i] = (Line){&r->stmt[i], 0, i};
    for (int x = 0; x < SIM_IDLE_COUNT; x++) line[i].waits += r->stmt[i].idle[x];
  }
  qsort(line, (size_t)r->n_stmts, sizeof *line, by_time);
  text_put(t, "\n    busy   waits      count  pipe          where             statement");
  text_put(t, " (shares of the time of its cores)\n");
  for (int32_t i = 0; i < r->n_stmts && i < 16; i++) {
    const SimTimeStmt *s = line[i].s;
    if (!s->busy && !line[i].waits) break;
    double all = (double)core_us[s->side == 'v'];
    Text one;
    text_init(&one, t->arena);
    ir_print_stmt(&one, k, s->stmt);
    text_printf(t, "  %5.1f%%  %5.1f%%  %9lld  %-6s %-5s  %-16s  %s\n", 100 * (double)s->busy / all,
                100 * (double)line[i].waits / all, (long long)s->count, s->side == 'c' ? "cube" : "vector",
                pipe_info[s->pipe].name, ir_loc_str(t->arena, k->module, s->stmt->loc), text_str(&one));
  }
}

void sim_time_text(Text *t, const IrKernel *k, const Arch *arch, const SimTime *r) {
  int64_t l2 = r->l2_hit_bytes + r->l2_miss_bytes;
  text_printf(t, "@%s on %s: %.2f us, %lld cycles of %.0f MHz; %lld blocks on %d of %d cores, %lld instructions\n",
              k->name, arch->name, r->us, (long long)((r->ticks + 128) / 256), r->mhz, (long long)r->blocks, r->groups,
              r->groups_there, (long long)r->instructions);
  text_printf(t,
              "GM read %.2f MB, written %.2f MB; L2 hit %.1f%% of the bytes read; HBM read %.2f MB, written %.2f MB\n",
              (double)r->gm_read_bytes * 1e-6, (double)r->gm_write_bytes * 1e-6,
              l2 ? 100 * (double)r->l2_hit_bytes / (double)l2 : 0, (double)r->l2_miss_bytes * 1e-6,
              (double)r->write_back_bytes * 1e-6);
  text_pipes(t, r);
  text_stmts(t, k, r);
}
