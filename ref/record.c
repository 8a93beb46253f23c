/* Recording: which part of a row an operation computed, and its digest.
 *
 * Where a part lies in the whole row follows from the slice of the product that began it, and
 * is carried from value to value, as the data are. So is the tensor of that product, which
 * tells apart operations that a block has more than once. */
#include "ref/record_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/tensor_type.h"

enum { SPACES = MACHINE_DEVICES_MAX + 1, PLACES = PLAN_DELIVERY_DEPTH_MAX + 1 };

const char *const record_term_names[RECORD_TERMS] = {
    [RECORD_MODEL] = "model",       [RECORD_WEIGHTS] = "weights",     [RECORD_CACHE] = "cache",
    [RECORD_SAMPLING] = "sampling", [RECORD_SHIFT] = "context_shift",
};

/* ---- made and freed ---- */

struct record *record_empty(uint32_t slots, struct error *err)
{
    struct record *record = calloc(1, sizeof *record);

    if (record != NULL) {
        record->slot_count = slots;
        record->slots = calloc((size_t)slots + 1, sizeof *record->slots);
    }
    if (record != NULL && record->slots != NULL)
        return record;
    free(record);
    error_set(err, ERROR_MEMORY, "no memory for a record of %" PRIu32 " slots", slots);
    return NULL;
}

static void write_terms(struct record *record, const struct record_run *run)
{
    const struct generate_options *options = &run->options;
    size_t size = sizeof record->terms[0];

    snprintf(record->terms[RECORD_MODEL], size, "%s %s", run->model->name, run->model->quant);
    snprintf(record->terms[RECORD_WEIGHTS], size, "of a file");
    if (run->synthetic)
        snprintf(record->terms[RECORD_WEIGHTS], size, "synthetic, seed %" PRIu64, run->seed);
    snprintf(record->terms[RECORD_CACHE], size, "K %s, V %s", tensor_type_info(run->type_k)->name,
             tensor_type_info(run->type_v)->name);
    snprintf(record->terms[RECORD_SAMPLING], size, "the largest logit");
    if (options->sampling.temperature > 0)
        snprintf(record->terms[RECORD_SAMPLING], size, "temperature %g, seed %" PRIu64,
                 (double)options->sampling.temperature, options->sampling.seed);
    snprintf(record->terms[RECORD_SHIFT], size, "none");
    if (options->shift_at > 0)
        snprintf(record->terms[RECORD_SHIFT], size,
                 "%" PRIu32 " kept and %" PRIu32 " dropped at %" PRIu32, options->shift_keep,
                 options->shift_count, options->shift_at);
}

struct record *record_new(const struct record_run *run, uint32_t slots, struct error *err)
{
    struct record *record = record_empty(slots, err);
    size_t layers = (size_t)run->model->n_layer + run->model->n_layer_nextn + 1;

    if (record == NULL)
        return NULL;
    write_terms(record, run);
    record->model = run->model;
    record->shift_count = run->options.shift_at > 0 ? run->options.shift_count : 0;
    record->of_layer = calloc(layers, sizeof *record->of_layer);
    record->held = calloc((size_t)SPACES * PLACES * OP_VALUE_COUNT, sizeof *record->held);
    if (record->of_layer == NULL || record->held == NULL) {
        record_free(record);
        error_set(err, ERROR_MEMORY, "no memory for a record of %zu blocks", layers);
        return NULL;
    }
    for (size_t i = 0; i < layers; i++)
        record->of_layer[i] = RECORD_NO_OP;
    return record;
}

static void close_slot(struct record_slot *slot)
{
    for (uint32_t i = 0; i < slot->row_count; i++)
        free(slot->rows[i].entries);
    free(slot->rows);
    free(slot->prompt);
    free(slot->tokens);
    free(slot->checksums);
}

void record_free(struct record *record)
{
    if (record == NULL)
        return;
    for (uint32_t i = 0; i < record->slot_count; i++)
        close_slot(&record->slots[i]);
    free(record->slots);
    free(record->ops);
    free(record->of_layer);
    free(record->order);
    free(record->held);
    free(record);
}

uint64_t record_checksum(const struct record *record)
{
    return record->checksum;
}

/* ---- operations ---- */

