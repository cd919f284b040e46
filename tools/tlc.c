/* tlc.c - the command line of the compiler: one verb for each arrow of the data flow. Sees the public header only.
 *
 * Results go to the standard output, diagnostics to the standard error.
 * Exit status: 0 done, 1 the program has an error (diagnostics say which), 2 the command line or a file is wrong. */
#include "tilelang.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, FAILED = 1, USAGE = 2, MAX_SETTINGS = 64 };

static const char usage[] =
    "usage: tlc COMMAND [OPTION...] FILE.tl...        FILE - is the standard input\n"
    "\n"
    "  check     parse and verify\n"
    "  fmt       print canonical text; -w writes it back to the file\n"
    "  opt       run passes and print the IR; -p PASS[,PASS...] prints after these and stops at the last one\n"
    "  emit      write C++ for the chip; -t ascendc (= auto) or pto\n"
    "  build     write source, C header, launcher, CMake file and description into the directory -o; -t as for emit\n"
    "  sim       run the kernel on the simulated chip and print the results' checksums\n"
    "  twin      the written Ascend C, run on this host with the headers of an installed toolkit: does it do what\n"
    "            the simulated chip does? Arguments as for sim\n"
    "  cost      the least time the kernel can take, by pipe, in closed form; scalars by --arg\n"
    "  replay    run a call that kernel.reproduce() wrote to a file; does the same come out?\n"
    "  explain   what was chosen and why: memories, addresses, flags, times\n"
    "            with TLnnnn in place of a file: the page about that code\n"
    "  passes    list the passes in order\n"
    "  chips     list the chips\n"
    "  doctor    what this machine has to build and launch kernels with, and what to do; needs no file\n"
    "\n"
    "  --chip NAME          the chip to lower for (tlc chips)\n"
    "  --no-auto-sync       keep only flags and barriers that are written in the text\n"
    "  --no-auto-memory     no reuse of addresses\n"
    "  --verify             read the printed text back after every pass\n"
    "  --json               diagnostics, explain, doctor and sim results as JSON\n"
    "  -o FILE              write the result (fmt, opt, emit, explain, sim --time) to FILE\n"
    "\n"
    "  sim:\n"
    "  --arg NAME=VALUE     a scalar: a number; a tensor: zeros, ones, iota, rand:SEED, FILE.npy\n"
    "                       or FILE.bin (its bytes as they stand)\n"
    "                       (a tensor that is not named: rand:1; an output: zeros)\n"
    "  --out NAME=FILE      save a tensor afterwards; FILE.bin: its bytes as they stand, else .npy\n"
    "  --no-checks          functional run without the sanitizer\n"
    "  --time               how long it takes on the chip, and where; runs the kernel first if --arg gives a tensor\n"
    "  --set NAME=VALUE     --time: another value of a constant of the chip's timing table\n"
    "  --threads N          host threads; 0: one for each host core\n"
    "  --schedule SEED      another order of the pipes that the chip allows; 0: the usual one\n"
    "\n"
    "  doctor:\n"
    "  --root DIR           look at the tree below DIR instead of this machine's\n"
    "  --python EXE         the Python that torch_npu is looked for in; else python3 on PATH\n"
    "\n"
    "exit status: 0 done, 1 error in the program (doctor: something is missing; twin, replay: it differs), 2 wrong\n"
    "usage or file\n";

typedef struct {
  const char *name, *value;
  size_t len, room; /* of a value that grows while a record is read; room 0: given on the command line */
} Setting;
typedef struct {
  const char *command, *file, *out, *chip, *target, *passes, *root, *python, *constants;
  const char *files[64];
  int n_files;
  int json, write_back, no_auto_sync, no_auto_memory, verify, no_checks, time, cost, twin;
  unsigned long long threads, schedule;
  Setting args[MAX_SETTINGS], outs[MAX_SETTINGS], results[MAX_SETTINGS];
  const char *fault; /* replay: the code of the first error that was recorded */
  int n_results, *compared; /* replay: set when the run came to its end */
  int n_args, n_outs;
} Options;

static int fail(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fputs("tlc: ", stderr);
  vfprintf(stderr, fmt, ap);
  fputs("\n", stderr);
  va_end(ap);
  return USAGE;
}

/* ---- the command line ------------------------------------------------------------------------------------- */

static int add_setting(Setting *list, int *n, char *text) {
  char *eq = strchr(text, '='), *name = text + (*text == '%');
  if (!eq || eq == text) return fail("expected NAME=VALUE, found '%s'", text);
  if (*n == MAX_SETTINGS) return fail("more than %d settings", MAX_SETTINGS);
  *eq = 0;
  for (int i = 0; i < *n; i++)
    if (!strcmp(list[i].name, name)) return fail("%%%s is given twice", name);
  list[(*n)++] = (Setting){name, eq + 1, 0, 0};
  return OK;
}

/* A whole number of digits; 0 after a message. */
static int read_count(const char *what, const char *text, unsigned long long *out) {
  char *end;
  errno = 0;
  *out = strtoull(text, &end, 10);
  if (*text >= '0' && *text <= '9' && !*end && !errno) return 1;
  return fail("%s: '%s' is not a whole number from 0 to %llu", what, text, ULLONG_MAX), 0;
}

typedef struct {
  const char *name;
  enum { FLAG, TEXT, NUMBER, SETTING } kind;
  void *to;
  int *count;           /* SETTING: how many there are */
  const char *commands; /* that it means something to */
} Option;

#define LOWERS "opt emit build sim twin cost replay explain"

static int read_option(const Option *x, char *value, const char *command) {
  if (!strstr(x->commands, command)) return fail("%s means nothing to %s; see tlc help", x->name, command);
  if (x->kind != FLAG && !value) return fail("option %s needs a value", x->name);
  if (x->kind == FLAG) *(int *)x->to = 1;
  if (x->kind == TEXT) *(const char **)x->to = value;
  if (x->kind == SETTING) return add_setting(x->to, x->count, value);
  if (x->kind == NUMBER) return read_count(x->name, value, x->to) ? OK : USAGE;
  return OK;
}

