/* Values that go past the caches. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ref/stream.h"

enum { COUNT = 70, BEHIND = 8 };

START_TEST(all_values_arrive_and_nothing_else_changes)
{
    float from[COUNT + 1], *to = aligned_alloc(16, (COUNT + BEHIND + 2) * sizeof *to);

    ck_assert_ptr_nonnull(to);
    for (int i = 0; i <= COUNT; i++)
        from[i] = (float)(i + 1);
    for (int n = 0; n <= COUNT; n++)
        for (int shift = 0; shift < 2; shift++) {
            memset(to, 0xff, (COUNT + BEHIND) * sizeof *to);
            stream_floats(from + shift, (uint64_t)n, to);
            stream_end();
            for (int i = 0; i < n; i++)
                ck_assert_float_eq(to[i], from[i + shift]);
            for (int i = n; i < COUNT + BEHIND; i++)
                ck_assert_float_nan(to[i]);
        }
    free(to);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stream");
    TCase *tcase = tcase_create("floats");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tcase, all_values_arrive_and_nothing_else_changes);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
