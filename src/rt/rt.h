/* rt.h - the way to a device: what a machine has installed, the toolkit's compiler, the cache of built kernels,
 * launching.
 *
 * Sees base only. Everything here probes the machine the program runs on; nothing of it changes what the passes and
 * the writers produce. Paths, texts and lists live in the arena that is passed in. */
#ifndef TL_RT_H
#define TL_RT_H

#include "../base/base.h"

/* ---- files and processes (system.c) ------------------------------------------------------------------------ */

/* The whole file, NUL-terminated; NULL: it cannot be read (errno says why). len may be NULL. */
char *rt_read(Arena *a, const char *path, size_t *len);
bool rt_write(const char *path, const char *text, size_t len); /* false: errno says why */
bool rt_exists(const char *path);
bool rt_make_dirs(Arena *a, const char *path);                 /* like mkdir -p; false: errno says why */
void rt_remove_tree(Arena *a, const char *path);               /* like rm -rf; what cannot be removed stays */
/* The value of the first line `key=value` of a text, without blanks and quotes; NULL: no such line. */
const char *rt_value(Arena *a, const char *text, const char *key);
const char *rt_env(const char *name);                          /* NULL when unset or empty */
const char *rt_which(Arena *a, const char *program);           /* the program on PATH; NULL: none */

typedef enum { RUN_EXITED, RUN_KILLED, RUN_TIMEOUT, RUN_STOPPED, RUN_NOT_STARTED } RunEnd;
typedef struct {
  char *const *argv;             /* ends with NULL; argv[0] is a path */
  const char *dir;               /* working directory; NULL: this process's */
  const char *log;               /* file that takes both outputs */
  int seconds;                   /* it is killed after so long, with everything it started; 0: never */
  int (*go_on)(void *user);      /* NULL, or asked now and then: 0 kills it */
  void *user;
} Run;
typedef Vec(char *) Words;
void rt_words(Arena *a, Words *w, const char *text); /* adds what stands between blanks */
/* Runs a program to its end. code: exit status, signal number, or errno. It dies with this process. */
RunEnd rt_run(const Run *r, int *code);

/* ---- what is installed (toolkit.c) -------------------------------------------------------------------------- */

typedef struct {
  const char *home;       /* the toolkit's directory; NULL: none found */
  const char *from;       /* the variable that named it; NULL: a usual place */
  const char *version;    /* "8.1.RC1"; NULL: not known */
  const char *inner;      /* "V100R001C21SPC001B238"; NULL: not known */
  const char *compatible; /* inner versions of drivers it goes with, "[V100R001C15],[…"; NULL: not known */
  const char *arch;       /* "aarch64": the host it was made for; NULL: not known */
  const char *compiler;   /* path of bisheng; NULL: none */
  bool compiler_on_path;  /* it was found on PATH, not in home */
  const char *acl;        /* path of libascendcl.so; NULL: none in home */
} Toolkit;
/* Looks where the variables ASCEND_HOME_PATH and ASCEND_TOOLKIT_HOME point, then in the usual places.
 * root: put before every absolute path of a usual place; "" for this machine. */
Toolkit rt_toolkit(Arena *a, const char *root);
/* Where below a toolkit's directory its compiler may be, each with `before` in front, a blank between. */
const char *rt_compiler_dirs(Arena *a, const char *before);

#define RT_NO_CARD_FIX                                                                                                \
  "source the toolkit's set_env.sh (`tlc doctor` says what is missing), or run on the simulated chip: "               \
  "device=\"sim\" or TILELANG_DEVICE=sim"

/* ---- tlc doctor (doctor.c) ---------------------------------------------------------------------------------- */

typedef enum { HEALTH_OK, HEALTH_MISSING, HEALTH_MISMATCH } Health;
typedef struct {
  const char *what;   /* "driver" */
  Health health;
  bool needed;        /* to build or to launch a kernel; others are said, but cost nothing */
  const char *found;  /* version or count; NULL */
  const char *where;  /* path; NULL */
  const char *text;   /* what is wrong; NULL when ok */
  const char *fix;    /* what to do; NULL when ok */
} Finding;
typedef Vec(Finding) Findings;
/* root: as for rt_toolkit; python: the interpreter asked for torch_npu, NULL: python3 on PATH.
 * True: nothing that is needed is missing or does not go together. */
bool rt_doctor(Arena *a, const char *root, const char *python, Findings *out);
void rt_doctor_text(Text *t, const Findings *f, const char *version);
void rt_doctor_json(Text *t, const Findings *f, const char *version);

/* ---- building (compiler.c, cache.c) -------------------------------------------------------------------------- */

const char *rt_sha256(Arena *a, const char *data, size_t len); /* 64 hexadecimal digits */

typedef struct {
  const char *name;             /* of the kernel, for messages */
  const char *source, *ir;      /* C++ for the chip with what rt_shim adds; the IR it came from */
  const char *target, *family, *npu_arch; /* "ascendc", "a2", "dav-2201" */
  const char *cache_dir;        /* rt_cache_dir */
  int64_t cache_bytes;          /* least recently used kernels go beyond that */
  int seconds;                  /* the compiler is stopped after so long */
  bool fresh;                   /* build even if it is there */
  int (*go_on)(void *user);     /* NULL, or asked now and then: 0 stops */
  void *user;
} Build;
typedef struct { int line; const char *text; } CompilerMessage; /* line of the source; 0: none */
typedef Vec(CompilerMessage) CompilerMessages;
typedef struct {
  const char *library;          /* NULL: the build failed */
  const char *key, *compiler;
  const char *kept;             /* directory with source, command and log; NULL for a hit */
  bool cached;
  CompilerMessages messages;    /* of a compiler that refuses the source: the caller reports them, rt_build does not */
} Built;
bool rt_build(Arena *a, Diags *d, const Build *b, Built *out);
/* $TILELANG_CACHE_DIR, $XDG_CACHE_HOME/tilelang or ~/.cache/tilelang; NULL: there is no home either. */
const char *rt_cache_dir(Arena *a);

