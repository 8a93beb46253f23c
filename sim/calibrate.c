#include "sim/calibrate.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifndef HAVE_NLOPT

bool calibrate_is_available(void)
{
    return false;
}

int calibrate(const struct calibrate_request *request, struct calibration *calibration,
              struct error *err)
{
    (void)request;
    (void)calibration;
    return error_set(err, ERROR_UNSUPPORTED,
                     "this build has no NLopt, which does the fitting; install libnlopt-dev and "
                     "configure again");
}

void calibration_close(struct calibration *calibration)
{
    (void)calibration;
}

#else

#include <nlopt.h>

bool calibrate_is_available(void)
{
    return true;
}

/* A row with what predicting it takes. Rows of one machine share it. */
struct fitted_row {
    struct row_case c;
    const struct model *model;
    struct machine *machine;
};

struct fit {
    const struct calibrate_request *request;
    struct fitted_row *rows;
    struct model **models;              /* one a row, NULL where an earlier row has it */
    struct machine **machines;          /* likewise */
    struct machine_constant *constants; /* constant_count a row's machine: where each value lies */
    double *start;                      /* in the constants' units */
    double *predicted;
    unsigned evaluations;
    struct error *err;
    bool failed;
};

/* ---- setting up ---- */

static const struct trace_row *find_row(const struct calibrate_request *request, const char *id)
{
    for (size_t t = 0; t < request->trace_count; t++) {
        const struct trace_row *row = trace_find_row(&request->traces[t], id);

        if (row != NULL)
            return row;
    }
    return NULL;
}

static int open_row(struct fit *fit, size_t index, struct error *err)
{
    const char *id = fit->request->rows[index];
    const struct trace_row *row = find_row(fit->request, id);
    struct fitted_row *fitted = &fit->rows[index];
    char reason[400];

    if (row == NULL)
        return error_set(err, ERROR_USAGE, "no row %s in the traces", id);
    if (row_case_read(row, &fitted->c, reason, sizeof reason) != 0)
        return error_set(err, ERROR_USAGE, "row %s cannot be predicted: %s", id, reason);
    if (!row_metric_is_speed(fitted->c.metric))
        return error_set(err, ERROR_USAGE, "row %s is no speed; rates and times can be fitted", id);
    if (row->value.kind != TRACE_VALUE_NUMBER || !(row->value.number > 0))
        return error_set(err, ERROR_USAGE, "row %s has no value above 0 to fit to", id);
    for (size_t i = 0; i < index; i++) {
        const struct row_case *other = &fit->rows[i].c;

        if (strcmp(other->model_spec, fitted->c.model_spec) == 0)
            fitted->model = fit->rows[i].model;
        if (!fitted->c.composed && strcmp(other->machine_name, fitted->c.machine_name) == 0 &&
            strcmp(other->variant, fitted->c.variant) == 0)
            fitted->machine = fit->rows[i].machine;
    }
    if (fitted->model == NULL)
        fitted->model = fit->models[index] = model_from_catalogue(fitted->c.model_spec, err);
    if (fitted->machine == NULL)
        fitted->machine = fit->machines[index] = row_case_machine(&fitted->c, err);
    return fitted->model != NULL && fitted->machine != NULL ? 0 : -1;
}

static bool find_constant(struct machine *machine, const char *name, struct machine_constant *found)
{
    size_t count = machine_constants(machine, NULL, 0);
    struct machine_constant *all = calloc(count + 1, sizeof *all);
    bool is_there = false;

    machine_constants(machine, all, count);
    for (size_t i = 0; all != NULL && i < count && !is_there; i++) {
        is_there = strcmp(all[i].name, name) == 0;
        if (is_there)
            *found = all[i];
    }
    free(all);
    return is_there;
}

