/* Sessions and the cells of their caches. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/cells.h"
#include "ref/generate.h"
#include "ref/source.h"

/* ---- cells ---- */

START_TEST(a_shared_cache_gives_each_position_the_lowest_free_cell)
{
    struct error err = {0};
    struct cells *cells = cells_new(2, 1, 4, 8, 0, &err);

    ck_assert_int_eq(cells_take(cells, 0, 0), 0);
    ck_assert_int_eq(cells_take(cells, 1, 0), 1);
    ck_assert_int_eq(cells_take(cells, 0, 1), 2);
    cells_truncate(cells, 1, 0);
    ck_assert_int_eq(cells_take(cells, 0, 2), 1);
    ck_assert_uint_eq(cells_used(cells), 3);
    ck_assert_int_eq(cells_take(cells, 0, 3), 3);
    ck_assert_int_eq(cells_take(cells, 0, 4), -1);
    cells_free(cells);
}
END_TEST

START_TEST(separate_caches_begin_at_rows_of_their_own)
{
    struct error err = {0};
    struct cells *cells = cells_new(2, 2, 4, 8, 0, &err);

    ck_assert_int_eq(cells_take(cells, 0, 0), 0);
    ck_assert_int_eq(cells_take(cells, 1, 0), 4);
    ck_assert_int_eq(cells_take(cells, 1, 1), 5);
    ck_assert_uint_eq(cells_used(cells), 2);
    cells_free(cells);
}
END_TEST

START_TEST(cells_that_no_window_looks_back_at_are_free_again)
{
    struct error err = {0};
    struct cells *cells = cells_new(1, 1, 4, 16, 3, &err);

    for (uint32_t position = 0; position < 4; position++)
        ck_assert_int_eq(cells_take(cells, 0, position), position);
    ck_assert_int_eq(cells_take(cells, 0, 4), -1);
    cells_release(cells, 0, 4); /* position 4 looks back at 2 and 3 */
    ck_assert_int_eq(cells_table(cells)[1], -1);
    ck_assert_int_eq(cells_table(cells)[2], 2);
    ck_assert_int_eq(cells_take(cells, 0, 4), 0);
    cells_free(cells);
}
END_TEST

START_TEST(a_shift_moves_positions_and_not_cells)
{
    struct error err = {0};
    struct cells *cells = cells_new(1, 1, 8, 8, 0, &err);

    for (uint32_t position = 0; position < 6; position++)
        cells_take(cells, 0, position);
    cells_shift(cells, 0, 1, 2);
    ck_assert_int_eq(cells_table(cells)[0], 0);
    ck_assert_int_eq(cells_table(cells)[1], 3);
    ck_assert_int_eq(cells_table(cells)[3], 5);
    ck_assert_int_eq(cells_table(cells)[4], -1);
    ck_assert_int_eq(cells_take(cells, 0, 4), 1);
    cells_free(cells);
}
END_TEST

/* ---- sessions ---- */

static struct source source;
static struct machine *machine;
static struct placement *placement;

static void open_model(const char *model, uint32_t n_ctx)
{
    static const char *const gpus[] = {"RTX 4070", "RTX 3060"};
    struct error err = {0};
    struct plan plan = plan_default();

    ck_assert_msg(source_open(&source, model, 1, &err) == 0, "%s", err.text);
    machine = machine_compose(gpus, 2, &err);
    plan.split = PLAN_SPLIT_TENSOR;
    plan.n_ctx = n_ctx;
    placement = placement_new(source.model, machine, &plan, n_ctx, &err);
    ck_assert_msg(placement != NULL, "%s", err.text);
}

static void close_model(void)
{
    placement_free(placement);
    machine_free(machine);
    source_close(&source);
}

static struct session *open_session(uint32_t undo_max)
{
    struct error err = {0};
    struct session *session = session_new(placement, source.weights, &source.numbers, NULL,
                                          (struct session_options){.undo_max = undo_max}, &err);

