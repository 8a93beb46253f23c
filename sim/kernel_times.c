#include "sim/kernel_times.h"

#include <math.h>

/* ---- between measured points ---- */

/* The points nearest to `at` of those that it has been shown; x 0: none. */
struct bracket {
    double at;
    double below, below_s; /* not above `at` */
    double above, above_s;
};

/* Points come in order of x, which is above 0. */
static void show(struct bracket *bracket, double x, double time_s)
{
    if (x <= bracket->at) {
        bracket->below = x;
        bracket->below_s = time_s;
    } else if (bracket->above == 0) {
        bracket->above = x;
        bracket->above_s = time_s;
    }
}

/* Time between the points; that of the first below it, and of the last beyond it. Below 0
 * without points. */
static double time_at(const struct bracket *bracket)
{
    double share;

    if (bracket->below == 0)
        return bracket->above == 0 ? -1 : bracket->above_s;
    if (bracket->above == 0)
        return bracket->below_s;
    share = (bracket->at - bracket->below) / (bracket->above - bracket->below);
    return bracket->below_s + share * (bracket->above_s - bracket->below_s);
}

/* As time_at(); beyond the last point time grows as x does. */
static double growing_time_at(const struct bracket *bracket)
{
    bool beyond = bracket->above == 0 && bracket->below > 0;

    return time_at(bracket) * (beyond ? bracket->at / bracket->below : 1);
}

static double streaming_s(double launch_s, double bytes, double gbs)
{
    return launch_s + bytes / (gbs * 1e9);
}

/* Tokens of one of the task's sequences, which run side by side. */
static double sequence_tokens(const struct program_task *task)
{
    return task->sequences > 1 ? (double)task->tokens / task->sequences : task->tokens;
}

/* ---- kernels ---- */

/* The greater of the two by the lesser. */
static double ratio_of(double a, double b)
{
    return a > b ? a / b : b / a;
}

/* Whether `dim` is nearer to `wanted` in ratio than what was found before; 0: nothing was. */
static bool is_nearer(uint32_t dim, uint32_t found, uint32_t wanted)
{
    return found == 0 || ratio_of(dim, wanted) < ratio_of(found, wanted);
}

/* What a kind's rows follow that serve: the wanted kind, else any. */
static enum task_kind known_behind(const struct kernel_table *table,
                                   const struct kernel_other *wanted)
{
    const struct kernel_other first = {.kind = wanted->kind, .behind = wanted->behind};
    size_t i = kernel_table_place_other(table, &first);
    bool found = i < table->other_count && table->others[i].kind == wanted->kind &&
                 table->others[i].behind == wanted->behind;

    return found ? wanted->behind : (enum task_kind)0;
}

/* Which rows of a kind serve for the wanted one: what they follow, then heads that are normed as
 * its are, else others; of these the nearest dimension. */
static struct kernel_other nearest_rows(const struct kernel_table *table,
                                        const struct kernel_other *wanted)
{
    const struct kernel_other first = {.kind = wanted->kind, .behind = known_behind(table, wanted)};
    struct kernel_other nearest = first;

    for (size_t i = kernel_table_place_other(table, &first);
         i < table->other_count && table->others[i].kind == wanted->kind && wanted->head_dim > 0;
         i++) {
        const struct kernel_other *row = &table->others[i];
        bool found_like = nearest.head_dim > 0 && nearest.normed == wanted->normed;
        bool is_like = row->normed == wanted->normed;

        if (row->head_dim == 0 || is_like < found_like)
            continue;
        if (is_like > found_like || is_nearer(row->head_dim, nearest.head_dim, wanted->head_dim)) {
            nearest.head_dim = row->head_dim;
            nearest.normed = row->normed;
        }
    }
    return nearest;
}

/* Rows that differ in their tokens and bytes alone. */
static bool are_alike(const struct kernel_other *a, const struct kernel_other *b)
{
    return a->kind == b->kind && a->behind == b->behind && a->normed == b->normed &&
           a->head_dim == b->head_dim;
}

/* Beyond measured points at the rate between the two nearest; of a single one the launch stays. */
static double beyond_s(const struct kernel_other *nearest, const struct kernel_other *next,
                       double bytes)
{
    static const double launch_s = 2.5e-6;
    double ratio = nearest->bytes > 0 ? bytes / (double)nearest->bytes : 1;
    double fixed_s = fmin(launch_s, nearest->time_s), slope;

    if (next == NULL)
        return fixed_s + (nearest->time_s - fixed_s) * ratio;
    slope = (nearest->time_s - next->time_s) / ((double)nearest->bytes - (double)next->bytes);
    return fmax(nearest->time_s * fmin(ratio, 1),
                nearest->time_s + fmax(slope, 0) * (bytes - (double)nearest->bytes));
}

