/* export.c - a kernel as files that need neither tlc nor Python: source, C header, launcher, CMake file, description;
 * and the few lines that tlc itself needs behind a source to launch what was built from it.
 *
 * The host entry `call` of the writers becomes static: several kernels then fit into one program. Sizes are written as
 * C expressions of the scalars, which are the parameters of everything generated here, in the order of `call`. */
#include "rt.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

static const Loc nowhere = {0, 0, 0};

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

static const char *with_static_call(Arena *a, const char *source) {
  static const char entry[] = "extern \"C\" void call(";
  const char *at = strstr(source, entry);
  if (!at) return source;
  return arena_printf(a, "%.*sstatic void call(%s", (int)(at - source), source, at + strlen(entry));
}

static const LaunchedParam *at(const Signature *s, int i) { return &s->param[s->call[i]]; }

/* The scalars as parameters, or as arguments: variables arg_NAME, which cannot meet a name of the launcher. */
static const char *scalars(Arena *a, const Signature *s, bool types) {
  Text t;
  text_init(&t, a);
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = at(s, i);
    if (!rt_is_scalar(p->kind)) continue;
    text_printf(&t, "%s%s%s%s", t.len ? ", " : "", types ? p->type : "arg", types ? " " : "_", p->name);
  }
  return t.len ? text_str(&t) : types ? "void" : "";
}

static const char *shape(Arena *a, const LaunchedParam *p) {
  Text t;
  text_init(&t, a);
  for (int d = 0; d < p->rank; d++) text_printf(&t, "%s%s", d ? ", " : "", p->extent[d]);
  return arena_printf(a, "%s[%s]", p->dtype, text_str(&t));
}

static const char *role(const LaunchedParam *p) {
  return rt_is_scalar(p->kind) ? "scalar" : p->kind == KIND_WORKSPACE ? "workspace" : p->is_out ? "out" : "tensor";
}

/* ---- for tlc itself --------------------------------------------------------------------------------------------- */

static void declare_scalars(Text *t, const Signature *s) {
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = &s->param[i];
    if (!rt_is_scalar(p->kind)) continue;
    if (p->kind == KIND_FLOAT)
      text_printf(t, "  float %s;\n  __builtin_memcpy(&%s, &slot[%d], sizeof(float));\n", p->name, p->name, i);
    else text_printf(t, "  const %s %s = (%s)slot[%d];\n", p->type, p->name, p->type, i);
    text_printf(t, "  (void)%s;\n", p->name);
  }
}

const char *rt_shim(Arena *a, const Signature *s, const char *source) {
  Text t;
  text_init(&t, a);
  text_put(&t, with_static_call(a, source));
  text_put(&t, "\n// How tlc launches it: a slot a parameter, in the order of the IR.\n"
               "#include <cstdint>\n\nextern \"C\" void tlc_launch(const uint64_t *slot, void *stream)\n{\n");
  declare_scalars(&t, s);
  text_put(&t, "  call(");
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = at(s, i);
    if (rt_is_scalar(p->kind)) text_printf(&t, "%s, ", p->name);
    else text_printf(&t, "(uint8_t *)slot[%d], ", s->call[i]);
  }
  text_put(&t, "(aclrtStream)stream);\n}\n\nextern \"C\" void tlc_bytes(const uint64_t *slot, int64_t *bytes)\n{\n");
  declare_scalars(&t, s);
  for (int i = 0; i < s->n; i++)
    if (!rt_is_scalar(s->param[i].kind))
      text_printf(&t, "  bytes[%d] = %s * %d;\n", i, s->param[i].elements, s->param[i].element_bytes);
  text_put(&t, "  (void)slot;\n  (void)bytes;\n}\n");
  return text_str(&t);
}

/* ---- for others ------------------------------------------------------------------------------------------------- */

static const char *launch_params(Arena *a, const Signature *s, const char *tail) {
  Text t;
  text_init(&t, a);
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = at(s, i);
    if (rt_is_scalar(p->kind)) text_printf(&t, "%s %s, ", p->type, p->name);
    else text_printf(&t, "void *%s, ", p->name);
  }
  text_put(&t, tail);
  return text_str(&t);
}

static const char *source_file(Arena *a, const Signature *s, const char *source) {
  Text t;
  text_init(&t, a);
  text_put(&t, with_static_call(a, source));
  text_printf(&t, "\n#include \"%s.h\"\n\nextern \"C\" void %s_launch(%s)\n{\n  call(", s->kernel, s->kernel,
              launch_params(a, s, "void *stream"));
  for (int i = 0; i < s->n; i++)
    text_printf(&t, "%s%s, ", rt_is_scalar(at(s, i)->kind) ? "" : "(uint8_t *)", at(s, i)->name);
  text_put(&t, "(aclrtStream)stream);\n}\n");
  return text_str(&t);
}

