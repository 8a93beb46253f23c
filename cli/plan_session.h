/* Model and machine of a call, and its one plan placed on them. */
#ifndef CLI_PLAN_SESSION_H
#define CLI_PLAN_SESSION_H

#include "cli/plan_options.h"

/* Members are owned. */
struct plan_session {
    struct machine *machine;
    struct model *model;
    uint32_t *resident; /* -kvr, which the plan borrows */
    struct placement *placement;
};

/**
 * Opens what the first combination of `options` names (small models of ref/shape.h, too), and
 * places it. Rules of an engine that the plan breaks are warned of.
 *
 * @param options after plan_options_finish()
 * @param context tokens that must fit where the plan leaves the context open
 * @return 0, or -1 with `err` set; plan_session_close() in either case
 */
int plan_session_open(struct plan_session *session, const struct plan_options *options,
                      uint32_t context, struct error *err);
void plan_session_close(struct plan_session *session);

#endif
