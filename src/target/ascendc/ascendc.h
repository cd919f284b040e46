/* ascendc.h - shared by the files of the Ascend C writer only. */
#ifndef TL_ASCENDC_H
#define TL_ASCENDC_H

#include "../cwriter.h"

/* Small functions that the output defines: numbers for cw_use. */
enum {
  HELP_NONE_YET = HELP_SHARED - 1,
#define HELPER(id, name, text) HELP_##id,
#include "prelude_ascendc.def"
#undef HELPER
  HELP_END
};

typedef enum { as_is, negated, inverse } ScalarAs;
typedef struct Spelling Spelling;
typedef void (*Writer)(CWriter *w, const IrStmt *s, const Spelling *sp);
struct Spelling { Writer write; const char *api, *scalar_api; ScalarAs scalar_as; };

/* moved_ascendc.c: ops that move or sort elements */
void ac_moved(CWriter *w, const IrStmt *s, const Spelling *sp);
const char *ac_round_mode(int64_t mode); /* of the RoundMode of Cast */
void ac_say(CWriter *w, const IrStmt *s); /* print_ascendc.c */
void ac_transpose(CWriter *w, const IrStmt *s, const Spelling *sp);

#endif