static const char *upper(Arena *a, const char *s) {
  char *u = arena_str(a, s);
  for (char *c = u; *c; c++) *c = (char)toupper((unsigned char)*c);
  return u;
}

static const char *header_file(Arena *a, const Signature *s) {
  Text t;
  text_init(&t, a);
  const char *name = s->kernel, *guard = upper(a, name), *types = scalars(a, s, true);
  text_printf(&t, "/* %s.h - kernel %s for Ascend %s, from %s:%d. Written by tlc %s.\n *\n", name, name, s->chip,
              s->file, s->line, s->version);
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = at(s, i);
    text_printf(&t, " * %-10s %s %s\n", role(p), p->name, rt_is_scalar(p->kind) ? p->type : shape(a, p));
  }
  text_printf(&t,
              " *\n * Tensors and workspaces are addresses of device memory, row-major without gaps; a workspace\n"
              " * needs no contents. The launch is queued on the stream (an aclrtStream) and returns at once;\n"
              " * errors come from aclrtSynchronizeStream. */\n"
              "#ifndef %s_KERNEL_H\n#define %s_KERNEL_H\n\n#include <stdint.h>\n\n"
              "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n#define %s_CHIP \"%s\"\n\n"
              "void %s_launch(%s);\n\n/* Number of blocks, and bytes of every tensor and workspace. */\n"
              "static inline int64_t %s_blocks(%s) {",
              guard, guard, guard, s->chip, name, launch_params(a, s, "void *stream"), name, types);
  Text ignore;
  text_init(&ignore, a);
  for (int i = 0; i < s->n; i++)
    if (rt_is_scalar(s->param[i].kind)) text_printf(&ignore, " (void)%s;", s->param[i].name);
  text_printf(&t, "%s return %s; }\n", text_str(&ignore), s->blocks);
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = at(s, i);
    if (!rt_is_scalar(p->kind))
      text_printf(&t, "static inline int64_t %s_bytes_%s(%s) {%s return %s * %d; }\n", name, p->name, types,
                  text_str(&ignore), p->elements, p->element_bytes);
  }
  text_put(&t, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
  return text_str(&t);
}

static const char launcher_head[] =
    "#include \"acl/acl.h\"\n\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\n"
    "static const char *given(int n, char **v, const char *option, const char *name) {\n"
    "  size_t len = strlen(name);\n"
    "  for (int i = 1; i < n; i++) {\n"
    "    const char *at = v[i];\n"
    "    if (*option) {\n"
    "      if (strcmp(at, option) || i + 1 == n) continue;\n"
    "      at = v[++i];\n"
    "    } else if (!strcmp(at, \"-o\") || !strcmp(at, \"-d\")) {\n"
    "      i++;\n"
    "      continue;\n"
    "    }\n"
    "    if (!len) return at;\n"
    "    if (!strncmp(at, name, len) && at[len] == '=') return at + len + 1;\n"
    "  }\n"
    "  return NULL;\n"
    "}\n\n"
    "static void check(int error, const char *call) {\n"
    "  if (!error) return;\n"
    "  const char *said = aclGetRecentErrMsg();\n"
    "  fprintf(stderr, \"%s failed with %d: %s\\n\", call, error, said ? said : \"\");\n"
    "  exit(1);\n"
    "}\n"
    "#define CHECK(call) check(call, #call)\n\n"
    "/* Device memory with the file's bytes; zeros without a file. */\n"
    "static void *load(const char *name, const char *path, int64_t bytes) {\n"
    "  void *host = calloc(1, (size_t)bytes + 1), *device = NULL;\n"
    "  FILE *f = path ? fopen(path, \"rb\") : NULL;\n"
    "  if (path && (!f || fread(host, 1, (size_t)bytes, f) != (size_t)bytes)) {\n"
    "    fprintf(stderr, \"%s: %s does not give %lld bytes\\n\", name, path, (long long)bytes);\n"
    "    exit(2);\n"
    "  }\n"
    "  if (f) fclose(f);\n"
    "  CHECK(aclrtMalloc(&device, (size_t)bytes + 1, ACL_MEM_MALLOC_HUGE_FIRST));\n"
    "  if (bytes) CHECK(aclrtMemcpy(device, (size_t)bytes, host, (size_t)bytes, ACL_MEMCPY_HOST_TO_DEVICE));\n"
    "  free(host);\n"
    "  return device;\n"
    "}\n\n"
    "static void save(const char *name, const char *path, const void *device, int64_t bytes) {\n"
    "  void *host = malloc((size_t)bytes + 1);\n"
    "  if (bytes) CHECK(aclrtMemcpy(host, (size_t)bytes, device, (size_t)bytes, ACL_MEMCPY_DEVICE_TO_HOST));\n"
    "  FILE *f = fopen(path, \"wb\");\n"
    "  if (!f || fwrite(host, 1, (size_t)bytes, f) != (size_t)bytes || fclose(f)) {\n"
    "    fprintf(stderr, \"%s: cannot write %s\\n\", name, path);\n"
    "    exit(2);\n"
    "  }\n"
    "  free(host);\n"
    "}\n\n";

