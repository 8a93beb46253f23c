/* Philox against its authors' numbers. */
#include <check.h>
#include <stdint.h>
#include <stdlib.h>

#include "ref/philox.h"

/* Source: tests/kat_vectors of Random123 1.14, lines "philox4x32 10". */
static const struct {
    uint32_t counter[PHILOX_WORDS], key[2], words[PHILOX_WORDS];
} answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

START_TEST(known_counters_and_keys_give_known_words)
{
    uint32_t words[PHILOX_WORDS];

    for (int i = 0; i < PHILOX_WORDS; i++)
        words[i] = answers[_i].counter[i];
    philox(words, answers[_i].key[0], answers[_i].key[1]);
    for (int i = 0; i < PHILOX_WORDS; i++)
        ck_assert_uint_eq(words[i], answers[_i].words[i]);
}
END_TEST

START_TEST(one_bit_of_the_counter_changes_about_half_of_the_bits)
{
    int changed = 0;

    for (uint32_t bit = 0; bit < 128; bit++) {
        uint32_t words[PHILOX_WORDS] = {0}, flipped[PHILOX_WORDS] = {0};

        flipped[bit / 32] = UINT32_C(1) << bit % 32;
        philox(words, 1, 2);
        philox(flipped, 1, 2);
        for (int i = 0; i < PHILOX_WORDS; i++)
            for (uint32_t rest = words[i] ^ flipped[i]; rest != 0; rest &= rest - 1)
                changed++;
    }
    ck_assert_int_gt(changed, 128 * 61); /* 64 of 128 bits each, 5 deviations wide */
    ck_assert_int_lt(changed, 128 * 67);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("philox");
    TCase *words = tcase_create("words");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(words, known_counters_and_keys_give_known_words, 0,
                        sizeof answers / sizeof *answers);
    tcase_add_test(words, one_bit_of_the_counter_changes_about_half_of_the_bits);
    suite_add_tcase(suite, words);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
