/* module.c - the Python module tilelang._core: types around what include/tilelang.h opens: Program (a context), Device,
 * Loaded (a kernel on a device).
 *
 * Stable ABI of Python 3.10. The GIL is released while the core lowers, writes and simulates; a Program refuses a
 * second thread meanwhile. Tensors come as (address, shape): tensors.py gets the address from numpy, torch or DLPack
 * and keeps the object alive; nothing is copied. dlpack() only reads a capsule, the capsule keeps its owner. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "../../include/tilelang.h"

typedef struct {
  PyObject_HEAD
  TlContext *context;
  int busy;
} Program;

static int enter(Program *p) {
  if (p->busy || !p->context) {
    PyErr_SetString(PyExc_RuntimeError, "a Program is used by one thread at a time");
    return 0;
  }
  p->busy = 1;
  return 1;
}

/* One call of the core without the GIL; evaluates to nothing. */
#define WITHOUT_GIL(call)                                                                                      \
  do {                                                                                                         \
    Py_BEGIN_ALLOW_THREADS call;                                                                               \
    Py_END_ALLOW_THREADS                                                                                       \
  } while (0)

static PyObject *text_or_none(const char *s) {
  if (!s) Py_RETURN_NONE;
  return PyUnicode_DecodeUTF8(s, (Py_ssize_t)strlen(s), "replace");
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Program", names)) return NULL;
  allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  Program *p = (Program *)alloc(type, 0);
  if (!p) return NULL;
  p->context = tl_open(NULL, NULL);
  if (!p->context) {
    Py_DECREF(p);
    return PyErr_NoMemory();
  }
  return (PyObject *)p;
}

static void program_dealloc(Program *p) {
  PyTypeObject *type = Py_TYPE((PyObject *)p);
  if (p->context) tl_close(p->context);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(p);
  Py_DECREF(type);
}

static PyObject *program_load(Program *p, PyObject *args) {
  const char *name, *text;
  Py_ssize_t len;
  if (!PyArg_ParseTuple(args, "ss#:load", &name, &text, &len) || !enter(p)) return NULL;
  int ok;
  WITHOUT_GIL(ok = tl_load(p->context, name, text, (size_t)len));
  p->busy = 0;
  return PyBool_FromLong(ok);
}

static PyObject *program_lower(Program *p, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"chip", "last", "no_auto_sync", "no_auto_memory", "keep_text", "verify_each", NULL};
  TlLower opt = {0};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zzpppp:lower", names, &opt.chip, &opt.last, &opt.no_auto_sync,
                                   &opt.no_auto_memory, &opt.keep_text, &opt.verify_each) ||
      !enter(p))
    return NULL;
  int ok;
  WITHOUT_GIL(ok = tl_lower(p->context, &opt));
  p->busy = 0;
  return PyBool_FromLong(ok);
}

static PyObject *ask(Program *p, const char *(*question)(TlContext *)) {
  if (!enter(p)) return NULL;
  const char *s;
  WITHOUT_GIL(s = question(p->context));
  p->busy = 0;
  return text_or_none(s);
}

static PyObject *program_text(Program *p, PyObject *unused) { (void)unused; return ask(p, tl_text); }
static PyObject *program_explain(Program *p, PyObject *unused) { (void)unused; return ask(p, tl_explain); }
static PyObject *program_explain_json(Program *p, PyObject *unused) { (void)unused; return ask(p, tl_explain_json); }
static PyObject *program_signature_json(Program *p, PyObject *unused) {
  (void)unused;
  return ask(p, tl_signature_json);
}
static PyObject *program_program_json(Program *p, PyObject *unused) { (void)unused; return ask(p, tl_program_json); }
static PyObject *program_diags_json(Program *p, PyObject *unused) { (void)unused; return ask(p, tl_diags_json); }
static PyObject *program_diags_text(Program *p, PyObject *unused) { (void)unused; return ask(p, tl_diags_text); }

static PyObject *program_diags_clear(Program *p, PyObject *unused) {
  (void)unused;
  if (!enter(p)) return NULL;
  tl_diags_clear(p->context);
  p->busy = 0;
  Py_RETURN_NONE;
}

