/* What is the same of many measured values. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "sim/values.h"

START_TEST(values_are_sorted_the_least_first)
{
    double values[] = {3, -1, 2, 2};

    values_sort(values, 4);
    for (size_t i = 1; i < 4; i++)
        ck_assert_double_le(values[i - 1], values[i]);
    ck_assert_double_eq(values[0], -1);
}
END_TEST

START_TEST(the_median_is_in_the_middle_or_between_two)
{
    double odd[] = {5, 1, 3}, even[] = {8, 1, 3, 4}, one[] = {7};

    ck_assert_double_eq(values_median(odd, 3), 3);
    ck_assert_double_eq(values_median(even, 4), 3.5);
    ck_assert_double_eq(values_median(one, 1), 7);
    ck_assert(isnan(values_median(one, 0)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("values");
    TCase *tcase = tcase_create("all");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tcase, values_are_sorted_the_least_first);
    tcase_add_test(tcase, the_median_is_in_the_middle_or_between_two);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
