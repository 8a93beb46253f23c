/* Recurrent layers: how close convolution and delta rule are to the same formulas in double,
 * that every variant gives the same bits, and that neither the cut of tokens into calls nor
 * other sequences, steps that are undone or a split of heads change a bit. The bounds are those
 * of docs/arithmetic.md; with KERNELS_PRINT in the environment the largest errors are printed. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"
#include "tests/kernel_cases.h"

static const struct ref_kernels *best;

static void find_best(void)
{
    best = ref_kernels_find(NULL);
    kernel_cases_seed(1);
}

static const struct kernel_layer_shape shapes[] = {
    {1, 1, 1, 2, 1},  {1, 2, 7, 4, 3},  {2, 6, 32, 4, 4},
    {4, 4, 64, 3, 2}, {2, 4, 40, 1, 5}, {2, 4, 128, 4, 3},
};

/* ---- errors ---- */

#define CONVOLVE_BOUND 5
#define DELTA_BOUND 5
#define DELTA_LONG_BOUND 6.5

enum { STEPS = 24 };

/* Relative to the sum of magnitudes of the products. */
static double convolve_error(const struct kernel_layer *layer,
                             const struct kernel_layer_inputs *inputs, const float *mixed)
{
    size_t channels = kernel_layer_channels(&layer->shape);
    uint32_t taps = layer->shape.taps;
    double worst = 0;

    for (uint32_t t = 0; t < inputs->count; t++)
        for (size_t c = 0; c < channels; c++) {
            double sum = 0, scale = 0;

            for (uint32_t j = 0; j < taps; j++) {
                double product = t + j + 1 < taps
                                     ? 0
                                     : (double)layer->taps[c * taps + j] *
                                           (double)inputs->mix[(t + j + 1 - taps) * channels + c];

                sum += product;
                scale += fabs(product);
            }
            worst = fmax(worst,
                         kernel_cases_error(mixed[t * channels + c], sum / (1 + exp(-sum)), scale));
        }
    return worst;
}

static void exact_unit(const float *x, uint32_t n, double factor, double *y)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (uint32_t i = 0; i < n; i++)
        y[i] = (double)x[i] / sqrt(sum + (double)1e-6f) * factor;
}

static double decay_of(const struct kernel_layer *layer, const struct kernel_layer_inputs *inputs,
                       uint32_t t, uint32_t h)
{
    double x = (double)inputs->alpha[(size_t)t * layer->shape.v_heads + h] + (double)layer->dt[h];

    return exp((double)layer->a[h] * (fmax(x, 0) + log1p(exp(-fabs(x)))));
}

/* One head over all tokens, row by row. A row's scale is the largest |value| and length of the
 * row so far; that of a result is the row's over sqrt(dim), as the query's length is at most. */
static double delta_error(const struct kernel_layer *layer,
                          const struct kernel_layer_inputs *inputs, uint32_t h, const float *out)
{
    const struct kernel_layer_shape *shape = &layer->shape;
    size_t channels = kernel_layer_channels(shape);
    uint32_t n = shape->dim, k_head = h % shape->k_heads;
    double s[128] = {0}, q[128], k[128], scale = 0, worst = 0;

    for (uint32_t row = 0; row < n; row++, scale = 0, memset(s, 0, sizeof s))
        for (uint32_t t = 0; t < inputs->count; t++) {
            const float *mix = inputs->mix + t * channels;
            size_t gate = (size_t)t * shape->v_heads + h;
            double value = (double)mix[(2 * shape->k_heads + h) * n + row];
            double decay = decay_of(layer, inputs, t, h), dot = 0, result = 0, length = 0;

            exact_unit(mix + k_head * n, n, 1 / sqrt(n), q);
            exact_unit(mix + (shape->k_heads + k_head) * n, n, 1, k);
            for (uint32_t i = 0; i < n; i++) {
                s[i] *= decay;
                dot += s[i] * k[i];
            }
            for (uint32_t i = 0; i < n; i++) {
                s[i] += k[i] * (value - dot) / (1 + exp(-(double)inputs->beta[gate]));
                result += s[i] * q[i];
                length += s[i] * s[i];
            }
            scale = fmax(scale, fmax(fabs(value), sqrt(length)));
            worst = fmax(worst, kernel_cases_error(out[gate * n + row], result, scale / sqrt(n)));
        }
    return worst;
}