static PyObject *program_error_count(Program *p, PyObject *unused) {
  (void)unused;
  if (!enter(p)) return NULL;
  int n = tl_error_count(p->context);
  p->busy = 0;
  return PyLong_FromLong(n);
}

static PyObject *ask_by_name(Program *p, PyObject *args, const char *(*question)(TlContext *, const char *)) {
  const char *name, *s;
  if (!PyArg_ParseTuple(args, "s", &name) || !enter(p)) return NULL;
  WITHOUT_GIL(s = question(p->context, name));
  p->busy = 0;
  return text_or_none(s);
}

static PyObject *program_export(Program *p, PyObject *args) {
  const char *target, *dir;
  if (!PyArg_ParseTuple(args, "ss:export", &target, &dir) || !enter(p)) return NULL;
  int ok;
  WITHOUT_GIL(ok = tl_export(p->context, target, dir));
  p->busy = 0;
  return PyBool_FromLong(ok);
}

/* Lets the user interrupt a build or a run. */
static int go_on(void *unused) {
  (void)unused;
  PyGILState_STATE s = PyGILState_Ensure();
  int ok = PyErr_CheckSignals() == 0;
  PyGILState_Release(s);
  return ok;
}

static PyObject *program_build(Program *p, PyObject *args) {
  TlBuild opt = {.go_on = go_on};
  TlBuilt built = {0};
  if (!PyArg_ParseTuple(args, "sp:build", &opt.target, &opt.fresh) || !enter(p)) return NULL;
  int ok;
  WITHOUT_GIL(ok = tl_build(p->context, &opt, &built));
  p->busy = 0;
  if (PyErr_Occurred()) return NULL; /* KeyboardInterrupt, mostly */
  if (!ok) Py_RETURN_NONE;
  return Py_BuildValue("ssN", built.library, built.key, PyBool_FromLong(built.cached));
}

static PyObject *program_text_after(Program *p, PyObject *args) { return ask_by_name(p, args, tl_text_after); }
static PyObject *program_emit(Program *p, PyObject *args) { return ask_by_name(p, args, tl_emit); }

/* Appends `row` (a new reference, NULL after an error) to `list`; NULL after an error. */
static PyObject *append(PyObject *list, PyObject *row) {
  if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
  Py_XDECREF(row);
  return list;
}

/* One argument: (address, shape), an int or a float. */
static int read_arg(PyObject *o, TlArg *arg) {
  if (PyFloat_Check(o)) {
    arg->scalar.f = PyFloat_AsDouble(o);
    return 1;
  }
  if (PyLong_Check(o)) {
    arg->scalar.i = PyLong_AsLongLong(o);
    if (arg->scalar.i == -1 && PyErr_Occurred()) { /* above the signed range: an unsigned 64-bit value */
      PyErr_Clear();
      arg->scalar.i = (int64_t)PyLong_AsUnsignedLongLongMask(o);
    }
    return !PyErr_Occurred();
  }
  PyObject *address, *shape;
  if (!PyTuple_Check(o) || !PyArg_ParseTuple(o, "OO!", &address, &PyTuple_Type, &shape)) {
    PyErr_SetString(PyExc_TypeError, "an argument is (address, shape), an int or a float");
    return 0;
  }
  Py_ssize_t rank = PyTuple_Size(shape);
  if (rank > (Py_ssize_t)(sizeof arg->shape / sizeof arg->shape[0])) {
    PyErr_SetString(PyExc_ValueError, "a tensor of more than 6 dimensions");
    return 0;
  }
  arg->data = PyLong_AsVoidPtr(address);
  for (Py_ssize_t i = 0; i < rank; i++) arg->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
  return !PyErr_Occurred();
}

/* The arguments of a run, one for each item of the list; NULL: an exception is set. Freed by the caller. */
static TlArg *read_args(PyObject *list) {
  Py_ssize_t n = PyList_Size(list);
  TlArg *values = PyMem_Calloc((size_t)n + 1, sizeof *values);
  if (!values) PyErr_NoMemory();
  for (Py_ssize_t i = 0; values && i < n; i++)
    if (!read_arg(PyList_GetItem(list, i), &values[i])) {
      PyMem_Free(values);
      return NULL;
    }
  return values;
}