    ck_assert_msg(session != NULL, "%s", err.text);
    return session;
}

static int decode(struct session *session, const uint32_t *ids, uint32_t count, struct error *err)
{
    struct session_token tokens[512];

    ck_assert_uint_le(count, 512);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (struct session_token){ids[i], 0, i + 1 == count};
    return session_decode(session, tokens, count, err);
}

START_TEST(a_full_context_is_refused_by_slot_and_position)
{
    struct error err = {0};
    uint32_t ids[300] = {0};
    struct session *session;

    open_model("tiny-llama", 256);
    session = open_session(0);
    ck_assert_int_eq(decode(session, ids, 257, &err), -1);
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_str_eq(err.text, "slot 0: no cell for position 256; the context is full (-c 256)");
    session_free(session);
    close_model();
}
END_TEST

START_TEST(a_token_outside_the_vocabulary_is_refused)
{
    struct error err = {0};
    uint32_t id = 320;
    struct session *session;

    open_model("tiny-llama", 256);
    session = open_session(0);
    ck_assert_int_eq(decode(session, &id, 1, &err), -1);
    ck_assert_str_eq(err.text, "token 320 is not in the vocabulary of 320");
    ck_assert_uint_eq(session_length(session, 0), 0);
    session_free(session);
    close_model();
}
END_TEST

/* Models with a cache, with windows, and with a recurrent state. */
static const char *const models[] = {"tiny-llama", "tiny-muse-glimmer", "tiny-qwen35"};

START_TEST(tokens_that_were_undone_leave_no_trace)
{
    static const uint32_t said[] = {5, 9, 200, 31}, wrong[] = {7, 8, 9, 10}, right[] = {77, 3};
    struct error err = {0};
    struct session *straight, *detour;
    size_t bytes;

    open_model(models[_i], 256);
    bytes = source.model->n_vocab * sizeof(float);
    straight = open_session(0);
    detour = open_session(4);
    ck_assert_int_eq(decode(straight, said, 4, &err), 0);
    ck_assert_int_eq(decode(straight, wrong, 1, &err), 0);
    ck_assert_int_eq(decode(straight, right, 2, &err), 0);
    ck_assert_int_eq(decode(detour, said, 4, &err), 0);
    ck_assert_int_eq(decode(detour, wrong, 4, &err), 0);
    session_undo(detour, 0, 3);
    ck_assert_uint_eq(session_length(detour, 0), 5);
    ck_assert_int_eq(decode(detour, right, 2, &err), 0);
    ck_assert_mem_eq(session_logits(straight, 0), session_logits(detour, 0), bytes);
    session_free(straight);
    session_free(detour);
    close_model();
}
END_TEST

/* The head in parts on two devices, whole on each, and on the host. */
START_TEST(devices_pick_the_token_of_the_largest_logit)
{
    static const uint32_t ids[] = {5, 9, 2, 7, 7, 3, 11, 4};
    struct session_token tokens[8];
    struct error err = {0};
    struct session *picking, *reading;
    struct plan plan;

    open_model("tiny-llama", 256);
    plan = placement->plan;
    plan.output_mirrored = _i == 1 ? PLAN_ON : PLAN_OFF;
    plan.n_gpu_layers = _i == 2 ? 2 : plan.n_gpu_layers;
    plan.split = _i == 2 ? PLAN_SPLIT_LAYER : plan.split;
    placement_free(placement);
    placement = placement_new(source.model, machine, &plan, 256, &err);
    ck_assert_msg(placement != NULL, "%s", err.text);
    picking = session_new(placement, source.weights, &source.numbers, NULL,
                          (struct session_options){.picks = true}, &err);
    ck_assert_msg(picking != NULL, "%s", err.text);
    reading = open_session(0);
    for (uint32_t i = 0; i < 8; i++)
        tokens[i] = (struct session_token){ids[i], 0, i % 3 != 1};
    ck_assert_msg(session_decode(picking, tokens, 8, &err) == 0, "%s", err.text);
    ck_assert_int_eq(session_decode(reading, tokens, 8, &err), 0);
    for (uint32_t row = 0; row < 5; row++)
        ck_assert_uint_eq(session_picked(picking, row),
                          generate_choose(session_logits(reading, row), source.model->n_vocab,
                                          (struct sampling){.temperature = 0}, 0, 0));
    session_free(picking);
    session_free(reading);
    close_model();
}
END_TEST

