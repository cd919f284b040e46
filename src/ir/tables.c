/* tables.c - the .def tables as arrays. */
#include "ir.h"

const DTypeInfo dtype_info[DTYPE_COUNT] = {
#define DTYPE(id, name, np, bits, cls, cxx) [DT_##id] = {name, np, cxx, bits, cls},
#include "types.def"
#undef DTYPE
};

const SpaceInfo space_info[SPACE_COUNT] = {
#define SPACE(id, name, side, physical, doc) [SPACE_##id] = {name, doc, side, physical},
#include "types.def"
#undef SPACE
};

const PipeInfo pipe_info[PIPE_COUNT] = {
#define PIPE(id, name, side, in_order, cxx) [PIPE_##id] = {name, cxx, side, in_order},
#include "types.def"
#undef PIPE
};

const char *const layout_name[LAYOUT_COUNT] = {
#define LAYOUT(id, name, doc) [LAYOUT_##id] = name,
#include "types.def"
#undef LAYOUT
};

const char *const cast_name[CAST_COUNT] = {
#define CASTMODE(id, name) [CAST_##id] = name,
#include "types.def"
#undef CASTMODE
};

const char *const cmp_name[CMP_COUNT] = {
#define CMPMODE(id, name) [CMP_##id] = name,
#include "types.def"
#undef CMPMODE
};

const struct AttrInfo attr_info[ATTR_COUNT] = {
#define ATTR(id, name, value) [ATTR_##id] = {name, value},
#include "attrs.def"
#undef ATTR
};

const OpInfo op_info[OP_COUNT] = {
#define OP(id, name, level, pipe, in, out, dtypes, spaces, attrs, cost, doc) \
  [OP_##id] = {name, level, PIPE_##pipe, in, out, dtypes, spaces, attrs, cost, doc},
#include "ops.def"
#undef OP
};
