/* A measured row as something to predict: which model, machine, plan and
 * workload it stands for, and the prediction of its value. */
#ifndef SIM_ROW_CASE_H
#define SIM_ROW_CASE_H

#include "sim/memory.h"
#include "sim/predict.h"
#include "sim/row_metric.h"
#include "sim/trace.h"

/* The mix of a row that states none. */
#define ROW_CASE_USUAL_QUANT "Q4_K_M"

/* The other plan of a row that states a difference. */
enum row_minus {
    ROW_MINUS_NOTHING,
    ROW_MINUS_LAYER_SPLIT, /* a tensor split less a layer split */
    ROW_MINUS_SPLIT_HEAD,  /* a mirrored head less one that is cut */
};

struct row_case {
    const struct trace_row *row; /* borrowed */
    enum row_metric metric;
    char model_spec[128]; /* "qwen3.8-27b:UD-Q5_K_M" */
    char machine_name[128], variant[16];
    char pace_devices[64], pace_links[64]; /* "" where nothing was made slower */
    bool composed;                         /* the machine is given by its GPUs */
    struct plan plan;
    enum predict_tool tool;
    bool shared_prompt;
    uint32_t n_prompt, n_gen, n_depth; /* n_depth: where the timed part starts */
    uint32_t context_needed;
    char draft_name[96]; /* of a drafter in the catalogue; "" without one */
    uint32_t draft_max;  /* tokens drafted a round; 0: no drafting */
    int device;          /* ROW_VRAM: device of the machine */
    enum row_minus minus;
    uint32_t live_cells;    /* cells of the cache that hold a token when a shift comes */
    bool shift_whole_cache; /* a shift covers the allocated cache */
};

/**
 * Reads what a row stands for.
 *
 * @return 0; 1 when the row cannot be predicted, with the reason in `reason`
 */
int row_case_read(const struct trace_row *row, struct row_case *c, char *reason,
                  size_t reason_size);

/**
 * What a ROW_STATUS row says: "aborts (...)" and "aborted" are 0, "wrong" 1, "fixed" and
 * "worked" 2.
 *
 * @return 0; 1 when it says something else
 */
int row_case_read_status(const struct trace_row *row, double *status);

/** Makes a machine as slow as the row's was made. @return 0, or -1 with `err` set (ERROR_USAGE) */
int row_case_pace(const struct row_case *c, struct machine *machine, struct error *err);

/** Opens the row's machine. @return a machine for machine_free(), or NULL with `err` set */
struct machine *row_case_machine(const struct row_case *c, struct error *err);

struct row_value {
    double value; /* in the unit of the metric; 0 and 1 for ROW_FITS, 0 to 2 for ROW_STATUS */
    struct memory_account memory;
    bool fits;
    struct prediction prediction; /* of rates, and of times of one plan */
};

/**
 * Predicts the value of a row on a machine.
 *
 * @return 0, or -1 with `err` set (ERROR_USAGE: the plan cannot be)
 */
int row_case_predict(const struct row_case *c, const struct model *model,
                     const struct machine *machine, struct row_value *value, struct error *err);

/**
 * Text that is equal for rows with the same configuration after all rounding and
 * choosing, whatever words they use for it.
 *
 * @return 0, or -1 with `err` set
 */
int row_case_key(const struct row_case *c, const struct model *model, const struct machine *machine,
                 char *text, size_t size, struct error *err);

#endif
