#include "ref/session.h"

#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"
#include "ref/cells.h"

struct slot {
    uint32_t length; /* tokens in the caches */
    uint32_t undone; /* tokens that the recurrent state goes back by at the next step */
};

/* Rows that came to the host: where the executor left them, if they came in one step. */
struct rows {
    const float *at;
    float *kept; /* those of several steps */
    size_t count, capacity;
};

struct session {
    const struct placement *placement;
    struct executor executor; /* self NULL: not open */
    struct layout_room room;
    struct session_options options;
    struct cells *cells[2]; /* full windows, sliding windows; the latter NULL without any */
    struct slot *slots;
    struct rows logits; /* (rows, n_vocab) of the last decode */
    struct rows hidden; /* (tokens, n_embd) of the last decode */
    uint32_t *picked;   /* (picked_count) of the last decode */
    size_t picked_count, picked_capacity;
    uint64_t steps;
    struct program *program; /* of the last step, for one that is lowered the same */
    struct program_step lowered;
};

static struct layout_room room_of(const struct placement *placement, struct session_options options)
{
    const struct plan *plan = &placement->plan;
    uint32_t window = model_widest_window(placement->model);
    struct layout_room room = {.sequences = plan->n_slots > 1 ? plan->n_slots : 1,
                               .planes = 1 + options.undo_max};
    uint64_t sliding;

    /* Sequences with a cache each have a part of the context each. */
    room.streams = plan->kv_unified ? 1 : room.sequences;
    room.cells[0] = plan_pad_cells((placement->n_ctx + room.streams - 1) / room.streams);
    room.positions = room.cells[0];
    sliding = (uint64_t)(window + options.undo_max) * (plan->kv_unified ? room.sequences : 1) +
              plan->n_ubatch;
    room.cells[1] = plan_pad_cells(sliding < room.cells[0] ? sliding : room.cells[0]);
    return room;
}

static int open_executor(struct session *session, struct weights *weights,
                         const struct numbers *numbers, const struct ref_kernels *kernels,
                         struct error *err)
{
    const struct session_options *options = &session->options;
    struct executor_setting setting = {.placement = session->placement,
                                       .weights = weights,
                                       .numbers = numbers,
                                       .kernels =
                                           kernels != NULL ? kernels : ref_kernels_find(NULL),
                                       .room = session->room,
                                       .fault = options->fault};
    executor_open *open = options->open != NULL ? options->open : executor_open_interpreter;

    return open(&setting, options->open_context, &session->executor, err);
}

struct session *session_new(const struct placement *placement, struct weights *weights,
                            const struct numbers *numbers, const struct ref_kernels *kernels,
                            struct session_options options, struct error *err)
{
    struct session *session = calloc(1, sizeof *session);
    uint32_t window = model_widest_window(placement->model);

    if (session == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for a session");
        return NULL;
    }
    session->placement = placement;
    session->options = options;
    session->room = room_of(placement, options);
    session->slots = calloc(session->room.sequences, sizeof *session->slots);
    if (session->slots == NULL)
        error_set(err, ERROR_MEMORY, "no memory for %u slots", session->room.sequences);
    for (int kind = 0; kind < (window > 0 ? 2 : 1); kind++)
        session->cells[kind] =
            cells_new(session->room.sequences, session->room.streams, session->room.cells[kind],
                      session->room.positions, kind > 0 ? window : 0, err);
    if (session->slots == NULL || session->cells[0] == NULL ||
        (window > 0 && session->cells[1] == NULL) ||
        open_executor(session, weights, numbers, kernels, err) != 0) {
        session_free(session);
        return NULL;
    }
    return session;
}

void session_free(struct session *session)
{
    if (session == NULL)
        return;
    if (session->executor.self != NULL)
        session->executor.free(session->executor.self);
    cells_free(session->cells[0]);
    cells_free(session->cells[1]);
    free(session->slots);
    program_free(session->program);
    free(session->logits.kept);
    free(session->hidden.kept);
    free(session->picked);
    free(session);
}

struct interpreter *session_interpreter(struct session *session)
{
    return executor_interpreter(&session->executor);
}

const struct model *session_model(const struct session *session)
{
    return session->placement->model;
}

uint32_t session_picked(const struct session *session, uint32_t row)
{
    return session->picked[row];
}

uint32_t session_length(const struct session *session, uint32_t slot)
{
    return session->slots[slot].length;
}

const float *session_logits(const struct session *session, uint32_t row)
{
    return session->logits.at + (size_t)row * session->placement->model->n_vocab;
}

static struct memory *host_memory(const struct session *session)
{
    return session->executor.memory(session->executor.self);
}

const float *session_hidden(const struct session *session, uint32_t index)
{
    return session->hidden.at + (size_t)index * session->placement->model->n_embd;
}