static const char *launcher_file(Arena *a, const Signature *s) {
  Text t;
  text_init(&t, a);
  const char *name = s->kernel, *values = scalars(a, s, false);
  text_printf(&t,
              "/* %s_run.c - runs the kernel %s on files of raw bytes, row-major:\n *\n"
              " *   %s_run [-d DEVICE] [NAME=VALUE] [NAME=FILE]... [-o NAME=FILE]...\n *\n"
              " * A scalar takes a value, a tensor a file (without one it is zeros); -o saves a tensor afterwards. */\n"
              "#include \"%s.h\"\n%s",
              name, name, name, name, launcher_head);
  text_put(&t, "int main(int argc, char **argv) {\n"
               "  const char *device = given(argc, argv, \"-d\", \"\"), *file;\n"
               "  aclrtStream stream = NULL;\n"
               "  CHECK(aclInit(NULL));\n"
               "  CHECK(aclrtSetDevice(device ? atoi(device) : 0));\n"
               "  CHECK(aclrtCreateStream(&stream));\n");
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = at(s, i);
    if (!rt_is_scalar(p->kind)) continue;
    text_printf(&t,
                "  file = given(argc, argv, \"\", \"%s\");\n"
                "  if (!file) return fprintf(stderr, \"give %s=VALUE\\n\"), 2;\n"
                "  const %s arg_%s = (%s)%s;\n",
                p->name, p->name, p->type, p->name, p->type,
                p->kind == KIND_INT ? "strtoll(file, NULL, 0)" : "strtod(file, NULL)");
  }
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = at(s, i);
    if (rt_is_scalar(p->kind)) continue;
    text_printf(&t, "  const int64_t bytes_%s = %s_bytes_%s(%s);\n", p->name, name, p->name, values);
    text_printf(&t, "  void *arg_%s = load(\"%s\", ", p->name, p->name);
    if (p->kind == KIND_WORKSPACE) text_put(&t, "NULL");
    else text_printf(&t, "given(argc, argv, \"\", \"%s\")", p->name);
    text_printf(&t, ", bytes_%s);\n", p->name);
  }
  text_printf(&t, "  %s_launch(", name);
  for (int i = 0; i < s->n; i++) text_printf(&t, "arg_%s, ", at(s, i)->name);
  text_put(&t, "stream);\n  CHECK(aclrtSynchronizeStream(stream));\n");
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = at(s, i);
    if (p->kind == KIND_TENSOR)
      text_printf(&t,
                  "  file = given(argc, argv, \"-o\", \"%s\");\n"
                  "  if (file) save(\"%s\", file, arg_%s, bytes_%s);\n",
                  p->name, p->name, p->name, p->name);
    if (!rt_is_scalar(p->kind)) text_printf(&t, "  aclrtFree(arg_%s);\n", p->name);
  }
  text_put(&t, "  aclrtDestroyStream(stream);\n  return 0;\n}\n");
  return text_str(&t);
}