/* Where each constant lies in the machine of each row; `value` NULL where it does not. */
static int locate_constants(struct fit *fit, struct error *err)
{
    const struct calibrate_request *request = fit->request;

    for (size_t k = 0; k < request->constant_count; k++) {
        bool known = false;

        for (size_t r = 0; r < request->row_count; r++) {
            struct machine_constant *at = &fit->constants[r * request->constant_count + k];

            if (!find_constant(fit->rows[r].machine, request->constants[k], at)) {
                at->value = NULL;
            } else if (!known) {
                fit->start[k] = *at->value / at->scale;
                known = true;
            }
        }
        if (!known)
            return error_set(err, ERROR_USAGE,
                             "no constant %s in the rows' machines; 'lopside calibrate --list' "
                             "has the names",
                             request->constants[k]);
        if (!(fit->start[k] > 0))
            return error_set(err, ERROR_USAGE,
                             "constant %s is 0, from where a fit of its logarithm cannot start; "
                             "give it a value in the profile",
                             request->constants[k]);
    }
    return 0;
}

static const struct machine_constant *constant_at(const struct fit *fit, size_t k)
{
    for (size_t r = 0; r < fit->request->row_count; r++)
        if (fit->constants[r * fit->request->constant_count + k].value != NULL)
            return &fit->constants[r * fit->request->constant_count + k];
    return NULL;
}

/* ---- evaluating ---- */

static void set_constants(struct fit *fit, const double *logs)
{
    const struct calibrate_request *request = fit->request;

    for (size_t r = 0; r < request->row_count; r++) {
        for (size_t k = 0; k < request->constant_count; k++) {
            struct machine_constant *at = &fit->constants[r * request->constant_count + k];

            if (at->value != NULL)
                *at->value = fit->start[k] * exp(logs[k]) * at->scale;
        }
    }
}

/* Residuals in units of the expected scatter: rows, then constants. */
static int residuals(struct fit *fit, const double *logs, double *out)
{
    const struct calibrate_request *request = fit->request;

    set_constants(fit, logs);
    for (size_t r = 0; r < request->row_count; r++) {
        const struct fitted_row *row = &fit->rows[r];
        struct row_value value;

        if (row_case_predict(&row->c, row->model, row->machine, &value, fit->err) != 0) {
            fit->failed = true;
            return -1;
        }
        fit->predicted[r] = value.value;
        out[r] = log(value.value / row->c.row->value.number) / request->row_ratio;
    }
    for (size_t k = 0; k < request->constant_count; k++)
        out[request->row_count + k] = request->prior_ratio > 0 ? logs[k] / request->prior_ratio : 0;
    return 0;
}

static double rms_ratio(const struct fit *fit)
{
    double sum = 0;

    for (size_t r = 0; r < fit->request->row_count; r++) {
        double log_ratio = log(fit->predicted[r] / fit->rows[r].c.row->value.number);

        sum += log_ratio * log_ratio;
    }
    return sqrt(sum / (double)fit->request->row_count);
}

static double objective(unsigned n, const double *logs, double *gradient, void *user)
{
    struct fit *fit = user;
    size_t count = fit->request->row_count + fit->request->constant_count;
    double *out = malloc(count * sizeof *out);
    double sum = 0;

    (void)n;
    (void)gradient;
    if (out == NULL || fit->failed || residuals(fit, logs, out) != 0) {
        free(out);
        return HUGE_VAL;
    }
    for (size_t i = 0; i < count; i++)
        sum += out[i] * out[i];
    free(out);
    fit->evaluations++;
    if (fit->request->progress != NULL)
        fit->request->progress(fit->evaluations, rms_ratio(fit), fit->request->user);
    return sum;
}