static PyObject *program_sim(Program *p, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"args", "checks", "threads", "max_faults", "schedule", "record", NULL};
  PyObject *list;
  TlSim opt = {.checks = 1, .go_on = go_on};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|piiKp:sim", names, &PyList_Type, &list, &opt.checks, &opt.threads,
                                   &opt.max_faults, &opt.schedule, &opt.record))
    return NULL;
  TlArg *values = read_args(list);
  if (!values) return NULL;
  if (!enter(p)) {
    PyMem_Free(values);
    return NULL;
  }
  TlSimResult r = {0};
  int ok, n = (int)PyList_Size(list);
  WITHOUT_GIL(ok = tl_sim(p->context, values, n, &opt, &r));
  p->busy = 0;
  PyMem_Free(values);
  if (PyErr_Occurred()) return NULL; /* KeyboardInterrupt, mostly */
  return Py_BuildValue("N{sLsLsLsLsisisL}", PyBool_FromLong(ok), "blocks", (long long)r.blocks, "instructions",
                       (long long)r.instructions, "gm_read_bytes", (long long)r.gm_read_bytes, "gm_write_bytes",
                       (long long)r.gm_write_bytes, "cores_used", r.cores_used, "cores", r.cores, "recorded",
                       (long long)r.recorded);
}

static PyObject *program_twin(Program *p, PyObject *args) {
  PyObject *list;
  TlTwin opt = {.go_on = go_on};
  if (!PyArg_ParseTuple(args, "O!i:twin", &PyList_Type, &list, &opt.seconds)) return NULL;
  TlArg *values = read_args(list);
  if (!values) return NULL;
  if (!enter(p)) {
    PyMem_Free(values);
    return NULL;
  }
  int ok, n = (int)PyList_Size(list);
  WITHOUT_GIL(ok = tl_twin(p->context, values, n, &opt));
  p->busy = 0;
  PyMem_Free(values);
  return PyErr_Occurred() ? NULL : PyBool_FromLong(ok);
}

static PyObject *program_printed(Program *p, PyObject *unused) {
  (void)unused;
  TlPrinted x;
  if (!enter(p)) return NULL;
  PyObject *list = PyList_New(0);
  for (int i = 0; list && tl_printed_at(p->context, i, &x); i++) {
    PyObject *text = text_or_none(x.text);
    list = append(list, text ? Py_BuildValue("{sLsssisissss}", "block", (long long)x.block, "file", x.file, "line",
                                             x.line, "col", x.col, "where", x.where, "text", "") : NULL);
    if (list && PyDict_SetItemString(PyList_GetItem(list, i), "text", text) < 0) Py_CLEAR(list);
    Py_XDECREF(text);
  }
  p->busy = 0;
  return list;
}

static PyObject *program_cost(Program *p, PyObject *args) {
  PyObject *list;
  if (!PyArg_ParseTuple(args, "O!:cost", &PyList_Type, &list)) return NULL;
  TlArg *values = read_args(list);
  if (!values) return NULL;
  if (!enter(p)) {
    PyMem_Free(values);
    return NULL;
  }
  TlCost r;
  int ok = tl_cost(p->context, values, (int)PyList_Size(list), &r);
  p->busy = 0;
  PyMem_Free(values);
  return Py_BuildValue("N{sdsdsds{sdsdsdsdsdsdsd}sLsL}", PyBool_FromLong(ok), "us", r.us, "launch_us", r.launch_us,
                       "memory_us", r.memory_us, "pipe_us", "cube", r.pipe_us.cube, "mte1", r.pipe_us.mte1, "mte2",
                       r.pipe_us.mte2, "mte3", r.pipe_us.mte3, "fix", r.pipe_us.fix, "vector", r.pipe_us.vector,
                       "scalar", r.pipe_us.scalar, "blocks", (long long)r.blocks, "gm_bytes", (long long)r.gm_bytes);
}

