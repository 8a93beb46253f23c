#include "ref/generate.h"

#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* states are members */
#include <xxhash.h>

#include "ref/arith.h"
#include "ref/philox.h"

enum { DRAFT_MAX = 64, NGRAM = 2 };

/* A slot under way. */
struct stream {
    uint32_t *history; /* prompt, then emitted tokens */
    uint32_t length, emitted;
    uint32_t drafts[DRAFT_MAX], draft_count;
    XXH64_state_t hash;
    /* hidden rows whose pairs the drafter has not seen: of the tokens before the last ones */
    float *hidden;
    uint32_t hidden_count;
};

struct generating {
    struct session *session;
    const struct model *model;
    struct generate_slot *slots;
    struct stream *streams;
    uint32_t slot_count;
    struct generate_options options;
    struct generation *generation;
    struct session_token *batch;
    struct error *err;
};

/* ---- choosing ---- */

/* Weights exp((logit - largest) / temperature) in order of ids; a uniform number picks one. */
uint32_t generate_choose(const float *logits, uint32_t n_vocab, struct sampling sampling,
                         uint32_t slot, uint32_t position)
{
    uint32_t best = (uint32_t)arith_largest(logits, n_vocab);
    uint32_t words[PHILOX_WORDS] = {slot, position, 0, 0};
    float sum = 0, target, passed = 0;

    if (!(sampling.temperature > 0))
        return best;
    for (uint32_t i = 0; i < n_vocab; i++)
        sum += arith_exp((logits[i] - logits[best]) / sampling.temperature);
    philox(words, (uint32_t)sampling.seed, (uint32_t)(sampling.seed >> 32));
    target = (float)(words[0] >> 8) * 0x1p-24f * sum;
    for (uint32_t i = 0; i < n_vocab; i++) {
        passed += arith_exp((logits[i] - logits[best]) / sampling.temperature);
        if (passed > target)
            return i;
    }
    return best;
}

/* ---- drafting ---- */

/* What followed the last NGRAM tokens where they came last before. */
static void draft_ngram(struct stream *stream, uint32_t draft_max)
{
    const uint32_t *history = stream->history;
    uint32_t length = stream->length;

    stream->draft_count = 0;
    for (uint32_t at = length; length > NGRAM && at-- > NGRAM;) {
        if (memcmp(history + at - NGRAM, history + length - NGRAM, NGRAM * sizeof *history) != 0)
            continue;
        while (stream->draft_count < draft_max && at + stream->draft_count < length) {
            stream->drafts[stream->draft_count] = history[at + stream->draft_count];
            stream->draft_count++;
        }
        return;
    }
}

static void draft_given(const struct generating *g, uint32_t slot)
{
    struct stream *stream = &g->streams[slot];
    const uint32_t *given = g->options.given + (size_t)slot * g->options.tokens;

    stream->draft_count = 0;
    while (stream->draft_count < g->options.draft_max &&
           stream->emitted + stream->draft_count < g->options.tokens) {
        uint32_t at = stream->emitted + stream->draft_count;

        stream->drafts[stream->draft_count++] =
            at % 3 == 2 ? (given[at] + 1) % g->model->n_vocab : given[at];
    }
}

/* The drafter sees pairs of a hidden row and the token behind it: first those that came true
 * since the last round, then its own. */
static int draft_nextn(struct generating *g, uint32_t slot)
{
    struct session *drafter = g->options.nextn;
    struct stream *stream = &g->streams[slot];
    uint32_t count = stream->hidden_count, first = stream->length - count;
    uint64_t n_embd = g->model->n_embd;

    stream->draft_count = 0;
    for (uint32_t i = 0; i < count; i++)
        g->batch[i] = (struct session_token){stream->history[first + i], slot, i + 1 == count};
    if (count == 0 || session_decode_hidden(drafter, g->batch, stream->hidden, count, g->err) != 0)
        return count == 0 ? 0 : -1;
    while (stream->draft_count < g->options.draft_max) {
        uint32_t token = (uint32_t)arith_largest(session_logits(drafter, 0), g->model->n_vocab);

        stream->drafts[stream->draft_count++] = token;
        if (stream->draft_count == g->options.draft_max)
            break;
        memcpy(stream->hidden, session_hidden(drafter, count - 1), n_embd * sizeof *stream->hidden);
        count = 1;
        g->batch[0] = (struct session_token){token, slot, true};
        if (session_decode_hidden(drafter, g->batch, stream->hidden, 1, g->err) != 0)
            return -1;
    }
    session_undo(drafter, slot, stream->draft_count - 1);
    stream->hidden_count = 0;
    return 0;
}

static int draft(struct generating *g, uint32_t slot)
{
    struct stream *stream = &g->streams[slot];
    uint32_t left = g->options.tokens - stream->emitted;

    stream->draft_count = 0;
    if (g->options.drafter == GENERATE_NGRAM)
        draft_ngram(stream, g->options.draft_max);
    else if (g->options.drafter == GENERATE_GIVEN)
        draft_given(g, slot);
    else if (g->options.drafter == GENERATE_NEXTN && draft_nextn(g, slot) != 0)
        return -1;
    /* The step's own token is one of those that are left. */
    if (stream->draft_count + 1 > left)
        stream->draft_count = left > 0 ? left - 1 : 0;
    g->generation->drafted += stream->draft_count;
    return 0;
}