static int minimise(struct fit *fit, double *logs, struct error *err)
{
    size_t n = fit->request->constant_count;
    nlopt_opt opt = nlopt_create(NLOPT_LN_SBPLX, (unsigned)n);
    double *bounds = malloc(2 * (n + 1) * sizeof *bounds);
    double least = 0;
    nlopt_result result = NLOPT_FAILURE;

    if (opt != NULL && bounds != NULL) {
        for (size_t k = 0; k < n; k++) {
            const struct machine_constant *constant = constant_at(fit, k);

            assert(constant != NULL);
            bounds[k] = log(fmax(constant->min, 1e-9) / fit->start[k]);
            bounds[n + k] = isfinite(constant->max) ? log(constant->max / fit->start[k]) : 20;
        }
        nlopt_set_lower_bounds(opt, bounds);
        nlopt_set_upper_bounds(opt, bounds + n);
        nlopt_set_min_objective(opt, objective, fit);
        nlopt_set_initial_step1(opt, 0.05);
        nlopt_set_xtol_abs1(opt, 1e-5);
        nlopt_set_maxeval(opt, (int)fit->request->evaluations_max);
        result = nlopt_optimize(opt, logs, &least);
    }
    nlopt_destroy(opt);
    free(bounds);
    if (fit->failed)
        return -1;
    if (result < 0 && result != NLOPT_ROUNDOFF_LIMITED)
        return error_set(err, ERROR_UNSUPPORTED, "NLopt did not find a minimum: %s",
                         nlopt_result_to_string(result));
    return 0;
}

/* ---- uncertainties ---- */

/* Inverts the symmetric n x n matrix in place by elimination; false if it is singular. */
static bool invert(double *matrix, size_t n)
{
    for (size_t p = 0; p < n; p++) {
        double pivot = matrix[p * n + p];

        if (fabs(pivot) < 1e-12)
            return false;
        matrix[p * n + p] = 1;
        for (size_t j = 0; j < n; j++)
            matrix[p * n + j] /= pivot;
        for (size_t i = 0; i < n; i++) {
            double factor = matrix[i * n + p];

            if (i == p)
                continue;
            matrix[i * n + p] = 0;
            for (size_t j = 0; j < n; j++)
                matrix[i * n + j] -= factor * matrix[p * n + j];
        }
    }
    return true;
}

static int fill_jacobian(struct fit *fit, const double *logs, double *jacobian, double *scratch)
{
    size_t n = fit->request->constant_count, m = fit->request->row_count + n;
    const double step = 1e-3;
    double *up = scratch, *down = scratch + m, *moved = scratch + 2 * m;

    for (size_t k = 0; k < n; k++) {
        memcpy(moved, logs, n * sizeof *moved);
        moved[k] = logs[k] + step;
        if (residuals(fit, moved, up) != 0)
            return -1;
        moved[k] = logs[k] - step;
        if (residuals(fit, moved, down) != 0)
            return -1;
        for (size_t i = 0; i < m; i++)
            jacobian[i * n + k] = (up[i] - down[i]) / (2 * step);
    }
    return 0;
}