static void tokens_from_zero(struct program_token *tokens, uint32_t count)
{
    memset(tokens, 0, count * sizeof *tokens);
    tokens[0].from_zero = 1;
    for (uint32_t t = 0; t < count; t++)
        tokens[t].position = t;
}

START_TEST(recurrent_layers_are_within_their_bounds)
{
    enum kernel_inputs kind = (enum kernel_inputs)_i;
    double convolve_worst = 0, delta_worst = 0;

    for (size_t c = 0; c < COUNT(shapes); c++) {
        struct program_token tokens[STEPS];
        struct kernel_layer_inputs inputs;
        struct kernel_layer_results results;
        struct kernel_layer layer;

        kernel_layer_init(&layer, &shapes[c]);
        kernel_layer_inputs_init(&inputs, &shapes[c], STEPS, kind);
        tokens_from_zero(tokens, STEPS);
        results = kernel_layer_results_of(best, &layer, &inputs, 0, tokens, STEPS);
        convolve_worst = fmax(convolve_worst, convolve_error(&layer, &inputs, results.mixed));
        for (uint32_t h = 0; h < shapes[c].v_heads; h++)
            delta_worst = fmax(delta_worst, delta_error(&layer, &inputs, h, results.out));
        kernel_layer_results_close(&results);
        kernel_layer_inputs_close(&inputs);
        kernel_layer_close(&layer);
    }
    kernel_cases_report("convolve", kind, convolve_worst, CONVOLVE_BOUND);
    kernel_cases_report("delta", kind, delta_worst, DELTA_BOUND);
}
END_TEST

/* Queries and keys whose sum of squares is near eps, in one layer of slow decay. */
START_TEST(the_error_of_a_state_does_not_grow_with_tokens)
{
    enum { LONG = 2000 };
    const struct kernel_layer_shape shape = {
        .k_heads = 1, .v_heads = 1, .dim = 24, .taps = 2, .planes = 1};
    struct program_token *tokens = kernel_cases_new(LONG, sizeof *tokens);
    struct kernel_layer_results results;
    struct kernel_layer_inputs inputs;
    struct kernel_layer layer;

    kernel_layer_init(&layer, &shape);
    layer.a[0] = _i % 2 == 0 ? -1e-3f : -0.0f;
    kernel_layer_inputs_init(&inputs, &shape, LONG, KERNEL_INPUTS_NORMAL);
    for (size_t i = 0; i < LONG * kernel_layer_channels(&shape) && _i >= 2; i++)
        inputs.mix[i] *= 1e-4f;
    tokens_from_zero(tokens, LONG);
    results = kernel_layer_results_of(best, &layer, &inputs, 0, tokens, LONG);
    kernel_cases_report("delta of many tokens", KERNEL_INPUTS_NORMAL,
                        delta_error(&layer, &inputs, 0, results.out), DELTA_LONG_BOUND);
    kernel_layer_results_close(&results);
    kernel_layer_inputs_close(&inputs);
    kernel_layer_close(&layer);
    free(tokens);
}
END_TEST

/* ---- variants ---- */

static void spoil_inputs(struct kernel_layer_inputs *inputs, const struct kernel_layer_shape *shape)
{
    kernel_cases_spoil(inputs->mix, inputs->count * kernel_layer_channels(shape));
    kernel_cases_spoil(inputs->beta, (size_t)inputs->count * shape->v_heads);
    kernel_cases_spoil(inputs->alpha, (size_t)inputs->count * shape->v_heads);
}