/* Models without and with states that go on: the second is only cut to nothing. */
START_TEST(a_slot_that_was_cut_goes_on_as_if_the_rest_had_never_been)
{
    static const char *const kinds[] = {"tiny-llama", "tiny-qwen35", "tiny-gemma4"};
    static const uint32_t ids[] = {5, 9, 2, 7, 7, 3, 11, 4};
    uint32_t kept = _i == 0 ? 3 : 0;
    struct error err = {0};
    struct session *cut, *whole;
    float first, second;

    open_model(kinds[_i], 256);
    cut = open_session(0);
    whole = open_session(0);
    ck_assert_int_eq(decode(cut, ids, 8, &err), 0);
    if (_i > 0) {
        ck_assert_int_eq(session_truncate(cut, 0, 3, &err), -1);
        ck_assert_int_eq(err.code, ERROR_UNSUPPORTED);
        ck_assert_uint_eq(session_length(cut, 0), 8);
    }
    ck_assert_int_eq(session_truncate(cut, 0, kept, &err), 0);
    ck_assert_uint_eq(session_length(cut, 0), kept);
    ck_assert_int_eq(decode(cut, ids + 4, 4, &err), 0);
    if (kept > 0)
        ck_assert_int_eq(decode(whole, ids, kept, &err), 0);
    ck_assert_int_eq(decode(whole, ids + 4, 4, &err), 0);
    for (uint32_t i = 0; i < source.model->n_vocab; i++) {
        first = session_logits(cut, 0)[i];
        second = session_logits(whole, 0)[i];
        ck_assert_int_eq(memcmp(&first, &second, sizeof first), 0);
    }
    session_free(cut);
    session_free(whole);
    close_model();
}
END_TEST

