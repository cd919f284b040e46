/* system.c - files, directories and programs of the host, as the rest of src/rt needs them.
 *
 * A program that is run gets a process group of its own, so that a compiler that hangs is killed with its children,
 * and it dies with this process, so that nobody writes into the cache for a process that is gone. Its output goes to a
 * file: a pipe that a grandchild keeps open would make the reader hang. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "rt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

/* ---- files -------------------------------------------------------------------------------------------------- */

char *rt_read(Arena *a, const char *path, size_t *len) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NULL;
  Text t;
  text_init(&t, a);
  char part[4096];
  ssize_t n;
  while ((n = read(fd, part, sizeof part)) > 0 || (n < 0 && errno == EINTR))
    if (n > 0) text_putn(&t, part, (size_t)n);
  int error = errno;
  close(fd);
  errno = error;
  if (n < 0) return NULL;
  if (len) *len = t.len;
  return arena_strn(a, text_str(&t), t.len);
}

bool rt_write(const char *path, const char *text, size_t len) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  while (len) {
    ssize_t n = write(fd, text, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      int error = errno;
      close(fd);
      errno = error;
      return false;
    }
    text += n;
    len -= (size_t)n;
  }
  return close(fd) == 0;
}

bool rt_exists(const char *path) { return access(path, F_OK) == 0; }

bool rt_make_dirs(Arena *a, const char *path) {
  char *p = arena_str(a, path);
  for (char *s = p + 1; *s; s++) {
    if (*s != '/') continue;
    *s = 0;
    if (mkdir(p, 0777) && errno != EEXIST) return false;
    *s = '/';
  }
  struct stat st;
  if (!mkdir(p, 0777)) return true;
  if (errno != EEXIST || stat(p, &st)) return false;
  errno = ENOTDIR;
  return S_ISDIR(st.st_mode);
}

void rt_remove_tree(Arena *a, const char *path) {
  struct stat st;
  if (lstat(path, &st)) return;
  if (!S_ISDIR(st.st_mode)) {
    unlink(path);
    return;
  }
  DIR *d = opendir(path);
  for (struct dirent *e; d && (e = readdir(d));)
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
      rt_remove_tree(a, arena_printf(a, "%s/%s", path, e->d_name));
  if (d) closedir(d);
  rmdir(path);
}

const char *rt_value(Arena *a, const char *text, const char *key) {
  size_t n = strlen(key);
  for (const char *s = text; s && *s; s = strchr(s, '\n'), s = s ? s + 1 : NULL) {
    while (*s == ' ' || *s == '\t') s++;
    if (strncmp(s, key, n)) continue;
    const char *v = s + n + strspn(s + n, " \t");
    if (*v != '=') continue;
    v += 1 + strspn(v + 1, " \t\"");
    size_t len = strcspn(v, "\r\n");
    while (len && strchr(" \t\"", v[len - 1])) len--;
    return arena_strn(a, v, len);
  }
  return NULL;
}

void rt_words(Arena *a, Words *w, const char *text) {
  for (size_t n; *text; text += n + (text[n] != 0)) {
    n = strcspn(text, " ");
    if (n) vec_push(a, w, arena_strn(a, text, n));
  }
}

const char *rt_env(const char *name) {
  const char *v = getenv(name);
  return v && *v ? v : NULL;
}

const char *rt_which(Arena *a, const char *program) {
  const char *path = rt_env("PATH");
  while (path && *path) {
    size_t n = strcspn(path, ":");
    const char *full = arena_printf(a, "%.*s/%s", (int)n, path, program);
    struct stat st;
    if (n && !stat(full, &st) && S_ISREG(st.st_mode) && !access(full, X_OK)) return full;
    path += n + (path[n] == ':');
  }
  return NULL;
}

/* ---- programs ----------------------------------------------------------------------------------------------- */

/* In the child, between fork and exec: only calls that are allowed there. */
static void become(const Run *r, int report, pid_t parent) {
  setpgid(0, 0);
#if defined(__linux__)
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) kill(getpid(), SIGKILL); /* it died before we asked */
#else
  (void)parent;
#endif
  int in = open("/dev/null", O_RDONLY), out = open(r->log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (in >= 0 && out >= 0 && dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(out, 2) >= 0 && !(r->dir && chdir(r->dir)))
    execv(r->argv[0], r->argv);
  int error = errno;
  ssize_t ignored = write(report, &error, sizeof error);
  (void)ignored;
  kill(getpid(), SIGKILL);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static RunEnd await(const Run *r, pid_t child, int *code) {
  double began = now();
  long pause = 200000; /* ns */
  for (;;) {
    int status = 0;
    pid_t got = waitpid(child, &status, WNOHANG);
    if (got == child) {
      *code = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
      return WIFEXITED(status) ? RUN_EXITED : RUN_KILLED;
    }
    bool late = r->seconds && now() - began > r->seconds, stop = r->go_on && !r->go_on(r->user);
    if (late || stop || (got < 0 && errno != EINTR)) {
      kill(-child, SIGKILL);
      while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
      return late ? RUN_TIMEOUT : RUN_STOPPED;
    }
    nanosleep(&(struct timespec){0, pause}, NULL);
    if (pause < 20000000) pause += pause / 2;
  }
}

RunEnd rt_run(const Run *r, int *code) {
  int report[2], error = 0;
  *code = 0;
  if (pipe(report)) {
    *code = errno;
    return RUN_NOT_STARTED;
  }
  fcntl(report[0], F_SETFD, FD_CLOEXEC);
  fcntl(report[1], F_SETFD, FD_CLOEXEC);
  pid_t parent = getpid(), child = fork();
  if (child == 0) become(r, report[1], parent);
  if (child < 0) error = errno;
  close(report[1]);
  if (child > 0) {
    ssize_t n;
    while ((n = read(report[0], &error, sizeof error)) < 0 && errno == EINTR) continue;
  }
  close(report[0]);
  if (error) {
    *code = error;
    if (child > 0)
      while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
    return RUN_NOT_STARTED;
  }
  return await(r, child, code);
}
