/* fuzz_parse.c - bytes in, no crash out: reads them as IR text, prints, reads again, lowers, writes and explains.
 *
 * What must hold for any bytes:
 *   - nothing crashes, leaks or runs away;
 *   - if the text is accepted, its canonical text is accepted too and prints as itself;
 *   - a program that lowers reads back after every pass (verify_each), and the lowered text is accepted.
 *
 * libFuzzer (clang; AFL++ the same with afl-clang-fast, then afl-fuzz -i test/ir -o build/afl build/fuzz/fuzz_parse):
 *   CC=clang cmake -B build/fuzz -DTL_SANITIZE=fuzzer -DTL_PYTHON=OFF && cmake --build build/fuzz --target fuzz_parse
 *   build/fuzz/fuzz_parse -dict=tools/fuzz/tl.dict -max_len=8192 build/corpus test/ir test/ir/bad test/random
 *
 * Any compiler: -DTL_SANITIZE=ON gives it a main that runs the files it is given, and with `-s SECONDS [-r SEED]`
 * mutates them (bytes, tokens of the dictionary, pieces of other files) until the time is over; the last input is kept
 * in fuzz_parse.last so that a crash can be run again:
 *   build/hard/fuzz_parse -s 600 test/ir/\*.tl test/ir/bad/\*.tl
 *
 * The seed corpus is the test files. */
#include "tilelang.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int condition, const char *what, TlContext *c) {
  if (condition) return;
  fprintf(stderr, "fuzz_parse: %s\n%s\n", what, tl_diags_text(c));
  abort();
}

/* Loads text that tlc itself printed; it must be accepted and print as itself. */
static void reload(const char *text, const char *what) {
  TlContext *c = tl_open(NULL, NULL);
  must(tl_load(c, "printed.tl", text, strlen(text)), what, c);
  must(!strcmp(tl_text(c), text), what, c);
  tl_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  TlContext *c = tl_open(NULL, NULL);
  if (tl_load(c, "fuzz.tl", (const char *)data, size)) {
    reload(tl_text(c), "canonical text is not read back as itself");
    tl_signature_json(c);
    tl_program_json(c);
    TlLower opt = {.verify_each = 1};
    if (tl_lower(c, &opt)) {
      reload(tl_text(c), "lowered text is not read back as itself");
      tl_explain(c);
      tl_explain_json(c);
      tl_emit(c, "ascendc");
      tl_emit(c, "pto");
    } else {
      must(!strstr(tl_diags_json(c), "{\"code\":\"TL0002\""), "a pass broke the program", c);
    }
  }
  must(tl_diags_text(c) != NULL && tl_diags_json(c) != NULL, "no diagnostics", c);
  tl_close(c);
  return 0;
}

#ifdef FUZZ_MAIN
#include <time.h>

enum { MAX_FILES = 4096, MAX_LEN = 8192 };
typedef struct { uint8_t *data; size_t len; } Input;

static Input read_input(const char *path) {
  Input in = {malloc(MAX_LEN), 0};
  FILE *f = fopen(path, "rb");
  if (!f || !in.data) {
    fprintf(stderr, "fuzz_parse: cannot read %s\n", path);
    exit(2);
  }
  in.len = fread(in.data, 1, MAX_LEN, f);
  fclose(f);
  return in;
}

static uint64_t random_bits(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* Replaces `cut` bytes at `at` by `len` bytes. */
static void splice(Input *in, size_t at, size_t cut, const uint8_t *with, size_t len) {
  if (in->len - cut + len > MAX_LEN) return;
  memmove(in->data + at + len, in->data + at + cut, in->len - at - cut);
  memmove(in->data + at, with, len);
  in->len += len - cut;
}

/* The word, number or sign at byte `at`. */
static size_t token_len(const Input *in, size_t at) {
  size_t n = at;
  while (n < in->len && n - at < 32 && (in->data[n] > ' ') && !strchr(",()[]{}:+-*", in->data[n])) n++;
  return n > at ? n - at : at < in->len;
}

static void mutate(Input *in, const Input *all, int n, uint64_t *rng) {
  static const char *const words[] = {
      "0",  "1",   "-1", "16",     "64",       "4096", "2147483647", "9223372036854775807", "f16",       "f32",
      "i8", "ub",  "l1", "l0a",    "gm",       "%a",   "shared",     "fragment",            "{",         "}",
      "(",  ")",   "[",  "]",      "+:",       "->",   " @1:1",      "min(",                "select(",   "bits(f32, ",
      "for %z in 0..4 {\n", "if true {\n"};
  size_t at = in->len ? random_bits(rng) % in->len : 0;
  const Input *other = &all[random_bits(rng) % (uint64_t)n];
  size_t from = other->len ? random_bits(rng) % other->len : 0;
  uint8_t byte = (uint8_t)random_bits(rng);
  const char *word = words[random_bits(rng) % (sizeof words / sizeof *words)];
  switch (random_bits(rng) % 7) {
  case 0:
    if (in->len) in->data[at] = byte;
    break;
  case 1: splice(in, at, token_len(in, at), (const uint8_t *)word, strlen(word)); break;
  case 2: splice(in, at, 0, (const uint8_t *)word, strlen(word)); break;
  case 3: splice(in, at, token_len(in, at), other->data + from, token_len(other, from)); break;
  case 4: { /* a line of another file, or this one again */
    const uint8_t *s = other->data + from, *end = memchr(s, '\n', other->len - from);
    if (end) splice(in, at, 0, s, (size_t)(end - s) + 1);
    break;
  }
  case 5: { /* a line less */
    uint8_t *end = in->len ? memchr(in->data + at, '\n', in->len - at) : NULL;
    if (end) splice(in, at, (size_t)(end - in->data) - at, in->data, 0);
    break;
  }
  default: splice(in, at, token_len(in, at), in->data, 0);
  }
}

int main(int argc, char **argv) {
  static Input all[MAX_FILES];
  int n = 0, seconds = 0;
  uint64_t rng = 1, runs = 0;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-s") && i + 1 < argc) seconds = atoi(argv[++i]);
    else if (!strcmp(argv[i], "-r") && i + 1 < argc) rng = strtoull(argv[++i], NULL, 10);
    else if (n < MAX_FILES) all[n++] = read_input(argv[i]);
  }
  for (int i = 0; i < n; i++) LLVMFuzzerTestOneInput(all[i].data, all[i].len);
  time_t end = time(NULL) + seconds;
  Input in = {malloc(MAX_LEN), 0};
  for (; n && in.data && time(NULL) < end; runs++) {
    const Input *seed = &all[random_bits(&rng) % (uint64_t)n];
    memcpy(in.data, seed->data, in.len = seed->len);
    for (uint64_t k = random_bits(&rng) % 6; k < 6; k++) mutate(&in, all, n, &rng);
    FILE *f = fopen("fuzz_parse.last", "wb");
    if (f) {
      fwrite(in.data, 1, in.len, f);
      fclose(f);
    }
    LLVMFuzzerTestOneInput(in.data, in.len);
  }
  printf("%d files, %llu mutants, no crash\n", n, (unsigned long long)runs);
  for (int i = 0; i < n; i++) free(all[i].data);
  free(in.data);
  return 0;
}
#endif