static PyObject *time_result(int ok, const TlTimeResult *r) {
  return Py_BuildValue("N{sdsdsLsLsLsLsLsds{sdsdsdsdsdsdsd}sisisLsL}", PyBool_FromLong(ok), "us", r->us, "mhz", r->mhz,
                       "ticks", (long long)r->ticks, "blocks", (long long)r->blocks, "instructions",
                       (long long)r->instructions, "gm_read_bytes", (long long)r->gm_read_bytes, "gm_write_bytes",
                       (long long)r->gm_write_bytes, "l2_hit", r->l2_hit, "pipe_ratio", "cube", r->pipe_ratio.cube,
                       "mte1", r->pipe_ratio.mte1, "mte2", r->pipe_ratio.mte2, "mte3", r->pipe_ratio.mte3, "fix",
                       r->pipe_ratio.fix, "vector", r->pipe_ratio.vector, "scalar", r->pipe_ratio.scalar, "cores_used",
                       r->cores_used, "cores", r->cores, "events", (long long)r->events, "last_event",
                       (long long)r->last_event);
}

static PyObject *program_time(Program *p, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"args",       "hbm_factor",        "l2_factor",  "l2_warm",
                          "l2_all_hit", "no_bank_conflicts", "free_flags", "compute_only",
                          "copy_only",  "timeline",          "max_events", "constants",
                          "follow",     "miss_factor",       "long_rows",  "no_latency",
                          "blocks",     "first_event",       NULL};
  PyObject *list;
  TlTime o = {0};
  long long most = 0, blocks = 0, first = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|ddpppppppLzpdppLL:time", names, &PyList_Type, &list,
                                   &o.hbm_factor, &o.l2_factor, &o.l2_warm, &o.l2_all_hit, &o.no_bank_conflicts,
                                   &o.free_flags, &o.compute_only, &o.copy_only, &o.timeline, &most, &o.constants,
                                   &o.follow, &o.miss_factor, &o.long_rows, &o.no_latency, &blocks, &first))
    return NULL;
  o.max_events = most;
  o.blocks = blocks;
  o.first_event = first;
  TlArg *values = read_args(list);
  if (!values) return NULL;
  if (!enter(p)) {
    PyMem_Free(values);
    return NULL;
  }
  TlTimeResult r = {0};
  int ok, n = (int)PyList_Size(list);
  WITHOUT_GIL(ok = tl_time(p->context, values, n, &o, &r));
  p->busy = 0;
  PyMem_Free(values);
  return time_result(ok, &r);
}

static PyObject *program_time_json(Program *p, PyObject *unused) { (void)unused; return ask(p, tl_time_json); }
static PyObject *program_time_text(Program *p, PyObject *unused) { (void)unused; return ask(p, tl_time_text); }

static PyObject *program_time_events(Program *p, PyObject *unused) {
  (void)unused;
  if (!enter(p)) return NULL;
  struct { int32_t core, statement, cause; char pipe[4]; double start_us, end_us; } *row;
  TlTimeEvent e;
  Py_ssize_t n = 0;
  while (tl_time_event_at(p->context, n, &e)) n++;
  PyObject *rows = PyBytes_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof *row);
  row = rows ? (void *)PyBytes_AsString(rows) : NULL;
  for (int64_t i = 0; row && tl_time_event_at(p->context, i, &e); i++, row++) {
    row->core = e.core;
    row->statement = e.statement;
    row->cause = e.cause;
    strncpy(row->pipe, e.pipe, sizeof row->pipe);
    row->start_us = e.start_us;
    row->end_us = e.end_us;
  }
  p->busy = 0;
  return rows;
}

