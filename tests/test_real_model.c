/* A trained model: what the reference generates, against an evaluation in double precision. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/generate.h"
#include "ref/source.h"
#include "tests/double_llama.h"

enum { TOKENS = 64 };

static char path[512];

struct generated {
    uint32_t prompt[32], prompt_count;
    uint32_t tokens[TOKENS];
    char text[1024];
};

static void take_prompt(const struct source *source, const char *text, struct generated *out)
{
    struct error err = {0};
    uint32_t *tokens = NULL;
    int64_t count = vocab_encode(source->vocab, text, true, &tokens, &err);

    ck_assert_msg(count > 0 && count <= 32, "%s", err.text);
    out->prompt_count = (uint32_t)count;
    memcpy(out->prompt, tokens, (size_t)count * sizeof *tokens);
    free(tokens);
}

static struct generated generate_text(const char *prompt)
{
    static const char *const gpus[] = {"RTX 4070", "RTX 3060"};
    struct error err = {0};
    struct source source;
    struct generated out = {.prompt_count = 0};
    struct plan plan = plan_default();
    struct session_options options = {.undo_max = 0};
    struct generate_slot slot = {.prompt = out.prompt};
    struct generation generation;
    struct machine *machine = machine_compose(gpus, 2, &err);
    struct placement *placement;
    struct session *session;

    ck_assert_msg(source_open(&source, path, 0, &err) == 0, "%s", err.text);
    take_prompt(&source, prompt, &out);
    plan.split = PLAN_SPLIT_TENSOR;
    placement = placement_new(source.model, machine, &plan, out.prompt_count + TOKENS, &err);
    ck_assert_msg(placement != NULL, "%s", err.text);
    session = session_new(placement, source.weights, &source.numbers, NULL, options, &err);
    ck_assert_msg(session != NULL, "%s", err.text);
    slot.prompt_count = out.prompt_count;
    ck_assert_msg(generate(session, &slot, 1, (struct generate_options){.tokens = TOKENS},
                           &generation, &err) == 0,
                  "%s", err.text);
    memcpy(out.tokens, slot.tokens, sizeof out.tokens);
    for (int i = 0; i < TOKENS; i++)
        vocab_piece(source.vocab, out.tokens[i], out.text + strlen(out.text),
                    sizeof out.text - strlen(out.text));
    generate_free_slots(&slot, 1);
    session_free(session);
    placement_free(placement);
    machine_free(machine);
    source_close(&source);
    return out;
}

START_TEST(a_trained_model_greedily_says_what_double_precision_says)
{
    struct generated out = generate_text("Once upon a time");
    struct error err = {0};
    struct double_llama *exact = double_llama_open(path, 128, &err);
    double *logits;
    uint32_t token = 0;

    ck_assert_msg(exact != NULL, "%s", err.text);
    logits = calloc(double_llama_vocab(exact), sizeof *logits);
    ck_assert(logits != NULL);
    for (uint32_t i = 0; i < out.prompt_count; i++)
        ck_assert(double_llama_step(exact, out.prompt[i], logits) == 0);
    for (int i = 0; i < TOKENS; i++) {
        token = 0;
        for (uint32_t t = 1; t < double_llama_vocab(exact); t++)
            if (logits[t] > logits[token])
                token = t;
        ck_assert_msg(token == out.tokens[i], "token %d is %u, in double precision %u", i,
                      out.tokens[i], token);
        ck_assert(double_llama_step(exact, token, logits) == 0);
    }
    free(logits);
    double_llama_free(exact);
}
END_TEST

START_TEST(a_trained_model_continues_a_story)
{
    struct generated out = generate_text("Once upon a time");

    ck_assert_msg(strstr(out.text, "there was a little girl named") != NULL, "%s", out.text);
}
END_TEST

int main(void)
{
    const char *folder = getenv("LOPSIDE_GGUF_DIR");
    Suite *suite;
    TCase *tcase;
    SRunner *runner;
    FILE *file;
    int failed;

    if (folder == NULL)
        folder = "";
    snprintf(path, sizeof path, "%s/stories260K.gguf", folder);
    file = fopen(path, "rb");
    if (file == NULL) {
        puts("LOPSIDE_GGUF_DIR names no folder with stories260K.gguf: skipped");
        return 77;
    }
    fclose(file);
    suite = suite_create("real_model");
    tcase = tcase_create("stories260K");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_trained_model_greedily_says_what_double_precision_says);
    tcase_add_test(tcase, a_trained_model_continues_a_story);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
