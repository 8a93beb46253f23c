/* What is sent to a device before its layer asks for it: windows of a cache, and in our runtime's
 * schedule recurrent states too. docs/time-model.md, "Windows sent ahead", "Our own schedule". */
#include "sim/lower_private.h"

/* Our runtime always does: with -kvd 0 a window goes once the attention before has left the
 * only place. */
bool lower_sends_ahead(const struct lowering *lowering)
{
    return lowering->placement->plan.delivery_depth > 0 ||
           (lowering->own && !lowering->placement->attn_on_host);
}

static uint32_t places(const struct lowering *lowering)
{
    return lowering->placement->plan.delivery_depth + 1;
}

/* Whether device `d` has a window left to send in this step; `next_layer` becomes its layer, or
 * the number of layers. */
static bool find_next(struct lowering *lowering, uint32_t d)
{
    struct lower_ring *ring = &lowering->rings[d];

    while (ring->next_layer < lowering->model->n_layer &&
           !(lower_sends_ahead(lowering) && lower_is_delivered(lowering, ring->next_layer, d)))
        ring->next_layer++;
    return ring->next_layer < lowering->model->n_layer;
}

static bool has_visiting_state(const struct lowering *lowering, uint32_t layer, uint32_t d)
{
    return lowering->own && lower_computes(lowering, layer, d) &&
           lowering->model->layers[layer].mixer == MODEL_MIXER_GATED_DELTA_NET &&
           placement_has_state_on_host(lowering->placement, layer);
}

/* States of the layers before the next window's, each into a place of its own. They go before that
 * window, which waits for its place, and would hold up what is behind it on the copy queue. */
static void send_states(struct lowering *lowering, uint32_t d)
{
    struct lower_ring *ring = &lowering->rings[d];

    for (; ring->next_state < ring->next_layer && !lowering->failed; ring->next_state++)
        if (has_visiting_state(lowering, ring->next_state, d)) {
            lower_add_state(lowering, ring->next_state, d, true);
            lowering->states[ring->next_state] = (uint32_t)lowering->program->task_count - 1;
        }
}

/* Sends the next window of device `d` on its copy queue, where the host thread does not
 * wait for it. Its place in the ring is free once task `after` has ended. */
static void send_ahead(struct lowering *lowering, uint32_t d, const uint32_t *after)
{
    struct lower_ring *ring = &lowering->rings[d];
    bool has_next = find_next(lowering, d);

    send_states(lowering, d);
    if (!has_next)
        return;
    for (const char *part = "kv"; *part != '\0'; part++)
        if (lower_add_window(lowering, ring->next_layer, d, *part,
                             ring->sent_count % places(lowering),
                             &ring->sent[ring->sent_count % LOWER_RING_PLACES]) &&
            after != NULL)
            lower_depend(lowering, *after);
    ring->sent_count++;
    ring->next_layer++;
}

static bool sends_states(const struct lowering *lowering, uint32_t d)
{
    for (uint32_t layer = 0; layer < lowering->model->n_layer; layer++)
        if (has_visiting_state(lowering, layer, d))
            return true;
    return false;
}

/* Fills the rings. The places may still be in use by the step before: a wait that holds
 * both queues of a device is over when its compute queue has come so far. */
void lower_begin_deliveries(struct lowering *lowering)
{
    for (uint32_t d = 0; d < lowering->placement->device_count; d++) {
        if (!find_next(lowering, d) && !sends_states(lowering, d))
            continue;
        lower_add(lowering,
                  (struct program_task){.kind = TASK_WAIT,
                                        .device = (int16_t)d,
                                        .layer = -1,
                                        .tensor = -1,
                                        .queues = UINT64_C(1) << program_queue_compute(d) |
                                                  UINT64_C(1) << program_queue_copy_in(d)});
        for (uint32_t place = 0; place < places(lowering); place++)
            send_ahead(lowering, d, NULL);
    }
}

/* Attention waits until its window is there. */
void lower_await_window(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    struct lower_ring *ring = &lowering->rings[d];

    lower_wait(lowering, d, (int)layer, ring->sent[ring->used_count % LOWER_RING_PLACES]);
    ring->place = ring->used_count++;
}

void lower_await_state(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    lower_wait(lowering, d, (int)layer, lowering->states[layer]);
}

void lower_send_next(struct lowering *lowering, uint32_t layer, uint32_t d)
{
    if (lower_sends_ahead(lowering) && lower_is_delivered(lowering, layer, d))
        send_ahead(lowering, d, &lowering->attention[d]);
}
