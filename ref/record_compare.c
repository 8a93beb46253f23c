/* Where two records part. */
#include "ref/record_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- whether they can be compared ---- */

static int check_prompts(const struct record *a, const struct record *b, struct error *err)
{
    if (a->slot_count != b->slot_count)
        return error_set(err, ERROR_USAGE,
                         "one record has %" PRIu32 " slots, the other %" PRIu32
                         "; runs of equal -np compare",
                         a->slot_count, b->slot_count);
    for (uint32_t s = 0; s < a->slot_count; s++) {
        const struct record_slot *x = &a->slots[s], *y = &b->slots[s];

        if (x->prompt_count != y->prompt_count ||
            memcmp(x->prompt, y->prompt, x->prompt_count * sizeof *x->prompt) != 0)
            return error_set(
                err, ERROR_USAGE,
                "the prompts of slot %" PRIu32 " differ; runs of equal prompts compare", s);
    }
    return 0;
}

static int check_terms(const struct record *a, const struct record *b, struct error *err)
{
    for (int term = 0; term < RECORD_TERMS; term++)
        if (strcmp(a->terms[term], b->terms[term]) != 0)
            return error_set(err, ERROR_USAGE,
                             "%s of one record is \"%.80s\", of the other \"%.80s\"; runs that "
                             "share it compare",
                             record_term_names[term], a->terms[term], b->terms[term]);
    return check_prompts(a, b, err);
}

/* ---- operations of both ---- */

static bool same_op(const struct record_op *a, const struct record_op *b)
{
    return a->layer == b->layer && a->kind == b->kind && a->value == b->value &&
           strcmp(a->tensor, b->tensor) == 0;
}

static uint32_t find_op(const struct record *record, const struct record_op *op)
{
    for (uint32_t i = 0; i < record->op_count; i++)
        if (same_op(&record->ops[i], op))
            return i;
    return RECORD_NO_OP;
}

static void name_op(const struct record_op *op, enum record_difference difference,
                    struct record_comparison *comparison)
{
    comparison->difference = difference;
    comparison->layer = op->layer;
    comparison->operation = program_op_name(op->kind);
    comparison->value = program_value_name(op->value);
    comparison->tensor = op->tensor;
}

/* Which operation of `b` each of `a` is, in the order of execution; the first that is in one of
 * them alone is named. */
static int match_ops(const struct record *a, const struct record *b, uint32_t **matches,
                     struct record_comparison *comparison, struct error *err)
{
    *matches = calloc((size_t)a->op_count + 1, sizeof **matches);
    if (*matches == NULL)
        return error_set(err, ERROR_MEMORY, "no memory to compare %" PRIu32 " operations",
                         a->op_count);
    for (uint32_t i = 0; i < a->op_count; i++) {
        const struct record_op *op = &a->ops[a->order[i]];

        (*matches)[i] = find_op(b, op);
        if ((*matches)[i] == RECORD_NO_OP && comparison->difference == RECORD_EQUAL)
            name_op(op, RECORD_ABSENT, comparison);
    }
    for (uint32_t i = 0; i < b->op_count && comparison->difference == RECORD_EQUAL; i++)
        if (find_op(a, &b->ops[b->order[i]]) == RECORD_NO_OP)
            name_op(&b->ops[b->order[i]], RECORD_ABSENT, comparison);
    return 0;
}

/* ---- tokens ---- */

static const struct record_entry *entry_of(const struct record_row *row, uint32_t op)
{
    return op < row->count && row->entries[op].covered > 0 ? &row->entries[op] : NULL;
}

/* Whether the rows of a token agree; else names what differs first. */
static bool compare_row(const struct record *a, const struct record_row *x,
                        const struct record_row *y, const uint32_t *matches,
                        struct record_comparison *comparison)
{
    if (x->token != y->token) {
        comparison->difference = RECORD_TOKEN;
        return false;
    }
    for (uint32_t i = 0; i < a->op_count; i++) {
        const struct record_entry *p = entry_of(x, a->order[i]), *q = entry_of(y, matches[i]);

        if (p == NULL || q == NULL)
            continue;
        if (p->digest != q->digest) {
            name_op(&a->ops[a->order[i]], RECORD_DIGEST, comparison);
            return false;
        }
        comparison->digests_equal++;
    }
    return true;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t longest(const struct record *a, const struct record *b)
{
    uint32_t rows = 0;

    for (uint32_t s = 0; s < a->slot_count; s++) {
        uint32_t both = smaller(a->slots[s].row_count, b->slots[s].row_count);

        rows = both > rows ? both : rows;
    }
    return rows;
}

/* Token by token, the slots in turn. */
static void compare_rows(const struct record *a, const struct record *b, const uint32_t *matches,
                         struct record_comparison *comparison)
{
    uint32_t rows = longest(a, b);

