/* Fitting a machine's constants to measured rows. */
#ifndef SIM_CALIBRATE_H
#define SIM_CALIBRATE_H

#include "sim/row_case.h"

struct calibrate_request {
    const struct trace *traces;
    size_t trace_count;
    const char *const *rows; /* ids of the rows to fit to */
    size_t row_count;
    const char *const *constants; /* names, as machine_constants() lists them */
    size_t constant_count;
    double row_ratio;   /* expected scatter of a row: 0.01 for 1 % */
    double prior_ratio; /* expected distance of a constant from its start value; 0: any */
    unsigned evaluations_max;
    void (*progress)(unsigned evaluation, double rms_ratio, void *user); /* may be NULL */
    void *user;
};

struct calibrate_constant {
    char name[64];
    const char *unit, *meaning;
    double start, value; /* in `unit` */
    double uncertainty;  /* one standard deviation, in `unit`; INFINITY if the rows do not fix it */
    bool at_bound;
};

struct calibrate_row {
    const struct trace_row *row;
    double measured, before, after; /* values predicted with the start and the fitted constants */
};

struct calibration {
    struct calibrate_constant *constants;
    size_t constant_count;
    struct calibrate_row *rows;
    size_t row_count;
    double rms_before_ratio, rms_after_ratio;
    unsigned evaluations;
};

/**
 * Minimises the sum over rows of (log(predicted / measured) / row_ratio)^2, plus that
 * of (log(value / start) / prior_ratio)^2 over constants, within the constants' bounds.
 * Uncertainties are those of the linearised problem at the minimum: the square roots
 * of the diagonal of (J'J)^-1, with J in units of the expected scatter, scaled up
 * where the rows scatter more than expected.
 *
 * @return 0, or -1 with `err` set: an unknown row or constant, a row that cannot be
 *         predicted, a build without NLopt (ERROR_UNSUPPORTED)
 */
int calibrate(const struct calibrate_request *request, struct calibration *calibration,
              struct error *err);
void calibration_close(struct calibration *calibration);

/** Whether this build can fit. */
bool calibrate_is_available(void);

#endif