struct record_op *record_add_op(struct record *record, struct error *err)
{
    if (record->op_count == record->op_capacity) {
        uint32_t capacity = record->op_capacity > 0 ? 2 * record->op_capacity : 256;
        struct record_op *grown = realloc(record->ops, capacity * sizeof *grown);

        if (grown == NULL) {
            error_set(err, ERROR_MEMORY, "no memory for %" PRIu32 " operations", capacity);
            return NULL;
        }
        record->ops = grown;
        record->op_capacity = capacity;
    }
    record->ops[record->op_count] = (struct record_op){.tensor_index = -1, .next = RECORD_NO_OP};
    return &record->ops[record->op_count++];
}

/* The number of an operation, which is new or not; RECORD_NO_OP without memory. */
static uint32_t number_of(struct record *record, const struct interpret_seen *seen, int32_t tensor)
{
    const struct program_op *op = seen->op;
    uint32_t *first = &record->of_layer[op->layer + 1];
    struct record_op *added;

    for (uint32_t i = *first; i != RECORD_NO_OP; i = record->ops[i].next)
        if (record->ops[i].kind == op->kind && record->ops[i].value == op->out.value &&
            record->ops[i].tensor_index == tensor)
            return i;
    added = record_add_op(record, &record->err);
    if (added == NULL)
        return RECORD_NO_OP;
    added->layer = op->layer;
    added->kind = op->kind;
    added->value = op->out.value;
    added->tensor_index = tensor;
    snprintf(added->tensor, sizeof added->tensor, "%s",
             tensor >= 0 ? record->model->tensors[tensor].name : "");
    added->order = (size_t)(op - seen->program->ops);
    added->next = *first;
    *first = record->op_count - 1;
    return *first;
}

struct sorting {
    uint64_t stage;
    size_t order;
    uint32_t op;
};

static int compare_sorting(const void *a, const void *b)
{
    const struct sorting *x = a, *y = b;

    if (x->stage != y->stage)
        return x->stage < y->stage ? -1 : 1;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return x->op < y->op ? -1 : x->op > y->op;
}

/* Embeddings, blocks, the head; within a block as the program that had it first. */
int record_sort(struct record *record, struct error *err)
{
    struct sorting *sorting = calloc((size_t)record->op_count + 1, sizeof *sorting);

    record->order = calloc((size_t)record->op_count + 1, sizeof *record->order);
    if (sorting == NULL || record->order == NULL) {
        free(sorting);
        return error_set(err, ERROR_MEMORY, "no memory to order %" PRIu32 " operations",
                         record->op_count);
    }
    for (uint32_t i = 0; i < record->op_count; i++) {
        const struct record_op *op = &record->ops[i];

        sorting[i] = (struct sorting){.order = op->order, .op = i};
        if (op->layer >= 0)
            sorting[i].stage = (uint64_t)op->layer + 1;
        else if (op->kind != OP_EMBED)
            sorting[i].stage = UINT64_MAX;
    }
    qsort(sorting, record->op_count, sizeof *sorting, compare_sorting);
    for (uint32_t i = 0; i < record->op_count; i++)
        record->order[i] = sorting[i].op;
    free(sorting);
    return 0;
}

/* ---- where parts lie ---- */

static struct record_held *held_at(struct record *record, struct program_operand operand)
{
    size_t space = (size_t)(operand.space + 1), place = operand.slot % PLACES;

    return &record->held[(space * PLACES + place) * OP_VALUE_COUNT + operand.value];
}

static struct record_held whole_row(uint64_t width, int32_t origin)
{
    return (struct record_held){.segments = 1, .segment = width, .count = width, .origin = origin};
}

static bool is_whole(const struct record_held *held)
{
    return held->count == held->segment;
}

static struct record_held product(const struct record *record, const struct program_op *op)
{
    const struct model_tensor *tensor = &record->model->tensors[op->tensor];
    struct record_held held = {.segments = op->slice.segments > 0 ? op->slice.segments : 1,
                               .segment = tensor->ne[1],
                               .first = op->slice.first,
                               .count = op->rows,
                               .origin = op->tensor};

    if (op->kind == OP_EXPERTS) { /* a fused tensor has the rows of gate, then those of up */
        held.segments = record->model->layers[op->layer].n_expert_used;
        held.segment = record->model->layers[op->layer].n_ff_exp;
        held.first %= held.segment;
        return held;
    }
    held.segment /= held.segments;
    held.count /= held.segments;
    return held;
}