    for (uint32_t s = 0; s < a->slot_count; s++)
        comparison->tokens_total += smaller(a->slots[s].row_count, b->slots[s].row_count);
    for (uint32_t n = 0; n < rows; n++)
        for (uint32_t s = 0; s < a->slot_count; s++) {
            if (n >= smaller(a->slots[s].row_count, b->slots[s].row_count))
                continue;
            comparison->slot = s;
            comparison->token = n;
            if (!compare_row(a, &a->slots[s].rows[n], &b->slots[s].rows[n], matches, comparison))
                return;
            comparison->tokens_equal++;
        }
}

/* What was emitted: the last token has no row, and logits have a checksum of their own. */
static void compare_emitted(const struct record *a, const struct record *b,
                            struct record_comparison *comparison)
{
    for (uint32_t s = 0; s < a->slot_count; s++) {
        const struct record_slot *x = &a->slots[s], *y = &b->slots[s];
        uint32_t both = smaller(x->token_count, y->token_count);

        comparison->slot = s;
        for (uint32_t i = 0; i < both; i++) {
            comparison->token = x->prompt_count + i;
            if (x->tokens[i] == y->tokens[i] && x->checksums[i] == y->checksums[i])
                continue;
            comparison->difference = RECORD_TOKEN;
            return;
        }
        comparison->token = x->prompt_count + both;
        if (x->token_count != y->token_count) {
            comparison->difference = RECORD_LENGTH;
            return;
        }
    }
}

int record_compare(const struct record *a, const struct record *b,
                   struct record_comparison *comparison, struct error *err)
{
    struct record_comparison found = {.layer = -1, .operation = "", .value = "", .tensor = ""};
    uint32_t *matches;

    if (check_terms(a, b, err) != 0 || match_ops(a, b, &matches, &found, err) != 0)
        return -1;
    if (found.difference == RECORD_EQUAL)
        compare_rows(a, b, matches, &found);
    if (found.difference == RECORD_EQUAL)
        compare_emitted(a, b, &found);
    free(matches);
    *comparison = found;
    return 0;
}

/* ---- in words ---- */

static void op_text(const struct record_comparison *comparison, char *text, size_t size)
{
    char block[24] = "outside blocks";

    if (comparison->layer >= 0)
        snprintf(block, sizeof block, "block %" PRId32, comparison->layer);
    snprintf(text, size, "%s, %s into %s%s%s%s", block, comparison->operation, comparison->value,
             comparison->tensor[0] != '\0' ? " (" : "", comparison->tensor,
             comparison->tensor[0] != '\0' ? ")" : "");
}

void record_comparison_text(const struct record_comparison *comparison, char *text, size_t size)
{
    char op[160], agreed[120];

    op_text(comparison, op, sizeof op);
    snprintf(agreed, sizeof agreed,
             "%" PRIu64 " of %" PRIu64 " tokens and %" PRIu64 " digests agree",
             comparison->tokens_equal, comparison->tokens_total, comparison->digests_equal);
    switch (comparison->difference) {
    case RECORD_DIGEST:
        snprintf(text, size, "differs first at slot %" PRIu32 ", token %" PRIu32 ", %s; %s before",
                 comparison->slot, comparison->token, op, agreed);
        break;
    case RECORD_TOKEN:
        snprintf(text, size,
                 "differs first in the choice of token %" PRIu32 " of slot %" PRIu32
                 ", though what it follows from agrees; %s before",
                 comparison->token, comparison->slot, agreed);
        break;
    case RECORD_LENGTH:
        snprintf(text, size, "one has no token %" PRIu32 " of slot %" PRIu32 "; %s before",
                 comparison->token, comparison->slot, agreed);
        break;
    case RECORD_ABSENT:
        snprintf(text, size, "one has no operation of %s", op);
        break;
    default:
        snprintf(text, size, "equal: %s", agreed);
    }
}
