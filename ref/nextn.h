/* The model's own next-token-prediction block at work as a drafter. */
#ifndef REF_NEXTN_H
#define REF_NEXTN_H

#include "ref/session.h"
#include "ref/source.h"
#include "sim/draft.h"

struct nextn {
    struct draft draft;
    struct placement *placement;
    struct weights *weights;
    struct session *session; /* what generate_options.nextn takes */
};

/**
 * Opens a session of the block beside the target's.
 *
 * @param nextn   zeroed; nextn_close() in either case
 * @param target  placement of the model that it drafts for; it has to outlive the drafter
 * @param options undo_max is the tokens drafted a round; `hidden` is set here
 * @return 0, or -1 with `err` set (ERROR_USAGE: the model has no such block)
 */
int nextn_open(struct nextn *nextn, struct source *source, const struct placement *target,
               const struct ref_kernels *kernels, struct session_options options,
               struct error *err);
void nextn_close(struct nextn *nextn);

#endif