static int parse_options(int argc, char **argv, Options *o) {
  const Option options[] = {
      {"--json", FLAG, &o->json, NULL, "check fmt doctor " LOWERS},
      {"--chip", TEXT, &o->chip, NULL, LOWERS},
      {"--no-auto-sync", FLAG, &o->no_auto_sync, NULL, LOWERS},
      {"--no-auto-memory", FLAG, &o->no_auto_memory, NULL, LOWERS},
      {"--verify", FLAG, &o->verify, NULL, LOWERS},
      {"-w", FLAG, &o->write_back, NULL, "fmt"},
      {"-o", TEXT, &o->out, NULL, "fmt opt emit build explain sim cost doctor"},
      {"-t", TEXT, &o->target, NULL, "emit build"},
      {"--target", TEXT, &o->target, NULL, "emit build"},
      {"-p", TEXT, &o->passes, NULL, "opt"},
      {"--arg", SETTING, o->args, &o->n_args, "sim twin cost replay"},
      {"--out", SETTING, o->outs, &o->n_outs, "sim"},
      {"--no-checks", FLAG, &o->no_checks, NULL, "sim twin replay"},
      {"--threads", NUMBER, &o->threads, NULL, "sim twin replay"},
      {"--schedule", NUMBER, &o->schedule, NULL, "sim replay"},
      {"--time", FLAG, &o->time, NULL, "sim"},
      {"--set", TEXT, &o->constants, NULL, "sim"},
      {"--root", TEXT, &o->root, NULL, "doctor"},
      {"--python", TEXT, &o->python, NULL, "doctor"}};
  for (int i = 2; i < argc; i++) {
    char *a = argv[i];
    if (a[0] != '-' || !a[1]) {
      if (o->n_files == 64) return fail("more than 64 files");
      o->files[o->n_files++] = a;
      continue;
    }
    const Option *x = options, *end = options + sizeof options / sizeof *options;
    while (x < end && strcmp(a, x->name)) x++;
    if (x == end) return fail("unknown option %s; tlc help lists the options", a);
    int status = read_option(x, x->kind == FLAG ? NULL : argv[i + 1], o->command);
    if (status) return status;
    i += x->kind != FLAG;
  }
  if (o->threads > INT_MAX) return fail("--threads: there are no %llu threads", o->threads);
  if (!strcmp(o->command, "sim") && !o->time && (o->out || o->constants))
    return fail("%s goes with --time", o->out ? "-o" : "--set");
  if (o->out && o->n_files > 1) return fail("-o is for one file, %d are given", o->n_files);
  return OK;
}

/* The whole file; NULL after a message. The caller frees it. */
static char *read_file(const char *path, size_t *len) {
  FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
  if (!f) {
    fail("cannot open '%s': %s", path, strerror(errno));
    return NULL;
  }
  size_t cap = 1 << 16, n = 0, got;
  char *text = malloc(cap);
  while (text && (got = fread(text + n, 1, cap - n, f)) > 0) {
    n += got;
    if (n < cap) continue;
    char *grown = realloc(text, cap *= 2);
    if (!grown) free(text);
    text = grown;
  }
  int bad = ferror(f) || !text;
  const char *why = strerror(text ? errno : ENOMEM);
  if (f != stdin) fclose(f);
  if (bad) {
    fail("cannot read '%s': %s", path, why);
    free(text);
    return NULL;
  }
  *len = n;
  return text;
}

static int write_file(const char *path, const void *head, size_t head_len, const void *data, size_t len) {
  FILE *f = path ? fopen(path, "wb") : stdout;
  if (!f) return fail("cannot open '%s' for writing: %s", path, strerror(errno));
  int bad = fwrite(head, 1, head_len, f) != head_len || fwrite(data, 1, len, f) != len;
  bad |= path ? fclose(f) != 0 : fflush(f) != 0;
  return bad ? fail("cannot write %s: %s", path ? path : "the standard output", strerror(errno)) : OK;
}

static int write_text(const char *path, const char *text) { return write_file(path, "", 0, text, strlen(text)); }

/* On a terminal: severities, carets and fixes in colour, and where to read more. */
static void show_in_color(const char *text) {
  static const struct { const char *word, *color; } words[] = {
      {" error TL", "1;31"}, {" warning TL", "1;35"}, {" note TL", "1;36"}, {"  fix:", "1;32"}, {"^", "1;32"}};
  const char *code = NULL;
  for (const char *end; *text; text = end) {
    end = text + strcspn(text, "\n");
    end += *end != 0;
    size_t from = 0, to = 0, w = 0;
    for (; w < sizeof words / sizeof *words && !to; w++) {
      const char *at = strstr(text, words[w].word);
      if (!at || at >= end || (w == 4 && strspn(text, " ") != (size_t)(at - text))) continue;
      from = (size_t)(at - text);
      to = from + strlen(words[w].word) + (w < 3 ? 4 : 0);
      if (w < 3 && !code) code = text + to - 6;
    }
    if (to)
      fprintf(stderr, "%.*s\033[%sm%.*s\033[0m", (int)from, text, words[w - 1].color, (int)(to - from), text + from);
    fwrite(text + to, 1, (size_t)(end - text) - to, stderr);
  }
  if (code) fprintf(stderr, "\nmore: tlc explain %.6s\n", code);
}

static void show_diags(TlContext *c, const Options *o) {
  const char *plain = getenv("NO_COLOR");
  if (o->json) fputs(tl_diags_json(c), stderr);
  else if (isatty(STDERR_FILENO) && !(plain && *plain)) show_in_color(tl_diags_text(c));
  else fputs(tl_diags_text(c), stderr);
}