START_TEST(every_variant_gives_the_bits_of_recurrent_layers)
{
    const struct kernel_layer_shape *shape = &shapes[_i / (KERNEL_INPUTS_COUNT + 1)];
    int kind = _i % (KERNEL_INPUTS_COUNT + 1);
    bool spoilt = kind == KERNEL_INPUTS_COUNT;
    struct kernel_layer_results expected = kernel_layer_new_results(shape, STEPS),
                                results = kernel_layer_new_results(shape, STEPS);
    struct program_token tokens[STEPS];
    struct kernel_layer layer, copy;
    struct kernel_layer_inputs inputs;

    kernel_layer_init(&layer, shape);
    kernel_layer_inputs_init(&inputs, shape, STEPS,
                             spoilt ? KERNEL_INPUTS_NORMAL : (enum kernel_inputs)kind);
    if (spoilt)
        spoil_inputs(&inputs, shape);
    tokens_from_zero(tokens, STEPS);
    copy = kernel_layer_copy(&layer);
    kernel_layer_run(kernel_cases_variant(0), &layer, &inputs, 0, tokens, STEPS, expected.mixed,
                     expected.out);
    kernel_cases_assert_canonical(expected.mixed, STEPS * kernel_layer_channels(shape), "convolve");
    kernel_cases_assert_canonical(expected.out, STEPS * kernel_layer_outputs(shape), "delta");
    kernel_cases_assert_canonical(layer.state, shape->planes * kernel_layer_state_plane(shape),
                                  "state");
    for (size_t v = 1; v < KERNEL_VARIANTS; v++) {
        if (kernel_cases_variant(v) == NULL)
            continue;
        kernel_layer_run(kernel_cases_variant(v), &copy, &inputs, 0, tokens, STEPS, results.mixed,
                         results.out);
        kernel_layer_assert_same_results(shape, &results, 0, &expected, 0, STEPS);
        for (uint32_t p = 0; p < shape->planes; p++)
            kernel_layer_assert_same_planes(&layer, p, &copy, 0, p);
    }
    kernel_layer_results_close(&expected);
    kernel_layer_results_close(&results);
    kernel_layer_inputs_close(&inputs);
    kernel_layer_close(&layer);
    kernel_layer_close(&copy);
}
END_TEST

/* ---- what must not matter ---- */

/* Tokens of sequence 0 and a first call over all of them. */
struct sequence {
    struct kernel_layer layer;
    struct kernel_layer_inputs inputs;
    struct program_token tokens[STEPS];
    struct kernel_layer_results results;
};

static void sequence_init(struct sequence *sequence, int index)
{
    kernel_layer_init(&sequence->layer, &shapes[index]);
    kernel_layer_inputs_init(&sequence->inputs, &shapes[index], STEPS, KERNEL_INPUTS_NORMAL);
    tokens_from_zero(sequence->tokens, STEPS);
    sequence->results = kernel_layer_results_of(best, &sequence->layer, &sequence->inputs, 0,
                                                sequence->tokens, STEPS);
}

