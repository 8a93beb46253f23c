#include "tests/plan_cases.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- flags ---- */

static uint32_t read_shares(const char *text, float *shares)
{
    uint32_t count = 0;

    while (*text != '\0') {
        char *end;

        ck_assert_uint_lt(count, MACHINE_DEVICES_MAX);
        shares[count++] = strtof(text, &end);
        ck_assert_msg(end != text && (*end == '/' || *end == '\0'), "'%s' is no list of shares",
                      text);
        text = end + (*end == '/');
    }
    return count;
}

static size_t find_word(const char *word, const char *const words[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    ck_abort_msg("'%s' is no value of a flag", word);
    return 0;
}

static enum tensor_type read_type(const char *word)
{
    int type = tensor_type_find(word);

    ck_assert_msg(type >= 0, "'%s' is no type", word);
    return (enum tensor_type)type;
}

static bool read_switch(const char *flag, struct plan *plan)
{
    bool *switches[] = {&plan->kv_on_host, &plan->kv_pinned, &plan->recurrent_on_device,
                        &plan->all_logits, &plan->attn_on_host};
    static const char *const names[] = {"-nkvo", "-kvcp", "-rso", "-logits", "-ah"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(flag, names[i]) == 0) {
            *switches[i] = true;
            return true;
        }
    }
    return false;
}

static bool read_number(const char *flag, const char *value, struct plan *plan)
{
    uint32_t number = (uint32_t)strtoul(value, NULL, 10);

    if (strcmp(flag, "-mg") == 0)
        plan->main_gpu = number;
    else if (strcmp(flag, "-c") == 0)
        plan->n_ctx = number;
    else if (strcmp(flag, "-b") == 0)
        plan->n_batch = number;
    else if (strcmp(flag, "-ub") == 0)
        plan->n_ubatch = number;
    else if (strcmp(flag, "-ngl") == 0)
        plan->n_gpu_layers = (int32_t)number;
    else if (strcmp(flag, "-kvgl") == 0)
        plan->kv_gpu_layers = (int32_t)number;
    else if (strcmp(flag, "-kvd") == 0)
        plan->delivery_depth = number;
    else
        return false;
    return true;
}

static void read_word(const char *flag, const char *value, struct plan *plan)
{
    static const char *const splits[] = {"none", "layer", "tensor"};
    static const char *const engines[] = {"llama.cpp", "llama.cpp-fork", "lopside"};
    static const char *const policies[] = {"layer-order", "round-robin", "slowest-first"};
    static const char *const switches[] = {"auto", "0", "1"};

    if (strcmp(flag, "-sm") == 0)
        plan->split = (enum plan_split)find_word(value, splits, 3);
    else if (strcmp(flag, "-engine") == 0)
        plan->schedule = (enum plan_schedule)find_word(value, engines, 3);
    else if (strcmp(flag, "-kvp") == 0)
        plan->kv_policy = (enum plan_kv_policy)find_word(value, policies, 3);
    else if (strcmp(flag, "-fa") == 0)
        plan->flash_attn = (enum plan_tristate)((int)find_word(value, switches, 3) - 1);
    else if (strcmp(flag, "-ts") == 0)
        plan->tensor_split_count = read_shares(value, plan->tensor_split);
    else if (strcmp(flag, "-as") == 0)
        plan->attn_split_count = read_shares(value, plan->attn_split);
    else if (strcmp(flag, "-ctk") == 0)
        plan->type_k = plan->type_v = read_type(value);
    else if (strcmp(flag, "-ctv") == 0)
        plan->type_v = read_type(value);
    else
        ck_abort_msg("'%s' is no flag", flag);
}

struct plan plan_cases_plan(const char *flags)
{
    struct plan plan = plan_default();
    char text[200];
    char *rest = NULL;

    ck_assert_uint_lt(strlen(flags), sizeof text);
    snprintf(text, sizeof text, "%s", flags);
    for (char *flag = strtok_r(text, " ", &rest); flag != NULL; flag = strtok_r(NULL, " ", &rest)) {
        const char *value;

        if (read_switch(flag, &plan))
            continue;
        value = strtok_r(NULL, " ", &rest);
        ck_assert_msg(value != NULL, "'%s' has no value", flag);
        if (!read_number(flag, value, &plan))
            read_word(flag, value, &plan);
    }
    return plan;
}

/* ---- what plans stand on ---- */

struct model *plan_cases_model(const char *spec)
{
    struct error err = {0};
    struct model *model = model_from_catalogue(spec, &err);

    ck_assert_msg(model != NULL, "%s: %s", spec, err.text);
    return model;
}

struct machine *plan_cases_machine(const char *name)
{
    struct error err = {0};
    struct machine *machine = strchr(name, '@') != NULL ? machine_compose(&name, 1, &err)
                                                        : machine_open(name, NULL, &err);

    ck_assert_msg(machine != NULL, "%s: %s", name, err.text);
    return machine;
}

struct plan_case plan_cases_open(const char *model, const char *machine, const char *flags,
                                 uint32_t context)
{
    struct plan_case plan_case = {plan_cases_model(model), plan_cases_machine(machine), NULL};
    struct plan plan = plan_cases_plan(flags);
    struct error err = {0};

    plan_case.placement = placement_new(plan_case.model, plan_case.machine, &plan, context, &err);
    ck_assert_msg(plan_case.placement != NULL, "%s %s: %s", model, flags, err.text);
    return plan_case;
}

void plan_cases_close(struct plan_case *plan_case)
{
    placement_free(plan_case->placement);
    machine_free(plan_case->machine);
    model_free(plan_case->model);
}

struct error plan_cases_refusal(const char *model_name, const char *flags, uint32_t context)
{
    struct model *model = plan_cases_model(model_name);
    struct machine *machine = plan_cases_machine(PLAN_CASES_DESKTOP);
    struct plan plan = plan_cases_plan(flags);
    struct error err = {0};

    ck_assert_msg(placement_new(model, machine, &plan, context, &err) == NULL,
                  "%s %s was not refused", model_name, flags);
    machine_free(machine);
    model_free(model);
    return err;
}