/* Keeps the hidden rows of a slot's `count` newest tokens. */
static int keep_hidden(struct generating *g, struct stream *stream, uint32_t row, uint32_t count)
{
    uint64_t n = g->model->n_embd;
    float *grown;

    if (g->options.drafter != GENERATE_NEXTN)
        return 0;
    grown = realloc(stream->hidden, (stream->hidden_count + count + 1) * n * sizeof *grown);
    if (grown == NULL)
        return error_set(g->err, ERROR_MEMORY, "no memory for hidden rows");
    stream->hidden = grown;
    for (uint32_t i = 0; i < count; i++)
        memcpy(grown + (stream->hidden_count + i) * n, session_hidden(g->session, row + i),
               n * sizeof *grown);
    stream->hidden_count += count;
    return 0;
}

/* ---- rounds ---- */

static void emit(struct generating *g, uint32_t slot, const float *logits, uint32_t token)
{
    struct stream *stream = &g->streams[slot];
    uint32_t id = token;

    if (logits != NULL)
        XXH64_update(&stream->hash, logits, g->model->n_vocab * sizeof *logits);
    XXH64_update(&stream->hash, &id, sizeof id);
    g->slots[slot].tokens[stream->emitted] = token;
    g->slots[slot].checksums[stream->emitted] = XXH64_digest(&stream->hash);
    stream->emitted++;
    stream->history[stream->length++] = token;
}

/* The token that a row of the last decode says, and its logits where they came. */
static uint32_t choose(const struct generating *g, uint32_t slot, uint32_t row,
                       const float **logits)
{
    if (g->options.picked) {
        *logits = NULL;
        return session_picked(g->session, row);
    }
    *logits = session_logits(g->session, row);
    return generate_choose(*logits, g->model->n_vocab, g->options.sampling, slot,
                           g->streams[slot].length);
}

/* Emits what a slot's rows say, until one disagrees with its draft. */
static int accept(struct generating *g, uint32_t slot, uint32_t row, uint32_t token_row)
{
    struct stream *stream = &g->streams[slot];
    uint32_t verified = stream->draft_count + 1, kept = 0;

    while (kept < verified) {
        const float *logits;
        uint32_t token = choose(g, slot, row + kept, &logits);
        bool agrees = kept + 1 < verified && token == stream->drafts[kept];

        emit(g, slot, logits, token);
        kept++;
        if (!agrees)
            break;
    }
    g->generation->accepted += kept - 1;
    if (kept < verified)
        session_undo(g->session, slot, verified - kept);
    return keep_hidden(g, stream, token_row, kept);
}

/* One step of all slots that are not done: the last token of each, and its drafts. */
static int verify_round(struct generating *g)
{
    uint32_t count = 0, row = 0;

    for (uint32_t slot = 0; slot < g->slot_count; slot++)
        if (g->streams[slot].emitted < g->options.tokens && draft(g, slot) != 0)
            return -1;
    for (uint32_t slot = 0; slot < g->slot_count; slot++) {
        struct stream *stream = &g->streams[slot];

        if (stream->emitted == g->options.tokens)
            continue;
        g->batch[count++] = (struct session_token){stream->history[stream->length - 1], slot, true};
        for (uint32_t i = 0; i < stream->draft_count; i++)
            g->batch[count++] = (struct session_token){stream->drafts[i], slot, true};
    }
    if (session_decode(g->session, g->batch, count, g->err) != 0)
        return -1;
    g->generation->rounds++;
    for (uint32_t slot = 0; slot < g->slot_count; slot++) {
        uint32_t rows = g->streams[slot].draft_count + 1;

        if (g->streams[slot].emitted == g->options.tokens)
            continue;
        if (accept(g, slot, row, row) != 0)
            return -1;
        row += rows;
    }
    return 0;
}

/* Prompts of all slots, token by token in turn, so that steps hold several. */
static int read_prompts(struct generating *g)
{
    uint32_t longest = 0, count = 0;

    for (uint32_t slot = 0; slot < g->slot_count; slot++)
        if (g->slots[slot].prompt_count > longest)
            longest = g->slots[slot].prompt_count;
    for (uint32_t t = 0; t < longest; t++)
        for (uint32_t slot = 0; slot < g->slot_count; slot++)
            if (t < g->slots[slot].prompt_count)
                g->batch[count++] = (struct session_token){g->slots[slot].prompt[t], slot,
                                                           t + 1 == g->slots[slot].prompt_count};
    return session_decode(g->session, g->batch, count, g->err);
}

