#include "ref/nextn.h"

#include <string.h>

int nextn_open(struct nextn *nextn, struct source *source, const struct placement *target,
               const struct ref_kernels *kernels, struct session_options options, struct error *err)
{
    options.hidden = true;
    if (draft_open(&nextn->draft, NULL, source->model, err) != 0)
        return -1;
    nextn->placement = draft_place(&nextn->draft, target, err);
    nextn->weights = weights_nextn(nextn->draft.model, source->model, source->weights, err);
    if (nextn->placement == NULL || nextn->weights == NULL)
        return -1;
    nextn->session =
        session_new(nextn->placement, nextn->weights, &source->numbers, kernels, options, err);
    return nextn->session != NULL ? 0 : -1;
}

void nextn_close(struct nextn *nextn)
{
    session_free(nextn->session);
    weights_free(nextn->weights);
    placement_free(nextn->placement);
    draft_close(&nextn->draft);
    memset(nextn, 0, sizeof *nextn);
}
