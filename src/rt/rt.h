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

#endif