/* ---- a step ---- */

static int take_cells(struct session *session, struct program_token *token, bool first_of_slot,
                      struct error *err)
{
    for (int kind = 0; kind < 2 && session->cells[kind] != NULL; kind++) {
        int64_t cell;

        if (first_of_slot && token->position > session->options.undo_max)
            cells_release(session->cells[kind], token->sequence,
                          token->position - session->options.undo_max);
        cell = cells_take(session->cells[kind], token->sequence, token->position);
        if (cell < 0)
            return error_set(err, ERROR_USAGE,
                             "slot %u: no cell for position %u; the context is full (-c %u)",
                             token->sequence, token->position, session->placement->n_ctx);
        token->cell[kind] = (uint32_t)cell;
    }
    return 0;
}

static bool is_first_of_slot(const struct session_token *tokens, uint32_t t)
{
    for (uint32_t i = 0; i < t; i++)
        if (tokens[i].slot == tokens[t].slot)
            return false;
    return true;
}

/* The host's values of a step. */
static int set_tokens(struct session *session, const struct session_token *tokens, uint32_t count,
                      struct error *err)
{
    struct memory *memory = host_memory(session);
    struct program_operand operand = {.value = OP_VALUE_TOKENS, .space = PROGRAM_AT_HOST};
    struct program_token *out = memory_reserve(memory, operand, -1, count * sizeof *out, err);

    if (out == NULL)
        return -1;
    for (uint32_t t = 0; t < count; t++) {
        struct slot *slot = &session->slots[tokens[t].slot];

        out[t] = (struct program_token){.token = tokens[t].token,
                                        .position = slot->length,
                                        .sequence = tokens[t].slot,
                                        .output = tokens[t].output,
                                        .undone = slot->undone,
                                        .from_zero = slot->length == 0};
        if (take_cells(session, &out[t], is_first_of_slot(tokens, t), err) != 0)
            return -1;
        slot->length++;
    }
    /* All tokens of a slot say how its state begins. */
    for (uint32_t t = 0; t < count; t++)
        for (uint32_t i = 0; i < t; i++)
            if (out[i].sequence == out[t].sequence) {
                out[t].from_zero = out[i].from_zero;
                break;
            }
    for (uint32_t t = 0; t < count; t++)
        session->slots[tokens[t].slot].undone = 0;
    for (int kind = 0; kind < 2 && session->cells[kind] != NULL; kind++) {
        size_t bytes = (size_t)session->room.sequences * session->room.positions * sizeof(int32_t);
        void *table;

        operand = (struct program_operand){
            .value = OP_VALUE_CELLS, .slot = (uint8_t)kind, .space = PROGRAM_AT_HOST};
        table = memory_reserve(memory, operand, -1, bytes, err);
        if (table == NULL)
            return -1;
        memcpy(table, cells_table(session->cells[kind]), bytes);
    }
    return 0;
}

static uint32_t window_of(const struct session *session, int kind)
{
    return program_window_cells(session->placement, session->room.cells[kind],
                                cells_used(session->cells[kind]));
}

/* Adds rows that the host has to those of the decode; `last`: no more will come. */
static int keep_rows(struct session *session, enum op_value value, uint32_t count, uint64_t width,
                     bool last, struct rows *rows, struct error *err)
{
    struct program_operand operand = {.value = (uint8_t)value, .space = PROGRAM_AT_HOST};
    const float *from;

    if (count == 0)
        return 0;
    from = memory_find(host_memory(session), operand, -1, count * width * sizeof *from, err);
    if (from == NULL)
        return -1;
    if (last && rows->count == 0) {
        rows->at = from;
        return 0;
    }
    if (rows->count + count > rows->capacity) {
        float *grown = realloc(rows->kept, (rows->count + count) * width * sizeof *grown);

        if (grown == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for %zu rows of %s", rows->count + count,
                             program_value_name(value));
        rows->kept = grown;
        rows->capacity = rows->count + count;
    }
    memcpy(rows->kept + rows->count * width, from, count * width * sizeof *from);
    rows->count += count;
    rows->at = rows->kept;
    return 0;
}

/* The best of what devices have picked from their parts of a row. */
static uint32_t best_of(const struct placement *placement, const struct program_pick *picks)
{
    bool on_host = placement->owner[placement->layer_count] < 0, any = on_host;
    struct program_pick best = picks[0];

    for (uint32_t d = 0; d < placement->device_count && !on_host; d++) {
        if (!placement_gives_logits(placement, d))
            continue;
        /* Parts do not lie in the order of devices. */
        if (!any || arith_is_larger(picks[d].logit, best.logit) ||
            (!arith_is_larger(best.logit, picks[d].logit) && picks[d].token < best.token))
            best = picks[d];
        any = true;
    }
    return best.token;
}