/* ---- check, fmt, opt, emit, explain ----------------------------------------------------------------------- */

static int lower(TlContext *c, const Options *o, const char *last, int keep) {
  TlLower l = {.chip = o->chip, .last = last, .no_auto_sync = o->no_auto_sync, .no_auto_memory = o->no_auto_memory,
               .keep_text = keep, .verify_each = o->verify};
  return tl_lower(c, &l) ? OK : FAILED;
}

static int run_opt(TlContext *c, const Options *o) {
  if (!o->passes) {
    int status = lower(c, o, NULL, 0);
    return status ? status : write_text(o->out, tl_text(c));
  }
  char list[512];
  if (strlen(o->passes) >= sizeof list) return fail("the list of passes is too long");
  strcpy(list, o->passes);
  const char *comma = strrchr(o->passes, ',');
  int status = lower(c, o, comma ? comma + 1 : o->passes, 1), several = comma != NULL;
  if (status) return status;
  for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
    const char *text = tl_text_after(c, name);
    if (!text && !tl_error_count(c)) text = tl_text(c);
    if (!text) return FAILED;
    if (several) printf("; after %s\n", name);
    if ((status = write_text(o->out, text))) return status;
  }
  return OK;
}

static int run_emit(TlContext *c, const Options *o) {
  int status = lower(c, o, NULL, 0);
  const char *text = status ? NULL : tl_emit(c, o->target);
  return text ? write_text(o->out, text) : FAILED;
}

static int run_build(TlContext *c, const Options *o) {
  if (!o->out) return fail("build needs a directory: -o DIR");
  int status = lower(c, o, NULL, 0);
  return status ? status : tl_export(c, o->target, o->out) ? OK : FAILED;
}

static int run_explain(TlContext *c, const Options *o) {
  int status = lower(c, o, NULL, 0);
  if (status) return status;
  const char *text = o->json ? tl_explain_json(c) : tl_explain(c);
  return text ? write_text(o->out, text) : FAILED;
}

/* ---- elements of tensors ---------------------------------------------------------------------------------- */

/* How a dtype lies in memory: kind 'f' float, 'i' signed, 'u' unsigned, 'b' bool; npy: its name in .npy files. */
typedef struct { const char *name; char kind; int exp_bits, man_bits; const char *npy; } Format;
static const Format formats[] = {
    {"f16", 'f', 5, 10, "<f2"}, {"bf16", 'f', 8, 7, "<V2"}, {"f32", 'f', 8, 23, "<f4"}, {"e4m3", 'f', 4, 3, "|V1"},
    {"e5m2", 'f', 5, 2, "|V1"}, {"i8", 'i', 0, 7, "|i1"},   {"i16", 'i', 0, 15, "<i2"}, {"i32", 'i', 0, 31, "<i4"},
    {"i64", 'i', 0, 62, "<i8"}, {"u8", 'u', 0, 8, "|u1"},   {"u16", 'u', 0, 16, "<u2"}, {"u32", 'u', 0, 32, "<u4"},
    {"u64", 'u', 0, 62, "<u8"}, {"bool", 'b', 0, 1, "|b1"},
    {"i4x2", 'i', 0, 7, "|i1"}}; /* two a byte: as bytes */

static const Format *format_of(const char *dtype) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (!strcmp(formats[i].name, dtype)) return &formats[i];
  return NULL;
}

/* The bits of v, which the format must hold exactly. */
static uint64_t encode(const Format *f, double v) {
  if (f->kind != 'f') return (uint64_t)(int64_t)v;
  if (v == 0) return 0;
  int e, width = f->exp_bits + f->man_bits;
  double m = frexp(fabs(v), &e) * 2; /* 1 <= m < 2, |v| = m * 2^(e-1) */
  uint64_t mantissa = (uint64_t)ldexp(m - 1, f->man_bits), exponent = (uint64_t)(e - 1 + (1 << (f->exp_bits - 1)) - 1);
  return (uint64_t)(v < 0) << width | exponent << f->man_bits | mantissa;
}

static double decode(const Format *f, uint64_t bits, int bytes) {
  if (f->kind == 'u') return (double)bits;
  if (f->kind == 'b') return bits != 0;
  if (f->kind == 'i') return (double)((int64_t)(bits << (64 - 8 * bytes)) >> (64 - 8 * bytes));
  int bias = (1 << (f->exp_bits - 1)) - 1, top = (1 << f->exp_bits) - 1;
  int exponent = (int)(bits >> f->man_bits) & top;
  uint64_t mantissa = bits & ((1ull << f->man_bits) - 1);
  double sign = bits >> (f->exp_bits + f->man_bits) & 1 ? -1 : 1;
  if (!strcmp(f->name, "e4m3")) { /* no infinities; one NaN */
    if (exponent == top && mantissa == 7) return NAN;
  } else if (exponent == top) {
    return mantissa ? NAN : sign * INFINITY;
  }
  if (!exponent) return sign * ldexp((double)mantissa, 1 - bias - f->man_bits);
  return sign * ldexp((double)(mantissa | 1ull << f->man_bits), exponent - bias - f->man_bits);
}

static uint64_t load(const void *p, int bytes) {
  uint64_t v = 0;
  memcpy(&v, p, (size_t)bytes);
  return v;
}

