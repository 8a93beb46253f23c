#include "config.h"

#include "sim/kernel_fit.h"

#ifndef HAVE_NLOPT

int kernel_fit_product(struct kernel_table *table, struct kernel_product *row,
                       const struct kernel_fit_sample *samples, size_t count, double gbs,
                       bool common, struct error *err)
{
    (void)table;
    (void)row;
    (void)samples;
    (void)count;
    (void)gbs;
    (void)common;
    return error_set(err, ERROR_UNSUPPORTED,
                     "this build has no NLopt, which does the fitting; install libnlopt-dev and "
                     "configure again");
}

#else

#include <math.h>
#include <nlopt.h>
#include <stdlib.h>

#include "sim/kernel_times.h"

/* Launch in us, logarithms of rates in GB/s, then what products have in common. */
enum { LAUNCH, GBS, PLAIN_COUNT, HELD = PLAIN_COUNT, ROW_COUNT };
enum { LAG = ROW_COUNT, ATTENTION, DELTA_NET, COUNT };

static const double lowest[COUNT] = {0, 0, 0, 0, 0, 0};
static const double highest[COUNT] = {1000, 11.5, 11.5, 10, 1, 1}; /* 11.5: 99 TB/s */

struct fit {
    struct kernel_table *table;
    struct kernel_product *row;
    const struct kernel_fit_sample *samples;
    const double *weights;
    size_t count;
};

static void take(struct fit *fit, unsigned n, const double *x)
{
    fit->row->launch_s = x[LAUNCH] * 1e-6;
    fit->row->gbs = exp(x[GBS]);
    fit->row->held_gbs = n > PLAIN_COUNT ? exp(x[HELD]) : 0;
    if (n == COUNT) {
        fit->table->ahead_lag_s = x[LAG] * 1e-6;
        fit->table->attention_alone = x[ATTENTION];
        fit->table->delta_net_alone = x[DELTA_NET];
    }
}

static double loss(unsigned n, const double *x, double *gradient, void *data)
{
    struct fit *fit = data;
    double sum = 0;

    (void)gradient;
    take(fit, n, x);
    for (size_t i = 0; i < fit->count; i++) {
        const struct kernel_fit_sample *sample = &fit->samples[i];
        struct kernel_gap gap = {.s = 0};

        kernel_gap_pass(&gap, sample->small_s, 0);
        kernel_gap_pass(&gap, sample->attention_s, fit->table->attention_alone);
        kernel_gap_pass(&gap, sample->delta_net_s, fit->table->delta_net_alone);
        sum +=
            fit->weights[i] *
            fabs(log(kernel_product_s(fit->table, fit->row, &gap, sample->bytes) / sample->time_s));
    }
    return sum;
}

/* From one place to begin with. @return the least sum, below 0 after a failure */
static double minimise(struct fit *fit, unsigned n, double *x)
{
    enum { EVALUATIONS_MAX = 6000 };
    nlopt_opt opt = nlopt_create(NLOPT_LN_SBPLX, n);
    double least = -1;

    if (opt == NULL)
        return -1;
    nlopt_set_lower_bounds(opt, lowest);
    nlopt_set_upper_bounds(opt, highest);
    nlopt_set_min_objective(opt, loss, fit);
    nlopt_set_initial_step1(opt, 0.2);
    nlopt_set_xtol_abs1(opt, 1e-5);
    nlopt_set_maxeval(opt, EVALUATIONS_MAX);
    if (nlopt_optimize(opt, x, &least) < 0 && least < 0)
        least = -1;
    nlopt_destroy(opt);
    return least;
}

/* All samples of as many bytes count as one, by the root of its time. */
static void weigh(const struct kernel_fit_sample *samples, size_t count, double *weights)
{
    for (size_t i = 0; i < count; i++) {
        size_t alike = 0;

        for (size_t j = 0; j < count; j++)
            alike += samples[j].bytes == samples[i].bytes;
        weights[i] = sqrt(samples[i].time_s * 1e6) / (double)alike;
    }
}

static int fit_row(struct fit fit, double gbs, bool common, struct error *err)
{
    static const double launches_us[] = {2, 4, 8}, lags_us[] = {0.5, 1.5, 3};
    const struct kernel_product *row = fit.row;
    unsigned n = row->ahead_bytes <= 0 ? PLAIN_COUNT : common ? COUNT : ROW_COUNT;
    double best[COUNT], least = -1;

    for (int i = 0; i < 3; i++)
        for (int j = 0; j < (n == COUNT ? 3 : 1); j++) {
            double x[COUNT] = {launches_us[i], log(gbs), fmin(highest[HELD], log(2.5 * gbs)),
                               lags_us[j],     0.4,      0.4};
            double sum = minimise(&fit, n, x);

            if (sum < 0 || (least >= 0 && sum >= least))
                continue;
            least = sum;
            for (int k = 0; k < COUNT; k++)
                best[k] = x[k];
        }
    if (least < 0)
        return error_set(err, ERROR_UNSUPPORTED, "NLopt found no times of products of %u tokens",
                         row->tokens);
    take(&fit, n, best);
    return 0;
}

int kernel_fit_product(struct kernel_table *table, struct kernel_product *row,
                       const struct kernel_fit_sample *samples, size_t count, double gbs,
                       bool common, struct error *err)
{
    double *weights = malloc((count + 1) * sizeof *weights);
    int status;

    if (weights == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the weights of samples");
    weigh(samples, count, weights);
    status = fit_row((struct fit){table, row, samples, weights, count}, gbs, common, err);
    free(weights);
    return status;
}

#endif
