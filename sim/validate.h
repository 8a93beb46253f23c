/* Predictions beside measured rows, and how far apart they are. */
#ifndef SIM_VALIDATE_H
#define SIM_VALIDATE_H

#include "sim/row_case.h"

enum validate_status {
    VALIDATE_COUNTED,   /* predicted, and part of the figures */
    VALIDATE_FITTED,    /* used to fit the machine's constants: reported apart */
    VALIDATE_DUPLICATE, /* repeats the configuration of a fitted row */
    VALIDATE_REPEATED,  /* measures a counted row's configuration again, which has the mean */
    VALIDATE_DERIVED,   /* its author computed it from other rows */
    VALIDATE_SKIPPED,   /* cannot be predicted; `reason` says why */
};

struct validate_row {
    const struct trace_row *row; /* borrowed */
    enum validate_status status;
    enum row_metric metric;
    char reason[400];
    double measured,
        predicted;    /* in the unit of the metric, or a verdict as row_case_predict() has it */
    double spread;    /* standard deviation of all runs, in that unit; 0 where it is not known */
    size_t rows;      /* of its table and configuration that have a spread: it and later ones */
    double error_pct; /* (predicted - measured) / measured; verdicts: 0, or 100 when wrong */
    bool fits;        /* the account's verdict, for rows of every metric */
};

/* Absolute errors of a group of rows, in percent, by nearest rank. */
struct validate_figures {
    char id[48]; /* table: the row id up to its number; "" for all */
    size_t n;
    double median_pct, p95_pct, max_pct;
    size_t skipped;
};

/* Pairs of counted speeds that differ in their plans alone, and by more than VALIDATE_APART_PCT as
 * they were measured; `wrong`: the faster one is not
 * predicted to be it. */
#define VALIDATE_APART_PCT 5.0

struct validate_order {
    size_t pairs, wrong;
};

struct validation {
    struct validate_row *rows;
    size_t row_count;
    struct validate_figures *tables; /* rates and times, in order of appearance */
    size_t table_count;
    struct validate_figures total;   /* rates and times */
    struct validate_figures memory;  /* sizes */
    struct validate_figures counts;  /* graph splits, payloads */
    size_t verdicts, wrong_verdicts; /* fits and status rows, and others that are said not to fit */
    struct validate_order order;
};

/**
 * Predicts all rows of some traces.
 *
 * @param machine overrides the profile of rows that name it; NULL opens each by name
 * @return 0, or -1 with `err` set (ERROR_MEMORY; a row that fails is skipped with the reason)
 */
int validate_rows(const struct trace *traces, size_t trace_count, const struct machine *machine,
                  struct validation *validation, struct error *err);
void validation_close(struct validation *validation);

/** Counts the pairs among some rows. */
struct validate_order validate_order_of(const struct validate_row *rows, size_t count);

/** The table of a row: its id without the number at its end. */
void validate_table_id(const char *row_id, char *table, size_t size);

const char *validate_status_name(enum validate_status status);

/** Nearest-rank percentile of `count` sorted values, `percent` above 0. */
double validate_percentile(const double *sorted, size_t count, double percent);

#endif