/* Relative standard deviations of the constants. */
static int uncertainties(struct fit *fit, const double *logs, double *ratios, struct error *err)
{
    size_t n = fit->request->constant_count, m = fit->request->row_count + n;
    double *jacobian = malloc((m * n + n * n + 3 * m + n) * sizeof *jacobian);
    double *normal = jacobian + m * n, *scratch = normal + n * n;
    double excess;
    int status = -1;

    if (jacobian == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu constants", n);
    if (fill_jacobian(fit, logs, jacobian, scratch) != 0 || residuals(fit, logs, scratch) != 0)
        goto done;
    excess = fmax(1, rms_ratio(fit) / fit->request->row_ratio);
    for (size_t a = 0; a < n; a++) {
        for (size_t b = 0; b < n; b++) {
            double sum = 0;

            for (size_t i = 0; i < m; i++)
                sum += jacobian[i * n + a] * jacobian[i * n + b];
            normal[a * n + b] = sum;
        }
    }
    /* A constant that nothing depends on must not make the others uncertain. */
    for (size_t k = 0; k < n; k++) {
        ratios[k] = normal[k * n + k] == 0 ? INFINITY : 0;
        if (normal[k * n + k] == 0)
            normal[k * n + k] = 1;
    }
    if (invert(normal, n))
        for (size_t k = 0; k < n; k++)
            ratios[k] += normal[k * n + k] > 0 ? sqrt(normal[k * n + k]) * excess : INFINITY;
    else
        for (size_t k = 0; k < n; k++)
            ratios[k] = INFINITY;
    status = 0;

done:
    free(jacobian);
    return status;
}

/* ---- the whole ---- */

static void report(struct fit *fit, const double *logs, const double *ratios,
                   struct calibration *calibration)
{
    for (size_t k = 0; k < fit->request->constant_count; k++) {
        const struct machine_constant *at = constant_at(fit, k);
        struct calibrate_constant *out = &calibration->constants[k];

        assert(at != NULL); /* locate_constants has seen to it */
        snprintf(out->name, sizeof out->name, "%s", at->name);
        out->unit = at->unit;
        out->meaning = at->meaning;
        out->start = fit->start[k];
        out->value = fit->start[k] * exp(logs[k]);
        out->uncertainty = out->value * ratios[k];
        out->at_bound = out->value <= at->min * 1.0001 || out->value >= at->max * 0.9999;
    }
    for (size_t r = 0; r < fit->request->row_count; r++)
        calibration->rows[r].after = fit->predicted[r];
    calibration->rms_after_ratio = rms_ratio(fit);
    calibration->evaluations = fit->evaluations;
}

static int run(struct fit *fit, struct calibration *calibration, struct error *err)
{
    size_t n = fit->request->constant_count, m = fit->request->row_count + n;
    double *logs = calloc(2 * n + m + 1, sizeof *logs);
    double *ratios = logs + n;
    int status = -1;

    if (logs == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu constants", n);
    if (residuals(fit, logs, logs + 2 * n) != 0)
        goto done;
    for (size_t r = 0; r < fit->request->row_count; r++)
        calibration->rows[r] = (struct calibrate_row){.row = fit->rows[r].c.row,
                                                      .measured = fit->rows[r].c.row->value.number,
                                                      .before = fit->predicted[r]};
    calibration->rms_before_ratio = rms_ratio(fit);
    if (minimise(fit, logs, err) != 0 || uncertainties(fit, logs, ratios, err) != 0)
        goto done;
    report(fit, logs, ratios, calibration);
    status = 0;

done:
    free(logs);
    return status;
}

static int allocate(struct fit *fit, struct calibration *calibration, struct error *err)
{
    size_t rows = fit->request->row_count, constants = fit->request->constant_count;

    fit->rows = calloc(rows + 1, sizeof *fit->rows);
    fit->models = calloc(rows + 1, sizeof(struct model *));
    fit->machines = calloc(rows + 1, sizeof(struct machine *));
    fit->constants = calloc(rows * constants + 1, sizeof *fit->constants);
    fit->start = calloc(constants + 1, sizeof *fit->start);
    fit->predicted = calloc(rows + 1, sizeof *fit->predicted);
    *calibration = (struct calibration){.row_count = rows, .constant_count = constants};
    calibration->constants = calloc(constants + 1, sizeof *calibration->constants);
    calibration->rows = calloc(rows + 1, sizeof *calibration->rows);
    if (fit->rows == NULL || fit->models == NULL || fit->machines == NULL ||
        fit->constants == NULL || fit->start == NULL || fit->predicted == NULL ||
        calibration->constants == NULL || calibration->rows == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu rows", rows);
    return 0;
}

int calibrate(const struct calibrate_request *request, struct calibration *calibration,
              struct error *err)
{
    struct fit fit = {.request = request, .err = err};
    int status = -1;

    if (request->row_count == 0 || request->constant_count == 0)
        return error_set(err, ERROR_USAGE, "a fit needs at least one row and one constant");
    if (allocate(&fit, calibration, err) == 0) {
        status = 0;
        for (size_t r = 0; r < request->row_count && status == 0; r++)
            status = open_row(&fit, r, err);
        if (status == 0)
            status = locate_constants(&fit, err) != 0 || run(&fit, calibration, err) != 0 ? -1 : 0;
        for (size_t r = 0; r < request->row_count; r++) {
            model_free(fit.models[r]);
            machine_free(fit.machines[r]);
        }
    }
    free(fit.rows);
    free(fit.models);
    free(fit.machines);
    free(fit.constants);
    free(fit.start);
    free(fit.predicted);
    if (status != 0)
        calibration_close(calibration);
    return status;
}

void calibration_close(struct calibration *calibration)
{
    free(calibration->constants);
    free(calibration->rows);
    *calibration = (struct calibration){0};
}

#endif