static uint64_t splitmix(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* Random values are few and small (eighths from -1 to 1; integers from -8 to 8), so that sums of them are exact. */
static double random_value(const Format *f, uint64_t *state) {
  int64_t k = (int64_t)(splitmix(state) % 17) - 8;
  if (f->kind == 'f') return (double)k / 8;
  if (f->kind == 'b') return k & 1;
  return f->kind == 'u' ? (double)(k + 8) : (double)k;
}

typedef struct { TlParam p; const Format *f; int64_t count; unsigned char *data; uint32_t crc; } Tensor;

static int fill(Tensor *t, const char *how, int seed_mix) {
  unsigned long long given = 1;
  int random = !strncmp(how, "rand", 4) && (!how[4] || how[4] == ':');
  int ones = !strcmp(how, "ones"), iota = !strcmp(how, "iota");
  if (!random && !ones && !iota && strcmp(how, "zeros"))
    return fail("%%%s: '%s' is not zeros, ones, iota, rand:SEED, FILE.npy or FILE.bin", t->p.name, how);
  if (random && how[4] && !read_count(t->p.name, how + 5, &given)) return USAGE;
  uint64_t seed = given * 1000003u + (uint64_t)seed_mix;
  int64_t wrap = t->f->kind == 'b' ? 2 : (int64_t)1 << (t->f->kind == 'f' ? t->f->man_bits + 1 : t->f->man_bits);
  for (int64_t i = 0; i < t->count; i++) {
    double v = random ? random_value(t->f, &seed) : ones ? 1 : iota ? (double)(i % wrap) : 0;
    uint64_t bits = encode(t->f, v);
    memcpy(t->data + i * t->p.bytes, &bits, (size_t)t->p.bytes);
  }
  return OK;
}

/* Standard base64 without line ends. */
static int fill_base64(Tensor *t, const char *s) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t n = 0, bytes = (size_t)t->count * (size_t)t->p.bytes;
  uint32_t bits = 0, have = 0;
  for (; *s && *s != '='; s++) {
    const char *d = strchr(digits, *s);
    if (!d) return fail("%%%s: '%c' is no digit of base64", t->p.name, *s);
    bits = bits << 6 | (uint32_t)(d - digits);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    if (n < bytes) t->data[n] = (unsigned char)(bits >> have);
    n++;
  }
  return n == bytes ? OK : fail("%%%s has %zu bytes, the file holds %zu", t->p.name, bytes, n);
}