#define METHOD(name, flags, doc) {#name, (PyCFunction)(void (*)(void))program_##name, flags, doc}
static PyMethodDef program_methods[] = {
    METHOD(load, METH_VARARGS, "load(name, text) -> bool: parse and verify IR text"),
    METHOD(lower, METH_VARARGS | METH_KEYWORDS, "lower(chip=None, last=None, ...) -> bool: run the passes"),
    METHOD(text, METH_NOARGS, "the IR as canonical text"),
    METHOD(text_after, METH_VARARGS, "text_after(pass) -> str or None; needs lower(keep_text=True)"),
    METHOD(explain, METH_NOARGS, "what was chosen and why, for people"),
    METHOD(explain_json, METH_NOARGS, "the same as JSON"),
    METHOD(signature_json, METH_NOARGS, "parameters and grid as JSON"),
    METHOD(program_json, METH_NOARGS, "the IR as JSON, statement by statement"),
    METHOD(emit, METH_VARARGS, "emit(target) -> C++ source or None"),
    METHOD(build, METH_VARARGS, "build(target, fresh) -> (library, key, was in the cache) or None"),
    METHOD(export, METH_VARARGS, "export(target, directory) -> bool"),
    METHOD(sim, METH_VARARGS | METH_KEYWORDS,
           "sim(args, checks=True, threads=0, max_faults=0, schedule=0, record=False) -> (ok, counts)"),
    METHOD(twin, METH_VARARGS, "twin(args, seconds) -> ok: as sim, by the written Ascend C with a toolkit's headers"),
    METHOD(cost, METH_VARARGS, "cost(args) -> (ok, bounds): the least time, in closed form; as TlCost in tilelang.h"),
    METHOD(time, METH_VARARGS | METH_KEYWORDS,
           "time(args, ...) -> (ok, result): how long it takes on the chip; the data address of an argument may be 0; "
           "options as TlTime in tilelang.h"),
    METHOD(time_json, METH_NOARGS, "the last time() in full, as JSON"),
    METHOD(time_text, METH_NOARGS, "the last time() as a table for people"),
    METHOD(time_events, METH_NOARGS,
           "what the last time(timeline=True) kept, as bytes: core, statement, cause (int32), pipe (4 chars), start "
           "and end in us (double) of each event"),
    METHOD(printed, METH_NOARGS, "what the last run printed: a list of dicts"),
    METHOD(error_count, METH_NOARGS, "number of errors"),
    METHOD(diags_json, METH_NOARGS, "diagnostics as JSON"),
    METHOD(diags_text, METH_NOARGS, "diagnostics for a terminal"),
    METHOD(diags_clear, METH_NOARGS, "forgets the diagnostics"),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot program_slots[] = {
    {Py_tp_new, (void *)program_new},
    {Py_tp_dealloc, (void *)program_dealloc},
    {Py_tp_methods, (void *)program_methods},
    {Py_tp_doc, (void *)"One kernel in the C core (a TlContext)."},
    {0, NULL},
};

static PyType_Spec program_spec = {
    .name = "tilelang._core.Program",
    .basicsize = sizeof(Program),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = program_slots,
};

/* ---- devices ------------------------------------------------------------------------------------------------ */

/* The runtime and its devices. Lives as long as the process: it is not closed, since others may use the runtime, and at
 * the end of the process nobody can say whether it is still there (`abandoned`). */
typedef struct {
  PyObject_HEAD
  TlContext *context; /* for its diagnostics */
  TlDevice *device;   /* NULL: it could not be opened */
  int abandoned;
} DeviceObject;

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Device", names)) return NULL;
  DeviceObject *d = (DeviceObject *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!d) return NULL;
  if (!(d->context = tl_open(NULL, NULL))) {
    Py_DECREF(d);
    return PyErr_NoMemory();
  }
  WITHOUT_GIL(d->device = tl_device_open(d->context));
  return (PyObject *)d;
}

static PyObject *device_abandon(DeviceObject *d, PyObject *unused) {
  (void)unused;
  d->abandoned = 1;
  Py_RETURN_NONE;
}

static PyObject *device_count(DeviceObject *d, PyObject *unused) {
  (void)unused;
  return PyLong_FromLong(d->device ? tl_device_count(d->device) : 0);
}

static PyObject *device_chip(DeviceObject *d, PyObject *unused) {
  (void)unused;
  return text_or_none(d->device ? tl_device_chip(d->device) : NULL);
}