/* Rows of one kind, head dimension and number of tokens, from `*at` on, which goes behind them. */
static double size_s(const struct kernel_table *table, size_t *at, double bytes)
{
    const struct kernel_other *first = &table->others[*at], *last;
    struct bracket bracket = {.at = bytes};
    size_t count = 0;

    for (; *at < table->other_count && are_alike(first, &table->others[*at]) &&
           table->others[*at].tokens == first->tokens;
         (*at)++, count++)
        show(&bracket, (double)table->others[*at].bytes, table->others[*at].time_s);
    last = first + count - 1;
    if (bytes < (double)first->bytes)
        return beyond_s(first, count > 1 ? first + 1 : NULL, bytes);
    if (bytes > (double)last->bytes)
        return beyond_s(last, count > 1 ? last - 1 : NULL, bytes);
    return last->bytes == 0 ? last->time_s : time_at(&bracket);
}

/* As many bytes a token as are asked for at each number of tokens. */
static double other_rows_s(const struct kernel_table *table, struct kernel_other wanted,
                           double tokens, double bytes)
{
    const struct kernel_other first = nearest_rows(table, &wanted);
    struct bracket bracket = {.at = tokens};
    size_t i = kernel_table_place_other(table, &first);

    while (i < table->other_count && are_alike(&table->others[i], &first)) {
        uint32_t measured = table->others[i].tokens;

        show(&bracket, measured, size_s(table, &i, bytes / tokens * measured));
    }
    return growing_time_at(&bracket);
}

static double other_s(const struct kernel_table *table, struct kernel_other wanted, double tokens,
                      double bytes)
{
    double time_s = other_rows_s(table, wanted, tokens, bytes);

    wanted = (struct kernel_other){.kind = TASK_NORM};
    return time_s < 0 ? other_rows_s(table, wanted, tokens, bytes) : time_s;
}

void kernel_gap_pass(struct kernel_gap *gap, double time_s, double alone)
{
    gap->s = (gap->in_product ? 0 : gap->s) + time_s * (1 - alone);
    gap->in_product = false;
}

static double alone(const struct kernel_table *table, enum task_kind kind)
{
    switch (kind) {
    case TASK_ATTENTION:
    case TASK_ROPE:
        return table->attention_alone;
    case TASK_DELTA_NET:
        return table->delta_net_alone;
    default:
        return 0;
    }
}

/* How much of their weights a launch of products finds there. */
static double loaded_bytes(const struct kernel_table *table, const struct kernel_product *row,
                           const struct kernel_gap *gap)
{
    double beside_s = gap->in_product ? 0 : fmax(0, gap->s - table->ahead_lag_s);

    return fmin(row->ahead_bytes, beside_s * row->gbs * 1e9);
}

/* Without the launch, `loaded` of `bytes` being there. */
static double weights_s(const struct kernel_product *row, double bytes, double loaded)
{
    double held_s = row->held_gbs > 0 ? bytes / (row->held_gbs * 1e9) : 0;

    return fmax(streaming_s(0, fmax(0, bytes - loaded), row->gbs), held_s);
}

/* Of products that go on with a launch which has computed `before` bytes. */
static double further_s(const struct kernel_product *row, double before, double bytes,
                        double loaded)
{
    double before_s = before > 0 ? weights_s(row, before, loaded) : 0;

    return weights_s(row, before + bytes, loaded) - before_s;
}

double kernel_product_s(const struct kernel_table *table, const struct kernel_product *row,
                        const struct kernel_gap *gap, double bytes)
{
    return row->launch_s + weights_s(row, bytes, loaded_bytes(table, row, gap));
}

/* The task's group where its kind and type were measured with it, else 256, else what was. */
static uint32_t known_group(const struct kernel_table *table, const struct program_task *task)
{
    const struct kernel_product first = {.kind = task->kind, .type = task->type};
    size_t begin = kernel_table_place_product(table, &first);
    uint32_t known = 0;

    for (size_t i = begin; i < table->product_count && table->products[i].kind == task->kind &&
                           table->products[i].type == task->type;
         i++)
        if (known == 0 || table->products[i].group == task->group ||
            (known != task->group && table->products[i].group == KERNEL_GROUP))
            known = table->products[i].group;
    return known;
}

static double product_s(const struct kernel_table *table, const struct program_task *task,
                        struct kernel_gap *gap)
{
    const struct kernel_other norm = {.kind = TASK_NORM};
    const struct kernel_product first = {
        .kind = task->kind, .type = task->type, .group = known_group(table, task)};
    bool quantises = task->input_bytes > 0; /* by a kernel of its own */
    bool launches = task->kernels > (quantises ? 1u : 0u);
    double bytes = program_task_weight_bytes(task);
    struct bracket times = {.at = program_task_product_tokens(task)}, found = times, ahead = times;
    struct kernel_gap none = {.s = 0}, *before = gap != NULL ? gap : &none;
    double time_s;
    double quantising_s = quantises ? other_s(table, norm, task->tokens, task->input_bytes) : 0;