typedef struct {
  const char *path, *home, *version;
  int generation;      /* of its command line: flags.def */
  const char *damaged; /* the file of the cache that was not as it was written; NULL */
} Compiler;
/* What the compiler of a toolkit is: asked once, kept in the cache. False: it does not answer. */
bool rt_compiler(Arena *a, const Toolkit *k, const Build *b, Compiler *out);
char **rt_command(Arena *a, const Compiler *c, const Build *b); /* its words, ends with NULL; run beside kernel.cpp */
const char *rt_flags(Arena *a, const char *target, int generation, const char *family, const char *npu_arch);
const char *rt_link_flags(void);
const char *rt_include_dirs(Arena *a); /* below the toolkit's directory, a blank between */
CompilerMessages rt_messages(Arena *a, const char *log);
/* The lock of all keys that begin like this one; -1: somebody has it, or errno. */
int rt_try_lock(Arena *a, const char *cache, const char *key);
void rt_unlock(int lock);

/* ---- the launch of a kernel (export.c) ------------------------------------------------------------------------ */

enum { KIND_TENSOR = 't', KIND_WORKSPACE = 'w', KIND_INT = 'i', KIND_FLOAT = 'f', MAX_PARAMS = 64 };
static inline bool rt_is_scalar(char kind) { return kind == KIND_INT || kind == KIND_FLOAT; }
typedef struct {
  const char *name, *type;      /* as C has them: identifier, type of the parameter of `call` */
  const char *dtype;            /* of the IR */
  char kind;                    /* KIND_* */
  bool is_out;
  int element_bytes, rank;
  const char *const *extent;    /* of a tensor: C expressions of the scalars' names, 64 bits */
  const char *elements;         /* their product */
} LaunchedParam;
typedef struct {
  const char *kernel, *chip, *family, *npu_arch, *target, *version, *file; /* file: the Python source */
  int line, n;
  const LaunchedParam *param;   /* in the IR's order */
  const int *call;              /* the order of `call`: numbers of parameters */
  const char *blocks;           /* C expression */
} Signature;
/* What a build needs behind the source of a writer: tlc_launch(slot, stream) and tlc_bytes(slot, bytes), which take one
 * 64-bit slot a parameter in the IR's order (a float in its low half): nobody has to know the type of `call`. */
const char *rt_shim(Arena *a, const Signature *s, const char *source);
/* Writes source, header, launcher, CMakeLists.txt and description into dir. False: a file could not be written. */
bool rt_export(Arena *a, Diags *d, const Signature *s, const char *source, const char *ir, const char *dir);

/* ---- the written source on this host (twin_run.c) --------------------------------------------------------------- */

typedef struct { const char *name, *text; } TwinFile;
extern const TwinFile twin_files[]; /* src/target/ascendc/twin, put in by the build; ends with NULL */
typedef struct {
  const Signature *signature;
  const char *source;            /* written Ascend C */
  const uint64_t *slot;          /* one a parameter, in the IR's order: host address or value; a workspace may be 0 */
  const size_t *bytes;           /* of tensors */
  int seconds;                   /* each program is stopped after so long; 0: never */
  int (*go_on)(void *user);      /* as for Run */
  void *user;
} TwinRun;
/* Tensors hold what the kernel left there. False: it could not be run, or it has faults (diagnostics). */
bool rt_twin(Arena *a, Diags *d, const TwinRun *r);

/* ---- launching (device.c) -------------------------------------------------------------------------------------- */

typedef struct Device Device;             /* the runtime library and its devices; for any number of threads */
typedef struct DeviceKernel DeviceKernel; /* a built kernel, loaded; launched by one thread at a time */
Device *rt_device_open(Arena *a, Diags *d);
void rt_device_close(Device *v);
int rt_device_count(const Device *v);
const char *rt_device_chip(const Device *v); /* as the runtime names it, "Ascend910B2"; NULL: it does not say */
bool rt_wait(Device *v, Diags *d, int device, void *stream); /* false: something failed there */

typedef struct {
  const char *library, *name, *file; /* name and Python source of the kernel: for messages */
  int line;
  const char *kinds;                 /* one KIND_* a parameter */
} LoadKernel;
DeviceKernel *rt_kernel_open(Arena *a, Diags *d, Device *v, const LoadKernel *l);
const char *rt_kernel_kinds(const DeviceKernel *k);
void rt_kernel_close(DeviceKernel *k);   /* waits for what it works on */

typedef struct {
  const uint64_t *slot;      /* one a parameter: address or value; a workspace of 0 is provided */
  int device;
  void *stream;              /* queued there; not used with host */
  bool host;                 /* addresses are of host memory: copied in, run, waited for, copied back */
  bool blocking;             /* wait after the launch */
  uint64_t fresh, read_only; /* host: bit i set: tensor i need not be copied in; is not written */
  const char *file;          /* of the caller, for messages; lives as long as the kernel */
  int line;
} LaunchKernel;
bool rt_launch(DeviceKernel *k, Diags *d, const LaunchKernel *l);

#endif