static PyObject *device_diags_json(DeviceObject *d, PyObject *unused) {
  (void)unused;
  return text_or_none(tl_diags_json(d->context));
}

static PyObject *device_wait(DeviceObject *d, PyObject *args) {
  int index, ok;
  unsigned long long stream;
  if (!PyArg_ParseTuple(args, "iK:wait", &index, &stream)) return NULL;
  TlContext *c = tl_open(NULL, NULL); /* any thread may wait */
  if (!c) return PyErr_NoMemory();
  WITHOUT_GIL(ok = tl_device_wait(c, d->device, index, (void *)(uintptr_t)stream));
  PyObject *said = ok ? text_or_none(NULL) : text_or_none(tl_diags_json(c));
  tl_close(c);
  return said;
}

static PyMethodDef device_methods[] = {
    {"count", (PyCFunction)(void (*)(void))device_count, METH_NOARGS, "number of devices; 0: it could not be opened"},
    {"chip", (PyCFunction)(void (*)(void))device_chip, METH_NOARGS, "name of the chip, or None"},
    {"wait", (PyCFunction)(void (*)(void))device_wait, METH_VARARGS,
     "wait(device, stream) -> diagnostics as JSON or None"},
    {"abandon", (PyCFunction)(void (*)(void))device_abandon, METH_NOARGS, "the process ends: touch it no more"},
    {"diags_json", (PyCFunction)(void (*)(void))device_diags_json, METH_NOARGS, "why it could not be opened"},
    {NULL, NULL, 0, NULL},
};

static void device_dealloc(DeviceObject *d) {
  PyTypeObject *type = Py_TYPE((PyObject *)d);
  if (d->context) tl_close(d->context);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(d);
  Py_DECREF(type);
}

static PyType_Slot device_slots[] = {
    {Py_tp_new, (void *)device_new},
    {Py_tp_dealloc, (void *)device_dealloc},
    {Py_tp_methods, (void *)device_methods},
    {Py_tp_doc, (void *)"The toolkit's runtime and its devices (a TlDevice)."},
    {0, NULL},
};

static PyType_Spec device_spec = {
    .name = "tilelang._core.Device",
    .basicsize = sizeof(DeviceObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = device_slots,
};

/* A built kernel, loaded. One thread at a time: the caller holds a lock. */
typedef struct {
  PyObject_HEAD
  TlContext *context;
  TlKernel *kernel;
  DeviceObject *owner;
} Loaded;

static PyObject *loaded_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"program", "device", "library", NULL};
  Program *p;
  DeviceObject *d;
  const char *library;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOs:Loaded", names, &p, &d, &library)) return NULL;
  Loaded *k = (Loaded *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!k) return NULL;
  k->owner = d;
  Py_INCREF((PyObject *)d);
  if (!(k->context = tl_open(NULL, NULL)) || !enter(p)) {
    Py_DECREF(k);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  }
  WITHOUT_GIL(k->kernel = tl_kernel_open(p->context, d->device, library));
  p->busy = 0; /* without a kernel, the program has the diagnostics */
  return (PyObject *)k;
}

static void loaded_dealloc(Loaded *k) {
  PyTypeObject *type = Py_TYPE((PyObject *)k);
  if (k->kernel && !k->owner->abandoned) tl_kernel_close(k->kernel);
  if (k->context) tl_close(k->context);
  Py_XDECREF((PyObject *)k->owner);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(k);
  Py_DECREF(type);
}

static PyObject *loaded_ok(Loaded *k, PyObject *unused) {
  (void)unused;
  return PyBool_FromLong(k->kernel != NULL);
}

/* launch(values, device, stream, host, blocking, fresh, read_only, file, line): values are addresses, ints and floats
 * in parameter order; file is a str that the caller keeps as long as this object, or None. */