/* As `held`, of heads that go from `from` values to `to`. */
static struct record_held with_heads(struct record_held held, uint64_t from, uint64_t to)
{
    held.segment = held.segment / from * to;
    held.first = held.first / from * to;
    held.count = held.count / from * to;
    return held;
}

/* How an operation's output lies. */
static struct record_held result(struct record *record, const struct interpret_seen *seen)
{
    const struct program_op *op = seen->op;
    struct record_held a = *held_at(record, op->a);
    const struct model_layer *l = op->layer >= 0 ? &record->model->layers[op->layer] : NULL;

    switch (op->kind) {
    case OP_MATMUL:
    case OP_EXPERTS:
        return product(record, op);
    case OP_EMBED:
    case OP_PARTIAL:
    case OP_EXPERTS_PARTIAL:
        return whole_row(seen->width, op->tensor);
    case OP_JOIN:
        return whole_row(seen->width, held_at(record, op->b)->origin);
    case OP_SPLIT_GATE:
        return with_heads(a, 2 * op->columns, op->columns);
    case OP_ATTEND:
        return with_heads(a, op->columns, op->rows);
    case OP_DELTA:
        return (struct record_held){.segments = op->slice.segments,
                                    .segment = l->gdn_k_heads * op->columns,
                                    .first = op->slice.first * op->columns,
                                    .count = op->slice.count * op->columns,
                                    .origin = a.origin};
    case OP_COPY:
    case OP_REDUCE:
        return a;
    default:
        return a.segments * a.count == seen->width ? a : whole_row(seen->width, a.origin);
    }
}

static void keep_held(struct record *record, const struct program_op *op, struct record_held held)
{
    struct program_operand out = op->out;

    if (op->kind == OP_STORE || op->kind == OP_SHIFT || op->kind == OP_STAGE)
        return;
    if (op->kind == OP_SPLIT_GATE)
        *held_at(record, op->out2) = held;
    if (op->kind != OP_REDUCE) {
        *held_at(record, out) = held;
        return;
    }
    for (int16_t d = 0; d < MACHINE_DEVICES_MAX; d++) { /* sums come to devices without a part */
        if ((op->members >> d & 1) != 0) {
            out.space = d;
            held = *held_at(record, out);
        }
    }
    for (int16_t d = 0; d < MACHINE_DEVICES_MAX; d++) {
        out.space = d;
        *held_at(record, out) = held;
    }
}

/* ---- digests ---- */