static const char *cmake_file(Arena *a, const Signature *s) {
  const char *name = s->kernel;
  const char *flags[3];
  for (int i = 1; i <= 2; i++) flags[i] = rt_flags(a, s->target, i, s->family, s->npu_arch);
  return arena_printf(
      a,
      "# lib%s.so (the kernel) and %s_run (runs it on files), built with the CANN toolkit of ASCEND_HOME_PATH.\n"
      "cmake_minimum_required(VERSION 3.16)\nproject(%s C)\n\n"
      "set(ASCEND_HOME_PATH \"$ENV{ASCEND_HOME_PATH}\" CACHE PATH \"directory of the CANN toolkit\")\n"
      "find_program(BISHENG bisheng HINTS %s REQUIRED)\n\n"
      "# newer compilers know the language asc\nfile(WRITE ${CMAKE_BINARY_DIR}/try.cpp \"\")\n"
      "execute_process(COMMAND ${BISHENG} -xasc --npu-arch=%s -fsyntax-only ${CMAKE_BINARY_DIR}/try.cpp\n"
      "                RESULT_VARIABLE no_asc OUTPUT_QUIET ERROR_QUIET)\n"
      "if(no_asc)\n  set(FLAGS \"%s\")\nelse()\n  set(FLAGS \"%s\")\nendif()\nseparate_arguments(FLAGS)\n"
      "foreach(dir %s)\n"
      "  if(EXISTS ${ASCEND_HOME_PATH}/${dir})\n    list(APPEND FLAGS -I${ASCEND_HOME_PATH}/${dir})\n  endif()\n"
      "endforeach()\nset(LINK \"-L${ASCEND_HOME_PATH}/lib64 %s\")\nseparate_arguments(LINK)\n\n"
      "set(KERNEL ${CMAKE_BINARY_DIR}/lib%s.so)\n"
      "add_custom_command(OUTPUT ${KERNEL} DEPENDS %s.cpp %s.h WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}\n"
      "                   COMMAND ${BISHENG} ${FLAGS} ${LINK} %s.cpp -o ${KERNEL} VERBATIM)\n"
      "add_custom_target(%s_kernel ALL DEPENDS ${KERNEL})\n\n"
      "add_executable(%s_run %s_run.c)\nadd_dependencies(%s_run %s_kernel)\n"
      "target_include_directories(%s_run PRIVATE ${ASCEND_HOME_PATH}/include)\n"
      "target_link_directories(%s_run PRIVATE ${ASCEND_HOME_PATH}/lib64)\n"
      "target_link_libraries(%s_run PRIVATE ${KERNEL} ascendcl)\n",
      name, name, name, rt_compiler_dirs(a, "${ASCEND_HOME_PATH}/"), s->npu_arch, flags[1], flags[2],
      rt_include_dirs(a), rt_link_flags(), name, name, name, name, name, name, name, name, name, name, name, name);
}

static void json_pair(Text *t, const char *key, const char *value) {
  text_printf(t, "\"%s\": ", key);
  text_json(t, value);
}

static const char *json_file(Arena *a, const Signature *s) {
  Text t;
  text_init(&t, a);
  const struct { const char *key, *value; } pairs[] = {
      {"kernel", s->kernel}, {"chip", s->chip}, {"target", s->target}, {"tlc", s->version}, {"file", s->file}};
  text_put(&t, "{\n");
  for (size_t i = 0; i < TL_COUNT(pairs); i++) {
    text_put(&t, "  ");
    json_pair(&t, pairs[i].key, pairs[i].value);
    text_put(&t, ",\n");
  }
  text_printf(&t, "  \"line\": %d,\n  ", s->line);
  json_pair(&t, "launch", arena_printf(a, "%s_launch", s->kernel));
  text_put(&t, ",\n  ");
  json_pair(&t, "blocks", s->blocks);
  text_put(&t, ",\n  \"parameters\": [");
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = at(s, i);
    text_put(&t, i ? ",\n    {" : "\n    {");
    json_pair(&t, "name", p->name);
    text_put(&t, ", ");
    json_pair(&t, "role", role(p));
    text_put(&t, ", ");
    json_pair(&t, "dtype", p->dtype);
    text_put(&t, ", ");
    json_pair(&t, "type", rt_is_scalar(p->kind) ? p->type : "void *");
    if (!rt_is_scalar(p->kind)) {
      text_put(&t, ", \"shape\": [");
      for (int d = 0; d < p->rank; d++) {
        bool number = !p->extent[d][strspn(p->extent[d], "0123456789")];
        if (d) text_put(&t, ", ");
        if (number) text_put(&t, p->extent[d]);
        else text_json(&t, p->extent[d]);
      }
      text_put(&t, "], ");
      json_pair(&t, "bytes", arena_printf(a, "%s * %d", p->elements, p->element_bytes));
    }
    text_put(&t, "}");
  }
  text_put(&t, "\n  ]\n}\n");
  return text_str(&t);
}

bool rt_export(Arena *a, Diags *d, const Signature *s, const char *source, const char *ir, const char *dir) {
  const struct { const char *name, *text; } files[] = {
      {arena_printf(a, "%s.cpp", s->kernel), source_file(a, s, source)},
      {arena_printf(a, "%s.h", s->kernel), header_file(a, s)},
      {arena_printf(a, "%s_run.c", s->kernel), launcher_file(a, s)},
      {"CMakeLists.txt", cmake_file(a, s)},
      {arena_printf(a, "%s.json", s->kernel), json_file(a, s)},
      {arena_printf(a, "%s.tl", s->kernel), ir}};
  bool ok = rt_make_dirs(a, dir);
  const char *path = dir;
  for (size_t i = 0; ok && i < TL_COUNT(files); i++) {
    path = arena_printf(a, "%s/%s", dir, files[i].name);
    ok = rt_write(path, files[i].text, strlen(files[i].text));
  }
  if (!ok) diag_fix(d, diag_add(d, DIAG_RT_EXPORT, nowhere, "cannot write %s: %s", path, strerror(errno)),
                    "a directory that can be written");
  return ok;
}