static int keep_picks(struct session *session, uint32_t count, struct error *err)
{
    struct program_operand operand = {.value = OP_VALUE_PICKS, .space = PROGRAM_AT_HOST};
    uint32_t devices = session->placement->device_count;
    const struct program_pick *picks = memory_find(host_memory(session), operand, -1,
                                                   (size_t)count * devices * sizeof *picks, err);

    if (picks == NULL)
        return -1;
    if (session->picked_count + count > session->picked_capacity) {
        size_t capacity = session->picked_count + count;
        uint32_t *grown = realloc(session->picked, capacity * sizeof *grown);

        if (grown == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for %zu tokens", capacity);
        session->picked = grown;
        session->picked_capacity = capacity;
    }
    for (uint32_t row = 0; row < count; row++)
        session->picked[session->picked_count++] =
            best_of(session->placement, picks + (size_t)row * devices);
    return 0;
}

static int run(struct session *session, const struct program *program, struct interpret_step step,
               struct error *err)
{
    const struct executor *executor = &session->executor;
    int status;

    for (int kind = 0; kind < 2 && session->cells[kind] != NULL; kind++)
        step.used[kind] = window_of(session, kind);
    session->steps++;
    if (session->options.shuffled && executor->run_shuffled != NULL)
        status = executor->run_shuffled(executor->self, program, step,
                                        session->options.order_seed + session->steps, err);
    else
        status = executor->run(executor->self, program, step, err);
    return status;
}

static bool is_same_step(const struct program_step *a, const struct program_step *b)
{
    return a->tokens == b->tokens && a->outputs == b->outputs && a->sequences == b->sequences &&
           a->snapshots == b->snapshots && a->hidden == b->hidden && a->picks == b->picks &&
           a->sync == b->sync;
}

/* The program of a step; steps of generation are mostly the same. */
static const struct program *lower(struct session *session, struct program_step step,
                                   struct error *err)
{
    if (session->program != NULL && is_same_step(&step, &session->lowered))
        return session->program;
    program_free(session->program);
    session->program = program_lower(session->placement, step, err);
    session->lowered = step;
    return session->program;
}

static int set_hidden(struct session *session, const float *hidden, uint32_t count,
                      struct error *err)
{
    size_t bytes = (size_t)count * session->placement->model->n_embd * sizeof *hidden;
    struct program_operand operand = {.value = OP_VALUE_HIDDEN, .space = PROGRAM_AT_HOST};
    void *rows;

    if (hidden == NULL)
        return 0;
    rows = memory_reserve(host_memory(session), operand, -1, bytes, err);
    if (rows == NULL)
        return -1;
    memcpy(rows, hidden, bytes);
    return 0;
}

static int decode_ubatch(struct session *session, const struct session_token *tokens,
                         const float *hidden, uint32_t count, bool last, struct error *err)
{
    const struct model *model = session->placement->model;
    struct program_step step = {.tokens = count,
                                .hidden = session->options.hidden,
                                .picks = session->options.picks,
                                .sync = true};
    const struct program *program;
    uint32_t depth = 0;

    step.snapshots = session->options.undo_max;
    for (uint32_t t = 0; t < count; t++) {
        uint32_t length = session->slots[tokens[t].slot].length;

        step.outputs += tokens[t].output;
        step.sequences += is_first_of_slot(tokens, t);
        depth = length > depth ? length : depth;
    }
    session->executor.forget_step(session->executor.self);
    if (set_tokens(session, tokens, count, err) != 0 ||
        set_hidden(session, hidden, count, err) != 0)
        return -1;
    program = lower(session, step, err);
    if (program == NULL ||
        run(session, program, (struct interpret_step){.lowered = step, .depth = depth}, err) != 0)
        return -1;
    if (step.picks && step.outputs > 0
            ? keep_picks(session, step.outputs, err) != 0
            : keep_rows(session, OP_VALUE_LOGITS, step.outputs, model->n_vocab, last,
                        &session->logits, err) != 0)
        return -1;
    return keep_rows(session, OP_VALUE_RESIDUAL, step.hidden ? count : 0, model->n_embd, last,
                     &session->hidden, err);
}

int session_decode(struct session *session, const struct session_token *tokens, uint32_t count,
                   struct error *err)
{
    return session_decode_hidden(session, tokens, NULL, count, err);
}

int session_decode_hidden(struct session *session, const struct session_token *tokens,
                          const float *hidden, uint32_t count, struct error *err)
{
    uint64_t n_embd = session->placement->model->n_embd;
    uint32_t ubatch = session->placement->plan.n_ubatch;

    for (uint32_t t = 0; t < count; t++) {
        if (tokens[t].token >= session->placement->model->n_vocab)
            return error_set(err, ERROR_USAGE, "token %u is not in the vocabulary of %u",
                             tokens[t].token, session->placement->model->n_vocab);
        if (tokens[t].slot >= session->room.sequences)
            return error_set(err, ERROR_USAGE, "slot %u; the plan has %u (-np)", tokens[t].slot,
                             session->room.sequences);
    }
    session->logits.count = session->hidden.count = session->picked_count = 0;
    for (uint32_t first = 0; first < count; first += ubatch)
        if (decode_ubatch(session, tokens + first, hidden != NULL ? hidden + first * n_embd : NULL,
                          count - first < ubatch ? count - first : ubatch, count - first <= ubatch,
                          err) != 0)
            return -1;
    return 0;
}

int session_fill(struct session *session, uint32_t slots, uint32_t length, struct error *err)
{
    uint32_t first = UINT32_MAX;

    for (uint32_t slot = 0; slot < slots; slot++)
        first = session->slots[slot].length < first ? session->slots[slot].length : first;
    for (uint32_t position = first; position < length; position++)
        for (uint32_t slot = 0; slot < slots; slot++) {
            struct program_token token = {.position = position, .sequence = slot};

            if (session->slots[slot].length > position)
                continue;
            if (take_cells(session, &token, true, err) != 0)
                return -1;
            session->slots[slot].length++;
            session->slots[slot].undone = 0;
        }
    return 0;
}

/* ---- taking tokens back ---- */

void session_undo(struct session *session, uint32_t slot, uint32_t count)
{
    session->slots[slot].length -= count;
    session->slots[slot].undone = count;
    for (int kind = 0; kind < 2 && session->cells[kind] != NULL; kind++)
        cells_truncate(session->cells[kind], slot, session->slots[slot].length);
}

static bool keeps_all(const struct model *model)
{
    for (uint32_t layer = 0; layer < model->n_layer; layer++)
        if (!model_layer_has_kv(&model->layers[layer]) || model->layers[layer].window > 0)
            return false;
    return true;
}

int session_truncate(struct session *session, uint32_t slot, uint32_t length, struct error *err)
{
    struct slot *own = &session->slots[slot];

    if (length >= own->length)
        return 0;
    if (length > 0 && !keeps_all(session->placement->model))
        return error_set(err, ERROR_UNSUPPORTED,
                         "slot %u: what its first %u tokens left is no longer there", slot, length);
    own->length = length;
    own->undone = 0;
    for (int kind = 0; kind < 2 && session->cells[kind] != NULL; kind++)
        cells_truncate(session->cells[kind], slot, length);
    return 0;
}

/* ---- context shift ---- */

/* By how much the rows behind the dropped tokens move down. */
static int set_shifts(struct session *session, int kind, uint32_t slot, uint32_t first,
                      uint32_t count, struct error *err)
{
    const struct layout_room *room = &session->room;
    size_t rows = (size_t)room->streams * room->cells[kind];
    struct program_operand operand = {
        .value = OP_VALUE_SHIFTS, .slot = (uint8_t)kind, .space = PROGRAM_AT_HOST};
    uint32_t *shifts =
        memory_reserve(host_memory(session), operand, -1, rows * sizeof *shifts, err);
    const int32_t *table = cells_table(session->cells[kind]) + (size_t)slot * room->positions;

    if (shifts == NULL)
        return -1;
    memset(shifts, 0, rows * sizeof *shifts);
    for (uint32_t position = first + count; position < session->slots[slot].length; position++)
        if (table[position] >= 0)
            shifts[table[position]] = count;
    return 0;
}

int session_shift(struct session *session, uint32_t slot, uint32_t first, uint32_t count,
                  struct error *err)
{
    struct program *program;
    int status;

    if (slot >= session->room.sequences || first + count > session->slots[slot].length)
        return error_set(err, ERROR_USAGE, "slot %u has %u tokens; it cannot drop %u from %u on",
                         slot, slot < session->room.sequences ? session->slots[slot].length : 0,
                         count, first);
    session->executor.forget_step(session->executor.self);
    for (int kind = 0; kind < 2 && session->cells[kind] != NULL; kind++)
        if (set_shifts(session, kind, slot, first, count, err) != 0)
            return -1;
    program = program_lower_shift(session->placement, err);
    if (program == NULL)
        return -1;
    status =
        run(session, program, (struct interpret_step){.depth = session->slots[slot].length}, err);
    program_free(program);
    for (int kind = 0; kind < 2 && session->cells[kind] != NULL; kind++)
        cells_shift(session->cells[kind], slot, first, count);
    session->slots[slot].length -= count;
    return status;
}