/* Steele, Lea, Flood 2014: the finalizer of SplitMix64, over index and bits. */
static uint64_t mix(uint64_t index, uint32_t bits)
{
    uint64_t z = (index << 32 | bits) + UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t digest_of(const char *row, const struct record_held *held)
{
    uint64_t digest = 0;

    for (uint64_t s = 0; s < held->segments; s++)
        for (uint64_t i = 0; i < held->count; i++, row += sizeof(uint32_t)) {
            uint32_t bits;

            memcpy(&bits, row, sizeof bits);
            digest += mix(s * held->segment + held->first + i, bits);
        }
    return digest;
}

struct record_row *record_row(struct record_slot *slot, uint32_t number, uint32_t count,
                              struct error *err)
{
    struct record_row *row;

    if (number >= slot->row_capacity) {
        uint32_t capacity = number < 32 ? 64 : 2 * number;
        struct record_row *rows = realloc(slot->rows, capacity * sizeof *rows);

        if (rows == NULL) {
            error_set(err, ERROR_MEMORY, "no memory for the digests of %" PRIu32 " tokens",
                      capacity);
            return NULL;
        }
        slot->rows = rows;
        slot->row_capacity = capacity;
    }
    while (slot->row_count <= number)
        slot->rows[slot->row_count++] = (struct record_row){.entries = NULL};
    row = &slot->rows[number];
    if (row->count < count) {
        struct record_entry *entries = realloc(row->entries, count * sizeof *entries);

        if (entries == NULL) {
            error_set(err, ERROR_MEMORY, "no memory for %" PRIu32 " digests", count);
            return NULL;
        }
        memset(entries + row->count, 0, (count - row->count) * sizeof *entries);
        row->entries = entries;
        row->count = count;
    }
    return row;
}

/* Adds a part of a row, or the whole of it, which counts once a step. */
static void add(struct record_entry *entry, uint32_t step, uint64_t digest,
                const struct record_held *held)
{
    if (entry->step != step)
        *entry = (struct record_entry){.step = step};
    if (!is_whole(held) || entry->covered == 0) {
        entry->digest += digest;
        entry->covered += (uint32_t)(held->segments * held->count);
    } else if (entry->digest != digest) {
        entry->digest = mix(entry->digest >> 32, (uint32_t)entry->digest) ^ digest;
    }
}

/* The number of a token in its slot: after a context shift, positions come again. */
static uint32_t token_number(const struct record *record, const struct program_token *token)
{
    const struct record_slot *slot = &record->slots[token->sequence];

    return token->position + (slot->shifted ? record->shift_count : 0);
}

/* Which token a row of the output is of: its index in the step. */
static uint32_t next_token(const struct interpret_seen *seen, uint32_t from)
{
    bool outputs = seen->op->outputs || seen->op->kind == OP_SELECT;

    while (outputs && from < seen->program->tokens && seen->tokens[from].output == 0)
        from++;
    return from;
}

static void begin_step(struct record *record, const struct interpret_seen *seen)
{
    record->step = seen->step + 1;
    for (uint32_t t = 0; t < seen->program->tokens; t++) {
        const struct program_token *token = &seen->tokens[t];
        struct record_slot *slot = &record->slots[token->sequence];
        struct record_row *row;

        if (record->shift_count > 0 && !slot->shifted && token->position < slot->reached)
            slot->shifted = true;
        slot->reached = token->position + 1;
        row = record_row(slot, token_number(record, token), record->op_count, &record->err);
        if (row == NULL)
            return;
        row->token = token->token;
    }
}

static void note(void *context, const struct interpret_seen *seen)
{
    struct record *record = context;
    struct record_held held = result(record, seen);
    uint32_t number, token = seen->op->token_first;
    const char *output = seen->output;

    keep_held(record, seen->op, held);
    if (output == NULL || seen->tokens == NULL || record->err.code != ERROR_NONE)
        return;
    if (record->step != seen->step + 1)
        begin_step(record, seen);
    number = number_of(record, seen, seen->op->tensor >= 0 ? seen->op->tensor : held.origin);
    for (uint64_t r = 0; r < seen->rows && record->err.code == ERROR_NONE; r++) {
        const struct program_token *of;
        struct record_row *row;

        token = next_token(seen, token);
        of = &seen->tokens[token++];
        row = record_row(&record->slots[of->sequence], token_number(record, of), number + 1,
                         &record->err);
        if (row != NULL)
            add(&row->entries[number], (uint32_t)record->step,
                digest_of(output + r * seen->width * sizeof(uint32_t), &held), &held);
    }
}

void record_watch(struct record *record, struct session *session)
{
    interpreter_watch(session_interpreter(session), note, record);
}

/* ---- the end ---- */

static void *copy_of(const void *from, size_t count, size_t size)
{
    void *to = calloc(count + 1, size);

    if (to != NULL && count > 0)
        memcpy(to, from, count * size);
    return to;
}

int record_finish(struct record *record, const struct generate_slot *slots, uint32_t tokens,
                  const struct generation *generation, struct error *err)
{
    if (record->err.code != ERROR_NONE)
        return error_set(err, record->err.code, "%s", record->err.text);
    record->checksum = generation->checksum;
    for (uint32_t i = 0; i < record->slot_count; i++) {
        struct record_slot *slot = &record->slots[i];

        slot->prompt = copy_of(slots[i].prompt, slots[i].prompt_count, sizeof *slot->prompt);
        slot->tokens = copy_of(slots[i].tokens, tokens, sizeof *slot->tokens);
        slot->checksums = copy_of(slots[i].checksums, tokens, sizeof *slot->checksums);
        if (slot->prompt == NULL || slot->tokens == NULL || slot->checksums == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for %" PRIu32 " tokens", tokens);
        slot->prompt_count = slots[i].prompt_count;
        slot->token_count = tokens;
    }
    return record_sort(record, err);
}