/* The first token of each slot, and the hidden rows of its prompt, which lie interleaved. */
static int begin_streams(struct generating *g)
{
    uint32_t count = 0, output = 0;

    for (uint32_t slot = 0; slot < g->slot_count; slot++)
        count += g->slots[slot].prompt_count;
    for (uint32_t t = 0; t < count; t++) {
        struct session_token token = g->batch[t];
        struct stream *stream = &g->streams[token.slot];
        const float *logits;
        uint32_t chosen;

        if (keep_hidden(g, stream, t, 1) != 0)
            return -1;
        if (!token.output)
            continue;
        chosen = choose(g, token.slot, output++, &logits);
        emit(g, token.slot, logits, chosen);
    }
    g->generation->rounds++;
    return 0;
}

static int shift(struct generating *g)
{
    for (uint32_t slot = 0; slot < g->slot_count; slot++)
        if (session_shift(g->session, slot, g->options.shift_keep, g->options.shift_count,
                          g->err) != 0)
            return -1;
    return 0;
}

static int run(struct generating *g)
{
    bool shifted = g->options.shift_at == 0;

    if (read_prompts(g) != 0 || begin_streams(g) != 0)
        return -1;
    for (;;) {
        bool done = true;

        for (uint32_t slot = 0; slot < g->slot_count; slot++)
            done = done && g->streams[slot].emitted == g->options.tokens;
        if (done)
            return 0;
        if (!shifted && g->streams[0].emitted >= g->options.shift_at) {
            shifted = true;
            if (shift(g) != 0)
                return -1;
        }
        if (verify_round(g) != 0)
            return -1;
    }
}

/* ---- made and freed ---- */

static int check(const struct generating *g)
{
    if (g->options.tokens == 0)
        return error_set(g->err, ERROR_USAGE, "no tokens to generate");
    if (g->options.draft_max > DRAFT_MAX)
        return error_set(g->err, ERROR_USAGE, "%u drafted tokens a round; %d at most",
                         g->options.draft_max, DRAFT_MAX);
    if (g->options.shift_at > 0 && g->options.drafter != GENERATE_NO_DRAFTER)
        return error_set(g->err, ERROR_USAGE,
                         "a context shift at a given token, and drafts that jump over tokens");
    for (uint32_t slot = 0; slot < g->slot_count; slot++)
        if (g->slots[slot].prompt_count == 0)
            return error_set(g->err, ERROR_USAGE, "slot %u has no prompt", slot);
    return 0;
}

static int open_slots(struct generating *g)
{
    uint32_t tokens = g->options.tokens;
    size_t batch = (size_t)g->slot_count * (DRAFT_MAX + 1);

    g->streams = calloc(g->slot_count, sizeof *g->streams);
    for (uint32_t slot = 0; slot < g->slot_count && g->streams != NULL; slot++) {
        struct generate_slot *s = &g->slots[slot];
        struct stream *stream = &g->streams[slot];

        batch += s->prompt_count;
        s->tokens = calloc(tokens, sizeof *s->tokens);
        s->checksums = calloc(tokens, sizeof *s->checksums);
        stream->history = calloc((size_t)s->prompt_count + tokens, sizeof *stream->history);
        if (s->tokens == NULL || s->checksums == NULL || stream->history == NULL)
            return error_set(g->err, ERROR_MEMORY, "no memory for %u tokens", tokens);
        memcpy(stream->history, s->prompt, s->prompt_count * sizeof *s->prompt);
        stream->length = s->prompt_count;
        XXH64_reset(&stream->hash, 0);
    }
    g->batch = calloc(batch, sizeof *g->batch);
    if (g->streams == NULL || g->batch == NULL)
        return error_set(g->err, ERROR_MEMORY, "no memory for %u slots", g->slot_count);
    return 0;
}

int generate(struct session *session, struct generate_slot *slots, uint32_t slot_count,
             struct generate_options options, struct generation *generation, struct error *err)
{
    struct generating g = {.session = session,
                           .model = session_model(session),
                           .slots = slots,
                           .slot_count = slot_count,
                           .options = options,
                           .generation = generation,
                           .err = err};
    int status;

    *generation = (struct generation){0};
    for (uint32_t slot = 0; slot < slot_count; slot++)
        slots[slot].tokens = NULL, slots[slot].checksums = NULL;
    status = check(&g) == 0 && open_slots(&g) == 0 && run(&g) == 0 ? 0 : -1;
    if (status == 0) {
        XXH64_state_t all;

        XXH64_reset(&all, 0);
        for (uint32_t slot = 0; slot < slot_count; slot++)
            XXH64_update(&all, &slots[slot].checksums[options.tokens - 1],
                         sizeof *slots[slot].checksums);
        generation->checksum = XXH64_digest(&all);
    }
    for (uint32_t slot = 0; slot < slot_count && g.streams != NULL; slot++) {
        free(g.streams[slot].history);
        free(g.streams[slot].hidden);
    }
    free(g.streams);
    free(g.batch);
    return status;
}

void generate_free_slots(struct generate_slot *slots, uint32_t slot_count)
{
    for (uint32_t slot = 0; slot < slot_count; slot++) {
        free(slots[slot].tokens);
        free(slots[slot].checksums);
        slots[slot].tokens = NULL;
        slots[slot].checksums = NULL;
    }
}
