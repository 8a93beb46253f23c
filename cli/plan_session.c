#include "cli/plan_session.h"

#include <inttypes.h>
#include <stdlib.h>

#include "cli/rule_warnings.h"
#include "ref/shape.h"

static int open_model(struct plan_session *session, const struct plan_options *options,
                      struct error *err)
{
    const char *name = plan_options_value(options, 0, PLAN_OPTION_MODEL);

    session->model = shape_is_name(name) ? shape_open(name, err) : model_open(name, err);
    if (session->model == NULL)
        return -1;
    if (session->model->tensor_count == 0)
        return error_set(err, ERROR_USAGE,
                         "%s has no tensors, only a vocabulary; nothing can be placed",
                         session->model->source);
    return 0;
}

int plan_session_open(struct plan_session *session, const struct plan_options *options,
                      uint32_t context, struct error *err)
{
    uint32_t layer_count, rules;
    struct plan plan;

    *session = (struct plan_session){.machine = plan_options_machine(options, err)};
    if (session->machine == NULL || plan_options_select(options, 0, session->machine, err) != 0 ||
        open_model(session, options, err) != 0)
        return -1;
    layer_count = session->model->n_layer + session->model->n_layer_nextn;
    session->resident = calloc((size_t)layer_count + 1, sizeof *session->resident);
    if (session->resident == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %" PRIu32 " layers", layer_count);
    if (plan_options_plan(options, 0, session->model, session->machine, session->resident,
                          layer_count, &plan, err) != 0)
        return -1;
    session->placement = placement_new(session->model, session->machine, &plan, context, err);
    rules = feasibility_check(session->model, session->machine, &plan);
    if (session->placement == NULL)
        cli_warn_rules_of_refused(rules);
    else
        cli_warn_rules(rules);
    return session->placement != NULL ? 0 : -1;
}

void plan_session_close(struct plan_session *session)
{
    placement_free(session->placement);
    free(session->resident);
    model_free(session->model);
    machine_free(session->machine);
}