static uint32_t crc32_of(const unsigned char *p, size_t n) {
  uint32_t table[256], crc = ~0u;
  for (uint32_t i = 0; i < 256; i++) {
    table[i] = i;
    for (int b = 0; b < 8; b++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
  }
  for (size_t i = 0; i < n; i++) crc = crc >> 8 ^ table[(crc ^ p[i]) & 255];
  return ~crc;
}

/* ---- .npy -------------------------------------------------------------------------------------------------- */

static void npy_shape(char *s, size_t size, const Tensor *t, const int64_t *shape) {
  size_t n = 0;
  for (int d = 0; d < t->p.rank && n < size; d++) n += (size_t)snprintf(s + n, size - n, "%lld, ", (long long)shape[d]);
  if (t->p.rank > 1 && n >= 2) s[n - 2] = 0;
  else if (n) s[n - 1] = 0;
}

static int read_npy(Tensor *t, const int64_t *shape, const char *path) {
  size_t len = 0;
  char *file = read_file(path, &len), want[256], *found = NULL;
  if (!file) return USAGE;
  const unsigned char *u = (const unsigned char *)file;
  size_t start = len < 12 || memcmp(file, "\x93NUMPY", 6) ? 0 : u[6] == 1 ? 10u : 12u;
  size_t head = start == 10 ? u[8] | (size_t)u[9] << 8 : start ? load(u + 8, 4) : 0;
  int status = OK;
  size_t bytes = (size_t)t->count * (size_t)t->p.bytes;
  if (!start || head > len - start) {
    status = fail("%s is not a .npy file", path);
  } else {
    char *dict = malloc(head + 1);
    if (!dict) exit(USAGE);
    memcpy(dict, file + start, head);
    dict[head] = 0;
    for (size_t end = head; end && strchr(" \n", dict[end - 1]); end--) dict[end - 1] = 0; /* padding */
    snprintf(want, sizeof want, "'descr': '%s'", t->f->npy);
    char other[64];
    snprintf(other, sizeof other, "'descr': '|V%d'", t->p.bytes);
    if (!strstr(dict, want) && !(t->f->npy[1] == 'V' && strstr(dict, other)))
      status = fail("%s: %%%s has dtype %s, the file says %s", path, t->p.name, t->p.dtype, dict);
    npy_shape(other, sizeof other, t, shape);
    snprintf(want, sizeof want, "'shape': (%s)", other);
    found = strstr(dict, want);
    if (!status && (!found || (strstr(dict, "'fortran_order': True") && t->p.rank > 1)))
      status = fail("%s: %%%s has shape (%s) in row-major order, the file says %s", path, t->p.name, other, dict);
    if (!status && len - start - head < bytes) status = fail("%s is too short", path);
    if (!status) memcpy(t->data, file + start + head, bytes);
    free(dict);
  }
  free(file);
  return status;
}

static int read_raw(Tensor *t, const char *path) {
  size_t len = 0, bytes = (size_t)t->count * (size_t)t->p.bytes;
  char *file = read_file(path, &len);
  if (!file) return USAGE;
  int status = len == bytes ? OK : fail("%s: %%%s has %zu bytes, the file %zu", path, t->p.name, bytes, len);
  if (!status) memcpy(t->data, file, bytes);
  free(file);
  return status;
}

static int write_npy(const Tensor *t, const int64_t *shape, const char *path) {
  char dims[256] = "", dict[512], head[1024] = "\x93NUMPY\x01";
  npy_shape(dims, sizeof dims, t, shape);
  snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", t->f->npy, dims);
  size_t n = strlen(dict) + 11, total = (n + 63) / 64 * 64;
  head[8] = (char)(total - 10);
  head[9] = (char)((total - 10) >> 8);
  memset(head + 10, ' ', total - 11);
  memcpy(head + 10, dict, strlen(dict));
  head[total - 1] = '\n';
  return write_file(path, head, total, t->data, (size_t)t->count * (size_t)t->p.bytes);
}

/* ---- sim --------------------------------------------------------------------------------------------------- */

static const char *setting(const Setting *list, int n, const char *name) {
  for (int i = n - 1; i >= 0; i--)
    if (!strcmp(list[i].name, name)) return list[i].value;
  return NULL;
}

static int read_scalar(const Options *o, const TlParam *p, TlArg *arg) {
  const char *text = setting(o->args, o->n_args, p->name);
  if (setting(o->outs, o->n_outs, p->name)) return fail("%%%s is a scalar; --out saves a tensor", p->name);
  if (!text) return fail("%%%s: %s is a scalar without a value; add --arg %s=VALUE", p->name, p->dtype, p->name);
  const Format *f = format_of(p->dtype);
  int bits = 8 * p->bytes, big = f->kind == 'u' && bits == 64;
  char *end;
  errno = 0;
  if (f->kind == 'f') arg->scalar.f = strtod(text, &end);
  else if (big) arg->scalar.i = (int64_t)strtoull(text, &end, 0);
  else arg->scalar.i = strtoll(text, &end, 0);
  if (!*text || *end) return fail("%%%s: '%s' is not a number", p->name, text);
  int64_t low = f->kind == 'i' ? -(INT64_C(1) << (bits - 1)) : 0, high = f->kind == 'b' ? 1 : ~low;
  if (f->kind == 'u' && !big) high = (INT64_C(1) << bits) - 1;
  int fits = f->kind == 'f' || (!errno && (big ? !strchr(text, '-') : arg->scalar.i >= low && arg->scalar.i <= high));
  return fits ? OK : fail("%%%s: %s does not hold %s", p->name, p->dtype, text);
}

static int make_tensor(const Options *o, Tensor *t, TlArg *arg, int index) {
  t->f = format_of(t->p.dtype);
  if (!t->f) return fail("%%%s: data of %s cannot be given here", t->p.name, t->p.dtype);
  t->count = 1;
  for (int d = 0; d < t->p.rank; d++)
    if (__builtin_mul_overflow(t->count, arg->shape[d], &t->count) || t->count > (int64_t)1 << 40)
      return fail("%%%s is too large", t->p.name);
  t->data = arg->data = calloc((size_t)t->count + 1, (size_t)t->p.bytes);
  if (!t->data) return fail("no memory for %%%s", t->p.name);
  const char *how = setting(o->args, o->n_args, t->p.name);
  size_t n = how ? strlen(how) : 0;
  int status;
  if (n > 4 && !strcmp(how + n - 4, ".npy")) status = read_npy(t, arg->shape, how);
  else if (n > 4 && !strcmp(how + n - 4, ".bin")) status = read_raw(t, how);
  else if (how && !strncmp(how, "base64:", 7)) status = fill_base64(t, how + 7);
  else if (how && !strcmp(how, "poison")) memset(t->data, 0xff, (size_t)t->count * (size_t)t->p.bytes), status = OK;
  else status = fill(t, how ? how : t->p.is_out || t->p.is_workspace ? "zeros" : "rand", index);
  t->crc = crc32_of(t->data, (size_t)t->count * (size_t)t->p.bytes);
  return status;
}

static void print_tensor(const Options *o, const Tensor *t, const int64_t *shape, int *n) {
  uint32_t crc = crc32_of(t->data, (size_t)t->count * (size_t)t->p.bytes);
  if (t->p.is_workspace || (!t->p.is_out && crc == t->crc)) return;
  double sum = 0, low = INFINITY, high = -INFINITY;
  for (int64_t i = 0; i < t->count; i++) {
    double v = decode(t->f, load(t->data + i * t->p.bytes, t->p.bytes), t->p.bytes);
    sum += v;
    low = v < low ? v : low;
    high = v > high ? v : high;
  }
  char dims[256] = "";
  npy_shape(dims, sizeof dims, t, shape);
  if (t->p.rank == 1) dims[strlen(dims) - 1] = 0;
  if (o->json)
    printf("%s\n {\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":[%s],\"crc32\":\"%08x\"}", (*n)++ ? "," : "", t->p.name,
           t->p.dtype, dims, crc);
  else
    printf("%%%s %s[%s] crc32 %08x sum %.9g min %.9g max %.9g\n", t->p.name, t->p.dtype, dims, crc, sum, low, high);
}

/* ---- replay: what tilelang/debug/reproduce.py records ------------------------------------------------------ */

/* Adds `more` to the value of a name in a list, or a new name, unless the command line has it; the strings live as long
 * as the program. Room doubles: a tensor has thousands of lines. */
static int append_setting(Setting *list, int *n, const char *name, const char *lead, const char *more) {
  int i = 0;
  while (i < *n && strcmp(list[i].name, name)) i++;
  if (i == MAX_SETTINGS) return fail("more than %d settings", MAX_SETTINGS);
  if (i < *n && !list[i].room) return OK;
  Setting *s = &list[i];
  if (i == *n) *s = (Setting){.name = name}, ++*n;
  else lead = "";
  size_t n_lead = strlen(lead), n_more = strlen(more), len = s->len + n_lead + n_more;
  if (len >= s->room) s->room = 2 * len + 64;
  char *value = realloc((char *)s->value, s->room);
  if (!value) exit(fail("no memory"));
  memcpy(value + s->len, lead, n_lead);
  memcpy(value + s->len + n_lead, more, n_more + 1);
  s->value = value;
  s->len = len;
  return OK;
}

/* The next word of a line, cut off in place; NULL at its end. */
static char *next_word(char **line) {
  char *word = *line + strspn(*line, " \r");
  size_t n = strcspn(word, " \r");
  *line = word + n + (word[n] != 0);
  word[n] = 0;
  return n ? word : NULL;
}

/* One line behind ";!". */
static int read_words(Options *o, char *line) {
  char *word = next_word(&line), *a = next_word(&line), *b = next_word(&line);
  if (!word || !a) return OK;
  if (!strcmp(word, "chip") && !o->chip) o->chip = a;
  if (!strcmp(word, "fault") || !strcmp(word, "error")) o->fault = a;
  if (!strcmp(word, "option")) {
    o->no_auto_sync |= !strcmp(a, "no-auto-sync");
    o->no_auto_memory |= !strcmp(a, "no-auto-memory");
    o->no_checks |= !strcmp(a, "no-checks");
    if (!strcmp(a, "schedule") && b) o->schedule = strtoull(b, NULL, 10);
  }
  if (!strcmp(word, "poison")) return append_setting(o->args, &o->n_args, a, "", "poison");
  if (!strcmp(word, "data")) return append_setting(o->args, &o->n_args, a, "base64:", b ? b : "");
  if (b && !strcmp(word, "arg")) return append_setting(o->args, &o->n_args, a, "", b);
  if (b && !strcmp(word, "result")) return append_setting(o->results, &o->n_results, a, "", b);
  return OK;
}

/* Cuts the text into words, which settings point to. */
static int read_record(Options *o, char *text) {
  int status = OK, any = 0;
  for (char *line = text, *end; line && !status; line = end) {
    end = strchr(line, '\n');
    if (end) *end++ = 0;
    if (strncmp(line, ";! ", 3)) continue;
    any = 1;
    status = read_words(o, line + 3);
  }
  return status || any ? status : fail("the file records no call; kernel.reproduce(path, ...) writes one");
}

/* The code of the first error, or "". */
static void first_error(TlContext *c, char code[8]) {
  const char *json = tl_diags_json(c), *at = json ? strstr(json, "\"severity\":\"error\"") : NULL;
  *code = 0;
  for (const char *p = json; at && (p = strstr(p, "\"code\":\"")) && p < at; p++) snprintf(code, 8, "%.6s", p + 8);
}

static int say_outcome(const Options *o, const char *now) {
  int same = !strcmp(now, o->fault ? o->fault : "");
  if (same) printf("the same as recorded: %s\n", *now ? now : "the same bytes");
  else printf("not as recorded: %s, recorded %s\n", *now ? now : "no error", o->fault ? o->fault : "no error");
  return same ? OK : FAILED;
}

static int compare_results(TlContext *c, const Options *o, const Tensor *t, int n) {
  char code[8];
  *o->compared = 1;
  first_error(c, code);
  for (int i = 0; i < n && !*code && !o->fault; i++) {
    const char *want = t[i].p.is_tensor ? setting(o->results, o->n_results, t[i].p.name) : NULL;
    uint32_t crc = want ? crc32_of(t[i].data, (size_t)t[i].count * (size_t)t[i].p.bytes) : 0;
    if (!want || strtoul(want, NULL, 16) == crc) continue;
    printf("not as recorded: %%%s has crc32 %08x, recorded %s\n", t[i].p.name, crc, want);
    return FAILED;
  }
  return say_outcome(o, code);
}

static int run_sim(TlContext *c, const Options *o);

static int replay(const Options *given, const char *path, const char *text, size_t len) {
  Options o = *given;
  char code[8];
  int compared = 0;
  o.compared = &compared;
  char *record = malloc(len + 1);
  TlContext *c = tl_open(NULL, NULL);
  if (!c || !record) exit(fail("no memory"));
  memcpy(record, text, len);
  record[len] = 0;
  int status = read_record(&o, record);
  if (!status) {
    status = tl_load(c, path, text, len) ? run_sim(c, &o) : FAILED;
    first_error(c, code);
    if (status == FAILED && !compared) status = say_outcome(&o, code); /* the compiler's error */
    show_diags(c, &o);
  }
  tl_close(c);
  free(record);
  return status;
}

static int simulate(TlContext *c, const Options *o, Tensor *t, TlArg *args, int n) {
  TlSim s = {.checks = !o->no_checks, .threads = (int)o->threads, .schedule = o->schedule, .record = o->time};
  TlSimResult r;
  TlPrinted x;
  int ok = tl_sim(c, args, n, &s, &r), printed = 0, status = OK;
  for (int i = 0; tl_printed_at(c, i, &x); i++)
    fprintf(o->json ? stderr : stdout, "%s:%d %s: %s%s", x.file, x.line, x.where, x.text,
            *x.text && x.text[strlen(x.text) - 1] == '\n' ? "" : "\n");
  if (o->compared) return compare_results(c, o, t, n);
  if (!ok) return FAILED;
  if (o->json)
    printf("{\"blocks\":%lld,\"instructions\":%lld,\"gm_read_bytes\":%lld,\"gm_write_bytes\":%lld,\"cores_used\":%d,"
           "\"cores\":%d,\"results\":[",
           (long long)r.blocks, (long long)r.instructions, (long long)r.gm_read_bytes, (long long)r.gm_write_bytes,
           r.cores_used, r.cores);
  else
    printf("%lld blocks, %lld instructions, %d of %d cores, GM read %lld bytes, written %lld bytes\n",
           (long long)r.blocks, (long long)r.instructions, r.cores_used, r.cores, (long long)r.gm_read_bytes,
           (long long)r.gm_write_bytes);
  for (int i = 0; i < n; i++)
    if (t[i].p.is_tensor) print_tensor(o, &t[i], args[i].shape, &printed);
  if (o->json) printf("]}\n");
  for (int i = 0; i < n && !status; i++) {
    const char *path = t[i].p.is_tensor ? setting(o->outs, o->n_outs, t[i].p.name) : NULL;
    size_t len = path ? strlen(path) : 0;
    if (len > 4 && !strcmp(path + len - 4, ".bin"))
      status = write_file(path, "", 0, t[i].data, (size_t)t[i].count * (size_t)t[i].p.bytes);
    else if (path) status = write_npy(&t[i], args[i].shape, path);
  }
  return status;
}

static int same_element(const Tensor *t, const unsigned char *a, const unsigned char *b) {
  if (!memcmp(a, b, (size_t)t->p.bytes)) return 1;
  return t->f->kind == 'f' && isnan(decode(t->f, load(a, t->p.bytes), t->p.bytes)) &&
         isnan(decode(t->f, load(b, t->p.bytes), t->p.bytes));
}

/* One tensor of the twin against the simulator's, any NaN like another: 1 if it differs. */
static int compare_tensor(const Options *o, const Tensor *t, const unsigned char *got, int *n) {
  int64_t differ = 0, first = -1;
  for (int64_t i = 0; i < t->count; i++)
    if (!same_element(t, got + i * t->p.bytes, t->data + i * t->p.bytes) && !differ++) first = i;
  if (o->json) {
    printf("%s\n {\"name\":\"%s\",\"same\":%s,\"elements\":%lld,\"differ\":%lld", (*n)++ ? "," : "", t->p.name,
           differ ? "false" : "true", (long long)t->count, (long long)differ);
    if (differ) printf(",\"first\":%lld", (long long)first);
    printf("}");
  } else if (differ) {
    printf("%%%s: %lld of %lld elements differ; element %lld is %.9g, the simulator has %.9g\n", t->p.name,
           (long long)differ, (long long)t->count, (long long)first,
           decode(t->f, load(got + first * t->p.bytes, t->p.bytes), t->p.bytes),
           decode(t->f, load(t->data + first * t->p.bytes, t->p.bytes), t->p.bytes));
  } else {
    printf("%%%s: same\n", t->p.name);
  }
  return differ != 0;
}

/* The twin on a copy of the arguments, then the simulator; what the twin found are diagnostics. */
static int twin_kernel(TlContext *c, const Options *o, Tensor *t, TlArg *args, int n) {
  TlArg *mine = calloc((size_t)n + 1, sizeof *mine);
  if (!mine) exit(fail("no memory"));
  for (int i = 0; i < n; i++) {
    mine[i] = args[i];
    if (!t[i].p.is_tensor) continue;
    size_t size = (size_t)t[i].count * (size_t)t[i].p.bytes;
    if (!(mine[i].data = malloc(size + 1))) exit(fail("no memory"));
    memcpy(mine[i].data, t[i].data, size);
  }
  int ran = tl_twin(c, mine, n, NULL), differ = 0, printed = 0;
  char code[8];
  first_error(c, code);
  if (!ran && strcmp(code, "TL1115")) return FAILED; /* it could not be run */
  int ok = tl_sim(c, args, n, &(TlSim){.checks = !o->no_checks, .threads = (int)o->threads}, NULL) && ran;
  if (o->json) printf("{\"faults\":%d,\"results\":[", tl_error_count(c));
  for (int i = 0; i < n; i++) {
    if (t[i].p.is_tensor && !t[i].p.is_workspace) differ |= compare_tensor(o, &t[i], mine[i].data, &printed);
    if (t[i].p.is_tensor) free(mine[i].data);
  }
  if (o->json) printf("],\"same\":%s}\n", ok && !differ ? "true" : "false");
  free(mine);
  return ok && !differ ? OK : FAILED;
}

static int time_kernel(TlContext *c, const Options *o, const TlArg *args, int n) {
  TlTime t = {.constants = o->constants, .follow = 1};
  if (!tl_time(c, args, n, &t, NULL)) return FAILED;
  return write_text(o->out, o->json ? tl_time_json(c) : tl_time_text(c));
}

static int cost_kernel(TlContext *c, const Options *o, const TlArg *args, int n) {
  TlCost r;
  char text[640];
  if (!tl_cost(c, args, n, &r)) return FAILED;
  snprintf(text, sizeof text,
           o->json ? "{\"us\":%.4f,\"launch_us\":%.4f,\"memory_us\":%.4f,\"pipe_us\":{\"cube\":%.4f,\"mte1\":%.4f,"
                     "\"mte2\":%.4f,\"mte3\":%.4f,\"fix\":%.4f,\"vector\":%.4f,\"scalar\":%.4f},\"blocks\":%lld,"
                     "\"gm_bytes\":%lld}\n"
                   : "at least %.2f us: launch %.2f and the largest of memory %.2f, cube %.2f, mte1 %.2f, mte2 %.2f, "
                     "mte3 %.2f, fix %.2f, vector %.2f, scalar %.2f; %lld blocks, %lld bytes through GM\n",
           r.us, r.launch_us, r.memory_us, r.pipe_us.cube, r.pipe_us.mte1, r.pipe_us.mte2, r.pipe_us.mte3,
           r.pipe_us.fix, r.pipe_us.vector, r.pipe_us.scalar, (long long)r.blocks, (long long)r.gm_bytes);
  return write_text(o->out, text);
}

static int known_names(const Setting *list, int n_list, const Tensor *t, int n) {
  for (int i = 0; i < n_list; i++) {
    int found = 0;
    for (int j = 0; j < n; j++) found |= !strcmp(t[j].p.name, list[i].name);
    if (!found) return fail("the kernel has no parameter %%%s", list[i].name);
  }
  return OK;
}

static int run_sim(TlContext *c, const Options *o) {
  int status = lower(c, o, NULL, 0), n = 0;
  if (status) return status;
  TlParam p;
  while (tl_param_at(c, n, &p)) n++;
  Tensor *t = calloc((size_t)n + 1, sizeof *t);
  TlArg *args = calloc((size_t)n + 1, sizeof *args);
  if (!t || !args) exit(fail("no memory"));
  for (int i = 0; i < n; i++) tl_param_at(c, i, &t[i].p);
  status = known_names(o->args, o->n_args, t, n);
  if (!status) status = known_names(o->outs, o->n_outs, t, n);
  for (int i = 0; i < n && !status; i++)
    if (!t[i].p.is_tensor) status = read_scalar(o, &t[i].p, &args[i]);
  if (!status && !tl_shapes(c, args, n)) status = FAILED;
  int runs = !o->time && !o->cost;
  runs |= o->time && o->n_outs;
  for (int i = 0; i < n && o->time; i++) runs |= t[i].p.is_tensor && setting(o->args, o->n_args, t[i].p.name);
  for (int i = 0; i < n && !status && runs; i++)
    if (t[i].p.is_tensor) status = make_tensor(o, &t[i], &args[i], i);
  if (!status && o->cost) status = cost_kernel(c, o, args, n);
  if (!status && o->twin) status = twin_kernel(c, o, t, args, n);
  if (!status && runs && !o->twin) status = simulate(c, o, t, args, n);
  if (!status && o->time) status = time_kernel(c, o, args, n);
  for (int i = 0; i < n; i++) free(t[i].data);
  free(t);
  free(args);
  return status;
}

/* ---- main -------------------------------------------------------------------------------------------------- */

static int run_file(const Options *o, const char *path) {
  size_t len = 0;
  char *text = read_file(path, &len);
  if (!text) return USAGE;
  if (!strcmp(o->command, "replay")) {
    int outcome = replay(o, path, text, len);
    free(text);
    return outcome;
  }
  TlContext *c = tl_open(NULL, NULL);
  if (!c) exit(fail("no memory"));
  int status = tl_load(c, strcmp(path, "-") ? path : "<stdin>", text, len) ? OK : FAILED;
  free(text);
  if (!status) {
    if (!strcmp(o->command, "fmt")) status = write_text(o->write_back && strcmp(path, "-") ? path : o->out, tl_text(c));
    else if (!strcmp(o->command, "opt")) status = run_opt(c, o);
    else if (!strcmp(o->command, "emit")) status = run_emit(c, o);
    else if (!strcmp(o->command, "build")) status = run_build(c, o);
    else if (!strcmp(o->command, "sim") || o->cost || o->twin) status = run_sim(c, o);
    else if (!strcmp(o->command, "explain")) status = run_explain(c, o);
  }
  show_diags(c, o);
  tl_close(c);
  return status;
}

static int is_code(const char *s) {
  return strlen(s) == 6 && strchr("Tt", s[0]) && strchr("Ll", s[1]) && strspn(s + 2, "0123456789") == 4;
}

static int show_page(const char *code, int more) {
  char name[8] = "TL";
  memcpy(name + 2, code + 2, 5);
  const char *text = tl_page(name);
  if (!text) return fail("there is no code %s; docs/errors.md lists them", name);
  printf("%s%s", more ? "\n" : "", text);
  return OK;
}

static int list_passes(void) {
  const char *name, *doc;
  for (int i = 0; tl_pass_at(i, &name, &doc); i++) printf("%-10s %s\n", name, doc);
  return OK;
}

static int list_chips(void) {
  TlChip chip;
  for (int i = 0; tl_chip_at(i, &chip); i++)
    printf("%-10s %s  %d cube cores, %d vector cores, %d MHz\n", chip.name, chip.family, chip.cube_cores,
           chip.vector_cores, chip.mhz);
  return OK;
}

static int run_doctor(const Options *o) {
  TlContext *c = tl_open(NULL, NULL);
  if (!c) exit(fail("no memory"));
  int ready = 0;
  const char *text = tl_doctor(c, &(TlDoctor){o->root, o->python}, o->json, &ready);
  int status = text ? write_text(o->out, text) : FAILED;
  tl_close(c);
  return status ? status : ready ? OK : FAILED;
}

static int run(int argc, char **argv) {
  static const char *const commands[] = {"check",  "fmt",  "opt",     "emit",   "build",  "sim",  "twin",
                                         "replay", "cost", "explain", "doctor", "passes", "chips"};
  const char *command = argc > 1 ? argv[1] : "";
  int help = !strcmp(command, "help"), known = 0;
  for (int i = 1; i < argc; i++) help |= !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
  if (help || !*command) {
    fputs(usage, help ? stdout : stderr);
    return help ? OK : USAGE;
  }
  if (!strcmp(command, "--version")) {
    printf("tlc %s\n", tl_version());
    return OK;
  }
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) known |= !strcmp(command, commands[i]);
  if (!known) return fail("unknown command '%s'; tlc help lists the commands", command);
  Options o = {.command = command, .cost = !strcmp(command, "cost"), .twin = !strcmp(command, "twin")};
  int status = parse_options(argc, argv, &o);
  if (status) return status;
  if (!strcmp(command, "doctor") || !strcmp(command, "passes") || !strcmp(command, "chips")) {
    if (o.n_files) return fail("%s takes no file", command);
    return *command == 'd' ? run_doctor(&o) : *command == 'p' ? list_passes() : list_chips();
  }
  if (!o.n_files) return fail("%s needs a file; tlc help shows the usage", command);
  for (int i = 0; i < o.n_files; i++) {
    int page = !strcmp(command, "explain") && is_code(o.files[i]);
    int s = page ? show_page(o.files[i], i) : run_file(&o, o.files[i]);
    status = s > status ? s : status;
  }
  return status;
}

int main(int argc, char **argv) {
  for (int fd = 0; fd <= 2; fd++) /* a stream that is closed: no file of ours takes its place */
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", O_RDONLY);
  int status = run(argc, argv);
  int lost = ferror(stdout) || fflush(stdout);
  return lost && !status ? fail("cannot write the standard output: %s", strerror(errno)) : status;
}