static PyObject *loaded_launch(Loaded *k, PyObject *args) {
  PyObject *values;
  TlLaunch opt = {0};
  unsigned long long stream, fresh, read_only;
  int ok;
  if (!PyArg_ParseTuple(args, "O!iKiiKKzi:launch", &PyList_Type, &values, &opt.device, &stream, &opt.host,
                        &opt.blocking, &fresh, &read_only, &opt.file, &opt.line))
    return NULL;
  TlArg list[64] = {0};
  Py_ssize_t n = PyList_Size(values);
  if (n > 64) return PyErr_Format(PyExc_ValueError, "more than 64 arguments");
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *v = PyList_GetItem(values, i);
    if (PyFloat_Check(v)) {
      list[i].scalar.f = PyFloat_AsDouble(v);
    } else {
      uint64_t bits = PyLong_AsUnsignedLongLongMask(v);
      list[i].scalar.i = (int64_t)bits;
      list[i].data = (void *)(uintptr_t)bits;
    }
  }
  if (PyErr_Occurred()) return NULL;
  opt.stream = (void *)(uintptr_t)stream;
  opt.fresh = fresh;
  opt.read_only = read_only;
  WITHOUT_GIL(ok = tl_launch(k->context, k->kernel, list, (int)n, &opt));
  if (ok) Py_RETURN_NONE;
  PyObject *said = text_or_none(tl_diags_json(k->context));
  tl_diags_clear(k->context);
  return said;
}

