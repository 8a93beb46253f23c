#include "ref/session.h"

#include <stdlib.h>
#include <string.h>

#include "ref/cells.h"

struct slot {
    uint32_t length; /* tokens in the caches */
    uint32_t undone; /* tokens that the recurrent state goes back by at the next step */
};

struct session {
    const struct placement *placement;
    struct executor executor; /* self NULL: not open */
    struct layout_room room;
    struct session_options options;
    struct cells *cells[2]; /* full windows, sliding windows; the latter NULL without any */
    struct slot *slots;
    float *logits; /* (rows, n_vocab) of the last decode */
    size_t logits_rows, logits_capacity;
    float *hidden; /* (tokens, n_embd) of the last decode */
    size_t hidden_rows, hidden_capacity;
    uint64_t steps;
};

static struct layout_room room_of(const struct placement *placement, struct session_options options)
{
    const struct plan *plan = &placement->plan;
    uint32_t window = model_widest_window(placement->model);
    struct layout_room room = {.sequences = plan->n_slots > 1 ? plan->n_slots : 1,
                               .positions = placement->n_ctx,
                               .planes = 1 + options.undo_max};
    uint64_t sliding;

    room.streams = plan->kv_unified ? 1 : room.sequences;
    room.cells[0] = placement->n_ctx;
    sliding = (uint64_t)(window + options.undo_max) * (plan->kv_unified ? room.sequences : 1) +
              plan->n_ubatch;
    room.cells[1] = plan_pad_cells(sliding < placement->n_ctx ? sliding : placement->n_ctx);
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
    free(session->logits);
    free(session->hidden);
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

uint32_t session_length(const struct session *session, uint32_t slot)
{
    return session->slots[slot].length;
}

const float *session_logits(const struct session *session, uint32_t row)
{
    return session->logits + (size_t)row * session->placement->model->n_vocab;
}

static struct memory *host_memory(const struct session *session)
{
    return session->executor.memory(session->executor.self);
}

const float *session_hidden(const struct session *session, uint32_t index)
{
    return session->hidden + (size_t)index * session->placement->model->n_embd;
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
    uint32_t padded = plan_pad_cells(cells_used(session->cells[kind]));

    return padded < session->room.cells[kind] ? padded : session->room.cells[kind];
}

/* Appends rows that the host has to those of the decode. */
static int keep_rows(struct session *session, enum op_value value, uint32_t count, uint64_t width,
                     float **rows, size_t *have, size_t *capacity, struct error *err)
{
    struct program_operand operand = {.value = (uint8_t)value, .space = PROGRAM_AT_HOST};
    const float *from;

    if (count == 0)
        return 0;
    from = memory_find(host_memory(session), operand, -1, count * width * sizeof *from, err);
    if (from == NULL)
        return -1;
    if (*have + count > *capacity) {
        float *grown = realloc(*rows, (*have + count) * width * sizeof *grown);

        if (grown == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for %zu rows of %s", *have + count,
                             program_value_name(value));
        *rows = grown;
        *capacity = *have + count;
    }
    memcpy(*rows + *have * width, from, count * width * sizeof *from);
    *have += count;
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
                         const float *hidden, uint32_t count, struct error *err)
{
    const struct model *model = session->placement->model;
    struct program_step step = {.tokens = count, .hidden = session->options.hidden, .sync = true};
    struct program *program;
    uint32_t depth = 0;
    int status;

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
    program = program_lower(session->placement, step, err);
    if (program == NULL)
        return -1;
    status = run(session, program, (struct interpret_step){.lowered = step, .depth = depth}, err);
    program_free(program);
    if (status != 0 ||
        keep_rows(session, OP_VALUE_LOGITS, step.outputs, model->n_vocab, &session->logits,
                  &session->logits_rows, &session->logits_capacity, err) != 0)
        return -1;
    return keep_rows(session, OP_VALUE_RESIDUAL, step.hidden ? count : 0, model->n_embd,
                     &session->hidden, &session->hidden_rows, &session->hidden_capacity, err);
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
    session->logits_rows = session->hidden_rows = 0;
    for (uint32_t first = 0; first < count; first += ubatch)
        if (decode_ubatch(session, tokens + first, hidden != NULL ? hidden + first * n_embd : NULL,
                          count - first < ubatch ? count - first : ubatch, err) != 0)
            return -1;
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
