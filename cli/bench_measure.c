#include "cli/bench_measure.h"

#include <stdlib.h>
#include <string.h>

#include "ref/host_probe.h"
#include "ref/session.h"

int bench_measure_open(struct bench_measure *measure, struct error *err)
{
    measure->wanted = measure->options.name != NULL;
    return backend_open(&measure->options, &measure->backend, err);
}

void bench_measure_close(struct bench_measure *measure)
{
    if (measure->spec != NULL)
        source_close(&measure->source);
    free(measure->backend.context);
    list_close(&measure->options.words);
    *measure = (struct bench_measure){.spec = NULL};
}

static int open_source(struct bench_measure *measure, const char *spec, struct error *err)
{
    if (measure->spec != NULL && strcmp(measure->spec, spec) == 0)
        return 0;
    if (measure->spec != NULL)
        source_close(&measure->source);
    measure->spec = NULL;
    if (source_open(&measure->source, spec, 1, err) != 0) {
        source_close(&measure->source);
        return -1;
    }
    measure->spec = spec;
    return 0;
}

/* A test under way. */
struct measuring {
    struct session *session;
    uint32_t slots, n_vocab;
    struct session_token *tokens; /* of one call, at most `capacity` */
    uint32_t capacity;
    uint32_t made; /* so that no two tokens in a row are the same */
};

/* `count` tokens of each of `slots` slots, one behind the other; the last of each has an output. */
static int decode(struct measuring *m, uint32_t slots, uint32_t count, struct error *err)
{
    while (count > 0) {
        uint32_t now = count < m->capacity / slots ? count : m->capacity / slots, at = 0;

        for (uint32_t i = 0; i < now; i++)
            for (uint32_t slot = 0; slot < slots; slot++)
                m->tokens[at++] = (struct session_token){m->made++ * UINT32_C(7919) % m->n_vocab,
                                                         slot, i + 1 == count};
        if (session_decode(m->session, m->tokens, at, err) != 0)
            return -1;
        count -= now;
    }
    return 0;
}

/* Slots back to the test's depth; no step takes longer for what is in a cache. */
static int go_to_depth(struct measuring *m, uint32_t depth, struct error *err)
{
    for (uint32_t slot = 0; slot < m->slots; slot++)
        if (session_truncate(m->session, slot, 0, err) != 0)
            return -1;
    return session_fill(m->session, m->slots, depth, err);
}

static int run_once(struct measuring *m, struct test test, double *time_s, struct error *err)
{
    double start_s;

    if (go_to_depth(m, test.n_depth, err) != 0)
        return -1;
    start_s = host_probe_now_s();
    if (test.n_prompt > 0 && decode(m, 1, test.n_prompt, err) != 0)
        return -1;
    for (uint32_t i = 0; i < test.n_gen; i++)
        if (decode(m, m->slots, 1, err) != 0)
            return -1;
    *time_s = host_probe_now_s() - start_s;
    return 0;
}

/* Every kernel and buffer once, and graphs, which are made of what has run some times. */
static int warm_up(struct measuring *m, struct test test, struct error *err)
{
    enum { ROUNDS = 4 };
    double ignored;

    test.n_gen = test.n_gen < ROUNDS ? test.n_gen : ROUNDS;
    for (int i = 0; i < (test.n_gen > 0 ? 1 : ROUNDS); i++)
        if (run_once(m, test, &ignored, err) != 0)
            return -1;
    return 0;
}

int bench_measure_test(struct bench_measure *measure, const char *spec,
                       const struct placement *placement, struct test test, uint32_t reps,
                       double *times_s, struct error *err)
{
    struct measuring m = {.slots = placement->plan.n_slots,
                          .n_vocab = placement->model->n_vocab,
                          .capacity = placement->plan.n_batch};
    int status = open_source(measure, spec, err);

    if (m.capacity < m.slots)
        m.capacity = m.slots;
    if (status == 0) {
        m.tokens = calloc(m.capacity, sizeof *m.tokens);
        if (m.tokens == NULL)
            status = error_set(err, ERROR_MEMORY, "no memory for %u tokens", m.capacity);
    }
    if (status == 0) {
        m.session = session_new(placement, measure->source.weights, &measure->source.numbers, NULL,
                                (struct session_options){.picks = placement->plan.backend_sampling,
                                                         .open = measure->backend.open,
                                                         .open_context = measure->backend.context},
                                err);
        status = m.session != NULL ? warm_up(&m, test, err) : -1;
    }
    for (uint32_t i = 0; i < reps && status == 0; i++)
        status = run_once(&m, test, &times_s[i], err);
    session_free(m.session);
    free(m.tokens);
    return status;
}