static PyMethodDef loaded_methods[] = {
    {"ok", (PyCFunction)(void (*)(void))loaded_ok, METH_NOARGS,
     "False: it did not load; the program's diagnostics say why"},
    {"launch", (PyCFunction)(void (*)(void))loaded_launch, METH_VARARGS, "launch(...) -> diagnostics as JSON or None"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot loaded_slots[] = {
    {Py_tp_new, (void *)loaded_new},
    {Py_tp_dealloc, (void *)loaded_dealloc},
    {Py_tp_methods, (void *)loaded_methods},
    {Py_tp_doc, (void *)"A built kernel, loaded (a TlKernel)."},
    {0, NULL},
};

static PyType_Spec loaded_spec = {
    .name = "tilelang._core.Loaded",
    .basicsize = sizeof(Loaded),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = loaded_slots,
};

/* What numpy's __array_struct__ holds (its array interface, version 3, C side). */
typedef struct {
  int two, nd;
  char typekind;
  int itemsize, flags;
  Py_ssize_t *shape, *strides;
  void *data;
} ArrayStruct;

/* address(array, written) -> where the elements are; None: not contiguous, or to be written and read-only. */
static PyObject *core_address(PyObject *m, PyObject *args) {
  enum { C_CONTIGUOUS = 1, WRITEABLE = 0x400 };
  (void)m;
  PyObject *array;
  int written;
  if (!PyArg_ParseTuple(args, "Oi:address", &array, &written)) return NULL;
  PyObject *capsule = PyObject_GetAttrString(array, "__array_struct__");
  const ArrayStruct *a = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
  if (!a) {
    Py_XDECREF(capsule);
    return NULL;
  }
  int need = C_CONTIGUOUS | (written ? WRITEABLE : 0);
  PyObject *result = (a->flags & need) == need ? PyLong_FromVoidPtr(a->data) : text_or_none(NULL);
  Py_DECREF(capsule);
  return result;
}

/* ---- functions of the module ------------------------------------------------------------------------------- */

static PyObject *core_passes(PyObject *m, PyObject *unused) {
  (void)m;
  (void)unused;
  const char *name, *doc;
  PyObject *list = PyList_New(0);
  for (int i = 0; list && tl_pass_at(i, &name, &doc); i++) list = append(list, Py_BuildValue("ss", name, doc));
  return list;
}

static PyObject *core_chips(PyObject *m, PyObject *unused) {
  (void)m;
  (void)unused;
  TlChip c;
  PyObject *list = PyList_New(0);
  for (int i = 0; list && tl_chip_at(i, &c); i++)
    list = append(list, Py_BuildValue("ssiii", c.name, c.family, c.cube_cores, c.vector_cores, c.mhz));
  return list;
}

static PyObject *core_targets(PyObject *m, PyObject *unused) {
  (void)m;
  (void)unused;
  PyObject *list = PyList_New(0);
  for (int i = 0; list && tl_target_at(i); i++) list = append(list, PyUnicode_FromString(tl_target_at(i)));
  return list;
}

static PyObject *core_version(PyObject *m, PyObject *unused) {
  (void)m;
  (void)unused;
  return text_or_none(tl_version());
}

static PyObject *core_doctor(PyObject *m, PyObject *args) {
  (void)m;
  int json, ready = 0;
  TlDoctor opt = {0};
  if (!PyArg_ParseTuple(args, "zzp:doctor", &opt.root, &opt.python, &json)) return NULL;
  TlContext *c = tl_open(NULL, NULL);
  if (!c) return PyErr_NoMemory();
  const char *text;
  WITHOUT_GIL(text = tl_doctor(c, &opt, json, &ready));
  PyObject *result = Py_BuildValue("Ni", text_or_none(text), ready);
  tl_close(c);
  return result;
}

static PyObject *core_page(PyObject *m, PyObject *code) {
  (void)m;
  PyObject *bytes = PyUnicode_AsUTF8String(code);
  if (!bytes) return NULL;
  PyObject *text = text_or_none(tl_page(PyBytes_AsString(bytes)));
  Py_DECREF(bytes);
  return text;
}

/* The head of the DLPack ABI (version 0): what a capsule named "dltensor" points to. */
typedef struct {
  void *data;
  struct { int32_t type, id; } device;
  int32_t ndim;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} DLTensor;

static PyObject *tuple_of(const int64_t *v, int32_t n) {
  PyObject *t = PyTuple_New(n);
  for (int32_t i = 0; t && i < n; i++) {
    PyObject *x = PyLong_FromLongLong(v[i]);
    if (!x || PyTuple_SetItem(t, i, x) < 0) Py_CLEAR(t);
  }
  return t;
}

static PyObject *core_dlpack(PyObject *m, PyObject *capsule) {
  (void)m;
  const DLTensor *t = PyCapsule_GetPointer(capsule, "dltensor");
  if (!t) return NULL;
  PyObject *address = PyLong_FromVoidPtr(t->data ? (char *)t->data + t->byte_offset : NULL);
  PyObject *shape = tuple_of(t->shape, t->ndim), *strides;
  if (t->strides) {
    strides = tuple_of(t->strides, t->ndim);
  } else {
    Py_INCREF(Py_None);
    strides = Py_None;
  }
  return Py_BuildValue("NiiiNN", address, t->dtype.code, t->dtype.bits, t->dtype.lanes, shape, strides);
}

static PyMethodDef core_methods[] = {
    {"passes", core_passes, METH_NOARGS, "[(name, meaning)] in the order they run"},
    {"chips", core_chips, METH_NOARGS, "[(name, family, cube cores, vector cores, MHz)]"},
    {"targets", core_targets, METH_NOARGS, "names of the writers"},
    {"page", core_page, METH_O, "page(code) -> the page of docs/errors about it, or None"},
    {"version", core_version, METH_NOARGS, "version of the C core"},
    {"doctor", core_doctor, METH_VARARGS, "doctor(root, python, json) -> (text, ready)"},
    {"address", core_address, METH_VARARGS, "address(array, written) -> int, or None if it cannot be used as it is"},
    {"dlpack", core_dlpack, METH_O, "dlpack(capsule) -> (address, code, bits, lanes, shape, strides or None)"},
    {NULL, NULL, 0, NULL},
};

static int core_exec(PyObject *m) {
  const struct { const char *name; PyType_Spec *spec; } types[] = {
      {"Program", &program_spec}, {"Device", &device_spec}, {"Loaded", &loaded_spec}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    PyObject *type = PyType_FromSpec(types[i].spec);
    if (!type) return -1;
    int failed = PyModule_AddObjectRef(m, types[i].name, type);
    Py_DECREF(type);
    if (failed) return -1;
  }
  return 0;
}

static PyModuleDef_Slot core_slots[] = {{Py_mod_exec, (void *)core_exec}, {0, NULL}};

static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = "The C core of tilelang.",
    .m_methods = core_methods,
    .m_slots = core_slots,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&core_module); }