    if (quantising_s < 0)
        return -1;
    if (gap != NULL && quantises && launches)
        kernel_gap_pass(gap, quantising_s, 0);
    for (size_t i = kernel_table_place_product(table, &first); i < table->product_count; i++) {
        const struct kernel_product *row = &table->products[i];
        double loaded = launches ? loaded_bytes(table, row, before) : before->loaded_bytes;

        if (row->kind != task->kind || row->type != task->type || row->group != first.group)
            break;
        show(&times, row->tokens,
             launches ? kernel_product_s(table, row, before, bytes)
                      : further_s(row, before->launch_bytes, bytes, loaded));
        show(&found, row->tokens, loaded);
        show(&ahead, row->tokens, row->ahead_bytes);
    }
    time_s = growing_time_at(&times);
    if (time_s < 0)
        return time_s;
    if (gap != NULL && time_at(&ahead) > 0)
        *gap = (struct kernel_gap){.last = task->kind,
                                   .in_product = true,
                                   .loaded_bytes = time_at(&found),
                                   .launch_bytes = (launches ? 0 : before->launch_bytes) + bytes};
    else if (gap != NULL)
        kernel_gap_pass(gap, time_s, 0);
    return quantising_s + time_s;
}

/* Rows that differ in their KV heads, tokens and cells alone. */
static bool is_one_shape(const struct kernel_attention *a, const struct kernel_attention *b)
{
    return a->cache_type == b->cache_type && a->head_dim == b->head_dim && a->heads == b->heads;
}

/* Rows of one shape and one number of KV heads and of tokens, from `*at` on, which goes behind
 * them. */
static double window_s(const struct kernel_table *table, size_t *at, double cells)
{
    const struct kernel_attention *first = &table->attentions[*at];
    struct bracket bracket = {.at = cells};

    for (; *at < table->attention_count; (*at)++) {
        const struct kernel_attention *row = &table->attentions[*at];

        if (!is_one_shape(row, first) || row->kv_heads != first->kv_heads ||
            row->tokens != first->tokens)
            break;
        show(&bracket, (double)row->cells, row->time_s);
    }
    return growing_time_at(&bracket);
}

/* The same of one shape and number of KV heads. */
static double tokens_s(const struct kernel_table *table, size_t *at, double tokens, double cells)
{
    const struct kernel_attention *first = &table->attentions[*at];
    struct bracket bracket = {.at = tokens};

    while (*at < table->attention_count && is_one_shape(&table->attentions[*at], first) &&
           table->attentions[*at].kv_heads == first->kv_heads) {
        double measured = table->attentions[*at].tokens;

        show(&bracket, measured, window_s(table, at, cells));
    }
    return growing_time_at(&bracket);
}

/* What is asked for: of heads of a dimension that was measured. */
struct asked {
    struct kernel_attention shape; /* cache_type, head_dim, heads */
    double kv_heads, tokens, cells;
};

/* Below 0: no row has the shape. The measured numbers of KV heads lie in `limits`, unless NULL. */
static double shape_s(const struct kernel_table *table, const struct asked *asked, double limits[2])
{
    struct bracket bracket = {.at = asked->kv_heads};
    size_t at = kernel_table_place_attention(table, &asked->shape);
    double least = INFINITY, most = 0;

    while (at < table->attention_count && is_one_shape(&table->attentions[at], &asked->shape)) {
        most = table->attentions[at].kv_heads;
        least = fmin(least, most);
        show(&bracket, most, tokens_s(table, &at, asked->tokens, asked->cells));
    }
    if (limits != NULL) {
        limits[0] = least;
        limits[1] = most;
    }
    return time_at(&bracket);
}

/* Of the head dimensions that were measured with a cache type the one that is nearest in ratio;
 * 0: none was. */
static uint32_t nearest_dim(const struct kernel_table *table, enum tensor_type type, uint32_t dim)
{
    const struct kernel_attention first = {.cache_type = type};
    uint32_t nearest = 0;

    for (size_t i = kernel_table_place_attention(table, &first);
         i < table->attention_count && table->attentions[i].cache_type == type; i++)
        if (table->attentions[i].heads == KERNEL_ATTENTION_HEADS &&
            is_nearer(table->attentions[i].head_dim, nearest, dim))
            nearest = table->attentions[i].head_dim;
    return nearest;
}

/* By how much a part of the heads takes longer than all of them over as much less of the window, of
 * which `asked` has all: between the parts that were measured with its shape, to 1 of all. */