static void sequence_close(struct sequence *sequence)
{
    kernel_layer_results_close(&sequence->results);
    kernel_layer_inputs_close(&sequence->inputs);
    kernel_layer_close(&sequence->layer);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

START_TEST(the_cut_into_calls_does_not_matter)
{
    static const uint32_t cuts[] = {1, 7, STEPS - 1, 0}; /* 0: of random sizes */
    const struct kernel_layer_shape *shape = &shapes[_i];
    struct sequence sequence;

    sequence_init(&sequence, _i);
    for (size_t c = 0; c < COUNT(cuts); c++) {
        struct kernel_layer copy = kernel_layer_copy(&sequence.layer);
        uint32_t count = 0;

        kernel_layer_forget(&copy);
        for (uint32_t t = 0; t < STEPS; t += count) {
            struct kernel_layer_results part;

            count = least(cuts[c] > 0 ? cuts[c] : 1 + kernel_cases_below(5), STEPS - t);
            part = kernel_layer_results_of(best, &copy, &sequence.inputs, t, &sequence.tokens[t],
                                           count);
            kernel_layer_assert_same_results(shape, &part, 0, &sequence.results, t, count);
            kernel_layer_results_close(&part);
        }
        for (uint32_t p = 0; p < shape->planes; p++)
            kernel_layer_assert_same_planes(&sequence.layer, p, &copy, 0, p);
        kernel_layer_close(&copy);
    }
    sequence_close(&sequence);
}
END_TEST

/* Tokens of sequences 2 and 0 in turn; both sequences are given the same inputs. */
START_TEST(other_sequences_in_a_call_do_not_matter)
{
    const struct kernel_layer_shape *shape = &shapes[_i];
    size_t channels = kernel_layer_channels(shape);
    struct program_token tokens[2 * STEPS];
    struct sequence sequence;
    struct kernel_layer_results results;
    struct kernel_layer_inputs both;
    struct kernel_layer copy;

    sequence_init(&sequence, _i);
    copy = kernel_layer_copy(&sequence.layer);
    kernel_layer_forget(&copy);
    kernel_layer_inputs_init(&both, shape, 2 * STEPS, KERNEL_INPUTS_NORMAL);
    for (uint32_t t = 0; t < 2 * STEPS; t++) {
        size_t heads = shape->v_heads;

        tokens[t] = sequence.tokens[t / 2];
        tokens[t].sequence = t % 2 == 0 ? 2 : 0;
        memcpy(both.mix + t * channels, sequence.inputs.mix + t / 2 * channels,
               channels * sizeof(float));
        memcpy(both.beta + t * heads, sequence.inputs.beta + t / 2 * heads, heads * sizeof(float));
        memcpy(both.alpha + t * heads, sequence.inputs.alpha + t / 2 * heads,
               heads * sizeof(float));
    }
    results = kernel_layer_results_of(best, &copy, &both, 0, tokens, 2 * STEPS);
    for (uint32_t t = 0; t < 2 * STEPS; t++)
        kernel_layer_assert_same_results(shape, &results, t, &sequence.results, t / 2, 1);
    for (uint32_t p = 0; p < shape->planes; p++) {
        kernel_layer_assert_same_planes(&sequence.layer, p, &copy, 0, p);
        kernel_layer_assert_same_planes(&sequence.layer, p, &copy, 2, p);
    }
    kernel_layer_results_close(&results);
    kernel_layer_inputs_close(&both);
    kernel_layer_close(&copy);
    sequence_close(&sequence);
}
END_TEST

START_TEST(a_sequence_that_begins_anew_forgets_its_state)
{
    struct sequence sequence;
    struct kernel_layer_results again;

    sequence_init(&sequence, _i);
    sequence.tokens[0].undone = shapes[_i].planes - 1;
    again =
        kernel_layer_results_of(best, &sequence.layer, &sequence.inputs, 0, sequence.tokens, STEPS);
    kernel_layer_assert_same_results(&shapes[_i], &again, 0, &sequence.results, 0, STEPS);
    kernel_layer_results_close(&again);
    sequence_close(&sequence);
}
END_TEST

/* SEEN tokens in calls of `call` tokens, of which the last `undone` are taken back before a call
 * of `next` tokens: as if they had never been. */
enum { SEEN = 11 };

static void see(const struct sequence *sequence, struct kernel_layer *layer, uint32_t count,
                uint32_t call)
{
    kernel_layer_forget(layer);
    for (uint32_t t = 0; t < count; t += call) {
        struct kernel_layer_results results = kernel_layer_results_of(
            best, layer, &sequence->inputs, t, &sequence->tokens[t], least(call, count - t));

        kernel_layer_results_close(&results);
    }
}

static void assert_undone(struct sequence *sequence, uint32_t call, uint32_t undone, uint32_t next)
{
    const struct kernel_layer_shape *shape = &sequence->layer.shape;
    struct kernel_layer whole = kernel_layer_copy(&sequence->layer);
    struct kernel_layer shorter = kernel_layer_copy(&sequence->layer);
    struct program_token *token = &sequence->tokens[SEEN];
    struct kernel_layer_results a, b;

    see(sequence, &whole, SEEN, call);
    see(sequence, &shorter, SEEN - undone, SEEN);
    for (uint32_t p = 0; undone + p < shape->planes; p++)
        kernel_layer_assert_same_planes(&shorter, p, &whole, 0, undone + p);
    token->undone = undone;
    a = kernel_layer_results_of(best, &whole, &sequence->inputs, SEEN, token, next);
    token->undone = 0;
    b = kernel_layer_results_of(best, &shorter, &sequence->inputs, SEEN, token, next);
    kernel_layer_assert_same_results(shape, &a, 0, &b, 0, next);
    for (uint32_t p = 0; p < least(next + shape->planes - undone, shape->planes); p++)
        kernel_layer_assert_same_planes(&shorter, p, &whole, 0, p);
    kernel_layer_results_close(&a);
    kernel_layer_results_close(&b);
    kernel_layer_close(&whole);
    kernel_layer_close(&shorter);
}

START_TEST(undone_tokens_leave_nothing)
{
    static const uint32_t calls[] = {1, SEEN}, nexts[] = {1, 4};
    struct sequence sequence;

    sequence_init(&sequence, _i);
    for (size_t c = 0; c < COUNT(calls); c++)
        for (size_t n = 0; n < COUNT(nexts); n++)
            for (uint32_t undone = 0; undone < shapes[_i].planes; undone++)
                assert_undone(&sequence, calls[c], undone, nexts[n]);
    sequence_close(&sequence);
}
END_TEST

/* ---- slices ---- */

/* Copies part of rows of `segments` segments of `length` values: `count` of each from `first`. */
static float *take(const float *all, size_t rows, size_t segments, size_t length, size_t first,
                   size_t count)
{
    float *part = kernel_cases_new(rows * segments * count, sizeof *part);

    for (size_t i = 0; i < rows * segments; i++)
        memcpy(part + i * count, all + i * length + first, count * sizeof *part);
    return part;
}

/* The layer of a device that holds some of the key heads, and the value heads that go with them.
 * The weight of its convolution is the whole layer's. */
static void slice_init(struct kernel_layer *slice, const struct kernel_layer *layer, uint32_t first,
                       uint32_t count)
{
    struct kernel_layer_shape shape = layer->shape;
    uint32_t groups = shape.v_heads / shape.k_heads;

    shape.k_heads = count;
    shape.v_heads = groups * count;
    kernel_layer_init(slice, &shape);
    free(slice->taps);
    free(slice->dt);
    free(slice->a);
    slice->taps = kernel_cases_copy(layer->taps, kernel_layer_channels(&layer->shape) * shape.taps);
    slice->dt = take(layer->dt, 1, groups, layer->shape.k_heads, first, count);
    slice->a = take(layer->a, 1, groups, layer->shape.k_heads, first, count);
}

static void assert_slice(const struct sequence *sequence, uint32_t first, uint32_t count)
{
    const struct kernel_layer_shape *shape = &sequence->layer.shape;
    size_t n = shape->dim, groups = shape->v_heads / shape->k_heads, segments = 2 + groups;
    size_t length = shape->k_heads * n, own = count * n, heads = shape->k_heads;
    struct kernel_layer_inputs inputs = {
        .count = STEPS,
        .mix = take(sequence->inputs.mix, STEPS, segments, length, first * n, own),
        .beta = take(sequence->inputs.beta, STEPS, groups, heads, first, count),
        .alpha = take(sequence->inputs.alpha, STEPS, groups, heads, first, count)};
    struct kernel_layer_results expected = {
        .mixed = take(sequence->results.mixed, STEPS, segments, length, first * n, own),
        .out = take(sequence->results.out, STEPS, groups, length, first * n, own)};
    struct convolve convolve;
    struct kernel_layer_results results;
    struct kernel_layer slice;
    struct delta delta;

    slice_init(&slice, &sequence->layer, first, count);
    results = kernel_layer_new_results(&slice.shape, STEPS);
    memcpy(results.mixed, inputs.mix, STEPS * segments * own * sizeof(float));
    convolve = kernel_layer_convolve(&slice, sequence->tokens, STEPS);
    convolve.segment_channels = length;
    convolve.first = first * n;
    delta = kernel_layer_delta(&slice, &inputs, 0, sequence->tokens, STEPS);
    ck_assert_int_eq(best->convolve(&convolve, results.mixed), 0);
    ck_assert_int_eq(best->delta(&delta, results.out), 0);
    kernel_layer_assert_same_results(&slice.shape, &results, 0, &expected, 0, STEPS);
    kernel_layer_inputs_close(&inputs);
    kernel_layer_results_close(&expected);
    kernel_layer_results_close(&results);
    kernel_layer_close(&slice);
}

START_TEST(heads_split_over_devices_give_what_one_device_gives)
{
    struct sequence sequence;

    sequence_init(&sequence, _i);
    for (uint32_t first = 0; first < shapes[_i].k_heads; first++)
        for (uint32_t count = 1; first + count <= shapes[_i].k_heads; count++)
            assert_slice(&sequence, first, count);
    sequence_close(&sequence);
}
END_TEST

/* ---- what does matter ---- */

/* Taps and tokens in reverse: the last token has the same sum, added from the other end. */
START_TEST(the_order_of_taps_matters)
{
    enum { TAPS = 4 };
    const struct kernel_layer_shape shape = {
        .k_heads = 2, .v_heads = 4, .dim = 64, .taps = TAPS, .planes = 1};
    size_t channels = kernel_layer_channels(&shape);
    struct program_token tokens[TAPS];
    struct kernel_layer layer, reverse;
    struct kernel_layer_inputs inputs, last_first;
    struct kernel_layer_results a, b;

    kernel_layer_init(&layer, &shape);
    kernel_layer_init(&reverse, &shape);
    kernel_layer_inputs_init(&inputs, &shape, TAPS, KERNEL_INPUTS_NORMAL);
    kernel_layer_inputs_init(&last_first, &shape, TAPS, KERNEL_INPUTS_NORMAL);
    tokens_from_zero(tokens, TAPS);
    for (size_t c = 0; c < channels; c++)
        for (size_t j = 0; j < TAPS; j++) {
            reverse.taps[c * TAPS + j] = layer.taps[c * TAPS + TAPS - 1 - j];
            last_first.mix[j * channels + c] = inputs.mix[(TAPS - 1 - j) * channels + c];
        }
    a = kernel_layer_results_of(best, &layer, &inputs, 0, tokens, TAPS);
    b = kernel_layer_results_of(best, &reverse, &last_first, 0, tokens, TAPS);
    for (size_t c = (TAPS - 1) * channels; c < TAPS * channels; c++)
        HOLDS(fabsf(a.mixed[c] - b.mixed[c]) < 1e-4f);
    ck_assert(kernel_cases_differ(a.mixed + (TAPS - 1) * channels, b.mixed + (TAPS - 1) * channels,
                                  channels));
    kernel_layer_results_close(&a);
    kernel_layer_results_close(&b);
    kernel_layer_inputs_close(&inputs);
    kernel_layer_inputs_close(&last_first);
    kernel_layer_close(&layer);
    kernel_layer_close(&reverse);
}
END_TEST

/* The values of queries and keys change places alike: the same products, in another order. */
START_TEST(the_order_of_columns_matters)
{
    const struct kernel_layer_shape shape = {
        .k_heads = 1, .v_heads = 1, .dim = 64, .taps = 2, .planes = 1};
    struct program_token tokens[STEPS];
    struct kernel_layer_inputs inputs, mixed;
    struct kernel_layer_results a, b;
    struct kernel_layer layer;
    uint32_t order[64];

    kernel_layer_init(&layer, &shape);
    kernel_layer_inputs_init(&inputs, &shape, STEPS, KERNEL_INPUTS_NORMAL);
    tokens_from_zero(tokens, STEPS);
    mixed = inputs;
    mixed.mix = kernel_cases_copy(inputs.mix, STEPS * kernel_layer_channels(&shape));
    for (uint32_t i = 0; i < 64; i++)
        order[i] = i;
    kernel_cases_shuffle(order, 64);
    for (size_t t = 0; t < STEPS; t++)
        for (size_t i = 0; i < 2 * 64; i++)
            mixed.mix[t * 192 + i] = inputs.mix[t * 192 + i / 64 * 64 + order[i % 64]];
    a = kernel_layer_results_of(best, &layer, &inputs, 0, tokens, STEPS);
    b = kernel_layer_results_of(best, &layer, &mixed, 0, tokens, STEPS);
    for (size_t i = 0; i < STEPS * kernel_layer_outputs(&shape); i++)
        HOLDS(fabsf(a.out[i] - b.out[i]) < 1e-4f);
    ck_assert(kernel_cases_differ(a.out, b.out, STEPS * kernel_layer_outputs(&shape)));
    kernel_layer_results_close(&a);
    kernel_layer_results_close(&b);
    free(mixed.mix);
    kernel_layer_inputs_close(&inputs);
    kernel_layer_close(&layer);
}
END_TEST

static Suite *delta_suite(void)
{
    Suite *suite = suite_create("kernels: recurrent layers");
    TCase *bound = tcase_create("bound"), *same = tcase_create("same bits");
    TCase *all[] = {bound, same};
    int count = (int)COUNT(shapes);

    tcase_add_loop_test(bound, recurrent_layers_are_within_their_bounds, 0, KERNEL_INPUTS_COUNT);
    tcase_add_loop_test(bound, the_error_of_a_state_does_not_grow_with_tokens, 0, 4);
    tcase_add_loop_test(same, every_variant_gives_the_bits_of_recurrent_layers, 0,
                        count * (KERNEL_INPUTS_COUNT + 1));
    tcase_add_loop_test(same, the_cut_into_calls_does_not_matter, 0, count);
    tcase_add_loop_test(same, other_sequences_in_a_call_do_not_matter, 0, count);
    tcase_add_loop_test(same, a_sequence_that_begins_anew_forgets_its_state, 0, count);
    tcase_add_loop_test(same, undone_tokens_leave_nothing, 0, count);
    tcase_add_loop_test(same, heads_split_over_devices_give_what_one_device_gives, 0, count);
    tcase_add_test(same, the_order_of_taps_matters);
    tcase_add_test(same, the_order_of_columns_matters);
    for (size_t i = 0; i < COUNT(all); i++) {
        tcase_add_checked_fixture(all[i], find_best, NULL);
        tcase_set_timeout(all[i], 60);
        suite_add_tcase(suite, all[i]);
    }
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(delta_suite());
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