/* Of models that look back at all and at a window, and with states. */
START_TEST(a_filled_slot_goes_on_behind_tokens_that_nothing_was_computed_of)
{
    static const char *const kinds[] = {"tiny-llama", "tiny-gemma4", "tiny-qwen35"};
    static const uint32_t ids[] = {5, 9, 2};
    struct error err = {0};
    struct session *session;

    open_model(kinds[_i], 256);
    session = open_session(0);
    ck_assert_msg(session_fill(session, 1, 200, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(session_length(session, 0), 200);
    ck_assert_int_eq(session_fill(session, 1, 100, &err), 0); /* it has more */
    ck_assert_uint_eq(session_length(session, 0), 200);
    ck_assert_msg(decode(session, ids, 3, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(session_length(session, 0), 203);
    for (uint32_t i = 0; i < source.model->n_vocab; i++)
        ck_assert(isfinite(session_logits(session, 0)[i]));
    ck_assert_int_eq(session_truncate(session, 0, 0, &err), 0);
    ck_assert_int_eq(session_fill(session, 1, 256, &err), 0);
    ck_assert_int_eq(session_fill(session, 1, 257, &err), -1);
    ck_assert_int_eq(err.code, ERROR_USAGE);
    session_free(session);
    close_model();
}
END_TEST

START_TEST(a_shift_of_more_than_there_is_is_refused)
{
    struct error err = {0};
    static const uint32_t said[] = {1, 2, 3};
    struct session *session;

    open_model("tiny-llama", 256);
    session = open_session(0);
    ck_assert_int_eq(decode(session, said, 3, &err), 0);
    ck_assert_int_eq(session_shift(session, 0, 2, 2, &err), -1);
    ck_assert_str_eq(err.text, "slot 0 has 3 tokens; it cannot drop 2 from 2 on");
    session_free(session);
    close_model();
}
END_TEST

START_TEST(a_shifted_context_still_knows_what_was_dropped)
{
    /* Later layers' K and V were computed with the tokens that are gone, so a shifted context has
     * the length of a shorter one and other logits. */
    static const uint32_t said[] = {1, 2, 3, 4, 5, 6}, kept[] = {1, 2, 5, 6}, next[] = {9};
    struct error err = {0};
    struct session *shifted, *shorter;

    open_model("tiny-llama", 256);
    shifted = open_session(0);
    shorter = open_session(0);
    ck_assert_int_eq(decode(shifted, said, 6, &err), 0);
    ck_assert_int_eq(session_shift(shifted, 0, 2, 2, &err), 0);
    ck_assert_int_eq(decode(shorter, kept, 4, &err), 0);
    ck_assert_uint_eq(session_length(shifted, 0), session_length(shorter, 0));
    ck_assert_int_eq(decode(shifted, next, 1, &err), 0);
    ck_assert_int_eq(decode(shorter, next, 1, &err), 0);
    ck_assert_mem_ne(session_logits(shifted, 0), session_logits(shorter, 0),
                     source.model->n_vocab * sizeof(float));
    session_free(shifted);
    session_free(shorter);
    close_model();
}
END_TEST

/* ---- choosing a token ---- */

START_TEST(the_lower_id_wins_among_equal_logits_and_nan_never_does)
{
    const float logits[] = {1, 3, 3, 2}, odd[] = {__builtin_nanf(""), -5, __builtin_nanf(""), -6};
    struct sampling greedy = {.temperature = 0};

    ck_assert_uint_eq(generate_choose(logits, 4, greedy, 0, 0), 1);
    ck_assert_uint_eq(generate_choose(odd, 4, greedy, 0, 0), 1);
}
END_TEST

START_TEST(sampling_follows_the_weights)
{
    const float logits[] = {0, 1.0986123f}; /* 1 to 3 */
    struct sampling warm = {.temperature = 1, .seed = 9};
    int second = 0;

    for (uint32_t position = 0; position < 4000; position++)
        second += generate_choose(logits, 2, warm, 0, position) == 1;
    ck_assert_int_ge(second, 2850);
    ck_assert_int_le(second, 3150);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("session");
    TCase *cells = tcase_create("cells"), *sessions = tcase_create("sessions");
    SRunner *runner;
    int failed;

    tcase_add_test(cells, a_shared_cache_gives_each_position_the_lowest_free_cell);
    tcase_add_test(cells, separate_caches_begin_at_rows_of_their_own);
    tcase_add_test(cells, cells_that_no_window_looks_back_at_are_free_again);
    tcase_add_test(cells, a_shift_moves_positions_and_not_cells);
    suite_add_tcase(suite, cells);
    tcase_set_timeout(sessions, 60);
    tcase_add_test(sessions, a_full_context_is_refused_by_slot_and_position);
    tcase_add_test(sessions, a_token_outside_the_vocabulary_is_refused);
    tcase_add_loop_test(sessions, tokens_that_were_undone_leave_no_trace, 0, 3);
    tcase_add_loop_test(sessions, devices_pick_the_token_of_the_largest_logit, 0, 3);
    tcase_add_loop_test(sessions, a_slot_that_was_cut_goes_on_as_if_the_rest_had_never_been, 0, 3);
    tcase_add_loop_test(sessions, a_filled_slot_goes_on_behind_tokens_that_nothing_was_computed_of,
                        0, 3);
    tcase_add_test(sessions, a_shift_of_more_than_there_is_is_refused);
    tcase_add_test(sessions, a_shifted_context_still_knows_what_was_dropped);
    tcase_add_test(sessions, the_lower_id_wins_among_equal_logits_and_nan_never_does);
    tcase_add_test(sessions, sampling_follows_the_weights);
    suite_add_tcase(suite, sessions);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