static double part_cost(const struct kernel_table *table, const struct asked *asked, double heads)
{
    const struct kernel_attention first = {.cache_type = asked->shape.cache_type,
                                           .head_dim = asked->shape.head_dim};
    struct bracket bracket = {.at = heads};
    struct asked part = *asked;

    for (size_t i = kernel_table_place_attention(table, &first);
         i < table->attention_count && table->attentions[i].cache_type == first.cache_type &&
         table->attentions[i].head_dim == first.head_dim &&
         table->attentions[i].heads < KERNEL_ATTENTION_HEADS;
         i++) {
        struct asked whole = *asked;
        double limits[2], part_s;

        if (table->attentions[i].heads == part.shape.heads)
            continue;
        part.shape.heads = table->attentions[i].heads;
        part_s = shape_s(table, &part, limits);
        whole.kv_heads = fmin(fmax(asked->kv_heads, limits[0]), limits[1]);
        whole.cells *= (double)part.shape.heads / KERNEL_ATTENTION_HEADS;
        show(&bracket, part.shape.heads, part_s / shape_s(table, &whole, NULL));
    }
    show(&bracket, KERNEL_ATTENTION_HEADS, 1);
    return time_at(&bracket);
}

/* Cells of the measured shape with as many multiply-adds; how many bytes each takes goes with the
 * KV heads of a query head. */
static double attention_s(const struct kernel_table *table, const struct program_task *task,
                          double cells)
{
    double heads = (double)task->heads / KERNEL_ATTENTION_HEADS, time_s;
    double part = task->heads_all > 0 ? (double)task->heads / task->heads_all : 1;
    struct asked asked = {
        .shape = {.cache_type = task->cache_type,
                  .head_dim = nearest_dim(table, task->cache_type, task->head_dim),
                  .heads = KERNEL_ATTENTION_HEADS},
        .kv_heads = heads > 0 ? task->kv_heads / heads : 0,
        .tokens = sequence_tokens(task),
        .cells = cells * heads * task->head_dim * (task->streams > 1 ? task->streams : 1)};

    if (asked.shape.head_dim == 0)
        return -1;
    asked.cells /= asked.shape.head_dim;
    time_s = shape_s(table, &asked, NULL);
    if (time_s < 0 || part >= 1 || part <= 0)
        return time_s;
    asked.cells /= part;
    return time_s * part_cost(table, &asked, part * KERNEL_ATTENTION_HEADS);
}

double kernel_table_s(const struct kernel_table *table, const struct program_task *task,
                      double cells, struct kernel_gap *gap)
{
    const struct kernel_other other = {
        .kind = task->kind,
        .head_dim = task->kind == TASK_ROPE ? task->head_dim : 0,
        .normed = task->normed,
        .behind = gap != NULL ? kernel_table_behind(task->kind, gap->last) : (enum task_kind)0,
    };
    double time_s;

    if (gap != NULL)
        gap->last = task->kind;
    if (task->kind == TASK_MATMUL || task->kind == TASK_EXPERTS)
        return product_s(table, task, gap);
    time_s = task->kind == TASK_ATTENTION ? attention_s(table, task, cells)
                                          : other_s(table, other, sequence_tokens(task),
                                                    task->bytes + cells * task->bytes_per_cell);
    if (gap != NULL && time_s >= 0)
        kernel_gap_pass(gap, time_s, alone(table, task->kind));
    return time_s;
}

double kernel_table_read_ahead(const struct program_task *task, double cells)
{
    return task->kind == TASK_ATTENTION && sequence_tokens(task) <= KERNEL_READS_AHEAD
               ? cells * task->bytes_per_cell
               : 0;
}

double kernel_table_plain_s(const struct kernel_table *table, enum task_kind kind, uint32_t tokens,
                            double bytes)
{
    return other_rows_s(table, (struct kernel_other){.kind = kind}, tokens, bytes);
}

/* ---- sums ---- */

double kernel_table_sum_s(const struct kernel_table *table, uint32_t devices, double bytes)
{
    const struct kernel_sum first = {.devices = devices};
    struct bracket bracket = {.at = bytes};
    size_t begin = kernel_table_place_sum(table, &first), end = begin;
    const struct kernel_sum *last;
    double slope;

    for (; end < table->sum_count && table->sums[end].devices == devices; end++)
        show(&bracket, (double)table->sums[end].bytes, table->sums[end].time_s);
    if (bracket.above > 0 || end - begin < 2)
        return growing_time_at(&bracket);
    last = &table->sums[end - 1];
    slope = (last->time_s - last[-1].time_s) / (double)(last->bytes - last[-1].bytes);
    return last->time_s + fmax(slope, 0) * (bytes - (double)last->bytes);
}
