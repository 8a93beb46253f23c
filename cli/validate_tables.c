#include "cli/validate_tables.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/metric_words.h"
#include "cli/row_columns.h"
#include "sim/values.h"

enum { LINE_WIDTH = 110, REASON_LENGTH = 160 };

/* The rows of one table. */
struct table {
    char id[48];
    const struct trace_table *about;  /* NULL: the trace says nothing */
    const struct validate_row **rows; /* of metrics that are predicted */
    size_t row_count;
    const struct validate_row **others; /* of other metrics */
    size_t other_count;
    const struct row_column *shown[64]; /* columns in which rows differ */
    size_t shown_count;
    const char *notes[64]; /* reasons, each once */
    size_t note_count;
    bool has_spread; /* of some rows it is known how far repeated runs were apart */
};

/* ---- text ---- */

/* Prints words up to the line width, and ends the line. */
static void print_wrapped(const char *text)
{
    size_t column = 0;

    while (*text != '\0') {
        size_t length = strcspn(text, " \n");

        if (column > 0 && column + 1 + length > LINE_WIDTH) {
            putchar('\n');
            column = 0;
        }
        if (length > 0) {
            printf("%s%.*s", column > 0 ? " " : "", (int)length, text);
            column += length + (column > 0);
        }
        text += length;
        text += strspn(text, " \n");
    }
    putchar('\n');
}

/* A paragraph, with the blank line behind it. */
static void print_paragraph(const char *start, const char *text)
{
    size_t size = strlen(start) + strlen(text) + 1;
    char *joined = malloc(size);

    if (joined == NULL)
        return;
    snprintf(joined, size, "%s%s", start, text);
    print_wrapped(joined);
    putchar('\n');
    free(joined);
}

/* Text that cannot end a cell of a table. */
static void print_cell(const char *text)
{
    printf(" ");
    for (; *text != '\0'; text++)
        printf(*text == '|' ? "\\%c" : "%c", *text);
    printf(" |");
}

/* A reason up to where a sentence can end. */
static void shorten(const char *reason, char *text, size_t size)
{
    size_t length = strlen(reason);

    snprintf(text, size, "%s", reason);
    if (length < size)
        return;
    for (length = size - 4; length > 0 && text[length] != ' '; length--)
        ;
    while (length > 0 && ispunct((unsigned char)text[length - 1]))
        length--;
    snprintf(text + length, size - length, "...");
}

/* The name of a file without its folder and its ending. */
static void base_name(const char *path, char *name, size_t size)
{
    const char *slash = strrchr(path, '/');
    char *dot;

    snprintf(name, size, "%s", slash != NULL ? slash + 1 : path);
    dot = strrchr(name, '.');
    if (dot != NULL && dot != name)
        *dot = '\0';
}

static bool is_predicted(const struct validate_row *row)
{
    return row->status != VALIDATE_SKIPPED && row->status != VALIDATE_DERIVED;
}

/* ---- one table ---- */

/* "-01" of "s000-bench-01". */
static const char *row_number(const struct validate_row *row, const struct table *table)
{
    size_t length = strlen(table->id);

    return row->row->id[length] == '-' ? row->row->id + length + 1 : row->row->id;
}

static size_t note_of(struct table *table, const char *reason)
{
    size_t at = 0;

    while (at < table->note_count && strcmp(table->notes[at], reason) != 0)
        at++;
    if (at == table->note_count && at < sizeof table->notes / sizeof *table->notes)
        table->notes[table->note_count++] = reason;
    return at + 1;
}

static bool is_verdict(const struct validate_row *row)
{
    return row_metric_kind(row->metric) == ROW_KIND_VERDICT;
}

/* What a row says, or is predicted to say, where that is no number. */
static const char *verdict_text(const struct validate_row *row, double verdict)
{
    static const char *const statuses[] = {"aborts", "wrong output", "works"};

    return row->metric == ROW_STATUS ? statuses[(int)verdict]
           : verdict != 0            ? "fits"
                                     : "does not fit";
}

static void print_spread(const struct validate_row *row)
{
    char spread[32] = "";

    if (row->rows > 0 && (row->row->reps != 1 || row->rows > 1) && row->measured > 0)
        snprintf(spread, sizeof spread, "%.1f", 100 * row->spread / row->measured);
    print_cell(spread);
}

static void print_values(const struct table *table, const struct validate_row *row)
{
    int decimals = strcmp(row->row->unit, "MiB") == 0 ? 0 : row->measured < 1e4 ? 2 : 0;
    char measured[160], predicted[32] = "-", error[32] = "-";

    if (is_verdict(row)) {
        if (row->row->value.kind == TRACE_VALUE_TEXT)
            snprintf(measured, sizeof measured, "%s", row->row->value.text);
        else
            snprintf(measured, sizeof measured, "%s", verdict_text(row, row->measured));
        if (is_predicted(row)) {
            snprintf(predicted, sizeof predicted, "%s", verdict_text(row, row->predicted));
            snprintf(error, sizeof error, "%s", row->error_pct == 0 ? "right" : "wrong");
        }
    } else {
        if (row->row->value.kind == TRACE_VALUE_TEXT)
            snprintf(measured, sizeof measured, "%s", row->row->value.text);
        else
            snprintf(measured, sizeof measured, "%.*f", decimals, row->measured);
        if (is_predicted(row)) {
            snprintf(predicted, sizeof predicted, "%.*f", decimals, row->predicted);
            snprintf(error, sizeof error, "%+.1f", row->error_pct);
            if (fabs(row->error_pct) < 0.05) /* no sign for what rounds to 0 */
                snprintf(error, sizeof error, "0.0");
        }
    }
    print_cell(measured);
    if (table->has_spread)
        print_spread(row);
    print_cell(predicted);
    print_cell(error);
}

static void print_status(struct table *table, const struct validate_row *row)
{
    static const char no_fit[] = "predicted not to fit, though it ran";
    char status[64];
    const char *note = row->status == VALIDATE_SKIPPED                       ? row->reason
                       : is_predicted(row) && !row->fits && !is_verdict(row) ? no_fit
                                                                             : "";

    if (note[0] != '\0')
        snprintf(status, sizeof status, "%s (%zu)", validate_status_name(row->status),
                 note_of(table, note));
    else
        snprintf(status, sizeof status, "%s", validate_status_name(row->status));
    print_cell(status);
}

static void print_row(struct table *table, const struct validate_row *row)
{
    char metric[80];

    printf("|");
    print_cell(row_number(row, table));
    for (size_t c = 0; c < table->shown_count; c++) {
        struct row_cell cell;
        char text[sizeof cell.text + 1];

        row_columns_read(table->shown[c], row, &cell);
        snprintf(text, sizeof text, "%s%s", cell.text,
                 cell.kind == ROW_CELL_STATED && cell.assumed ? "*" : "");
        print_cell(text);
    }
    print_cell(metric_heading(row->row, metric, sizeof metric));
    print_values(table, row);
    print_status(table, row);
    putchar('\n');
}

/* Whether the rows differ in a column. Otherwise `common` is what they share, if they do. */
static bool differs(const struct table *table, const struct row_column *column,
                    struct row_cell *common)
{
    *common = (struct row_cell){.kind = ROW_CELL_APART};
    for (size_t i = 0; i < table->row_count; i++) {
        struct row_cell cell;

        row_columns_read(column, table->rows[i], &cell);
        if (cell.kind == ROW_CELL_APART)
            continue;
        if (common->kind == ROW_CELL_APART)
            *common = cell;
        else if (strcmp(cell.text, common->text) != 0)
            return true;
        common->assumed |= cell.assumed;
        if (cell.kind == ROW_CELL_STATED)
            common->kind = cell.kind;
    }
    return false;
}

/* Sorts the columns into those to show and those that all rows share, which are printed. */
static void print_common(struct table *table, const struct row_column *columns, size_t count)
{
    char text[4000] = "";
    size_t at = 0;

    for (size_t c = 0; c < count; c++) {
        struct row_cell cell;

        if (differs(table, &columns[c], &cell)) {
            if (table->shown_count < sizeof table->shown / sizeof *table->shown)
                table->shown[table->shown_count++] = &columns[c];
        } else if (cell.kind == ROW_CELL_STATED && at < sizeof text) {
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s: %s%s", at > 0 ? "; " : "",
                                   columns[c].heading, cell.text, cell.assumed ? "*" : "");
        }
    }
    if (at > 0 && at + 1 < sizeof text) {
        strcpy(text + at, ".");
        print_paragraph("Throughout: ", text);
    }
}

static void print_heading_row(const struct table *table)
{
    printf("| row |");
    for (size_t c = 0; c < table->shown_count; c++)
        print_cell(table->shown[c]->heading);
    printf(" metric | measured |%s predicted | error %% | status |\n| --- |",
           table->has_spread ? " spread % |" : "");
    for (size_t c = 0; c < table->shown_count; c++)
        printf(" --- |");
    printf(" --- | ---: |%s ---: | ---: | --- |\n", table->has_spread ? " ---: |" : "");
}

static void print_notes(const struct table *table)
{
    for (size_t i = 0; i < table->note_count; i++) {
        char text[REASON_LENGTH], line[REASON_LENGTH + 32];
        size_t length;

        shorten(table->notes[i], text, sizeof text);
        length = strlen(text);
        snprintf(line, sizeof line, "(%zu) %s%s", i + 1, text,
                 length > 0 && text[length - 1] == '.' ? "" : ".");
        print_paragraph("", line);
    }
}

/* "12 rows, output hashes", once for each metric that is not predicted. */
static void print_left_out(const struct table *table)
{
    char text[2000] = "";
    size_t at = 0;

    for (size_t i = 0; i < table->other_count && at < sizeof text; i++) {
        const char *metric = table->others[i]->row->metric;
        size_t count = 0;
        bool seen = false;

        for (size_t k = 0; k < i; k++)
            seen |= strcmp(table->others[k]->row->metric, metric) == 0;
        if (seen)
            continue;
        for (size_t k = i; k < table->other_count; k++)
            count += strcmp(table->others[k]->row->metric, metric) == 0;
        at +=
            (size_t)snprintf(text + at, sizeof text - at, "%s%zu row%s with %s", at > 0 ? "; " : "",
                             count, count == 1 ? "" : "s", metric_explain(metric));
    }
    if (at > 0 && at + 1 < sizeof text) {
        strcpy(text + at, ".");
        print_paragraph("Not predicted: ", text);
    }
}

static int print_table(struct table *table, struct error *err)
{
    const struct trace_table *about = table->about;
    struct row_column *columns = NULL;
    size_t column_count = 0;

    printf("### %s%s%s\n\n", table->id, about != NULL && about->title[0] != '\0' ? ": " : "",
           about != NULL ? about->title : "");
    if (about != NULL && about->mechanism[0] != '\0')
        print_paragraph("", about->mechanism);
    if (about != NULL && about->contradiction[0] != '\0')
        print_paragraph("**The source contradicts itself:** ", about->contradiction);
    if (about != NULL && about->gap[0] != '\0')
        print_paragraph("**The source does not say** ", about->gap);
    if (table->row_count > 0) {
        if (row_columns_new(table->rows, table->row_count, &columns, &column_count, err) != 0)
            return -1;
        for (size_t i = 0; i < table->row_count; i++)
            table->has_spread |= trace_row_has(table->rows[i]->row, TRACE_FIELD_STDDEV);
        print_common(table, columns, column_count);
        print_heading_row(table);
        for (size_t i = 0; i < table->row_count; i++)
            print_row(table, table->rows[i]);
        putchar('\n');
        print_notes(table);
        free(columns);
    }
    print_left_out(table);
    return 0;
}

/* ---- the tables of a trace ---- */

struct tables {
    struct table *entries;
    size_t count;
    const struct validate_row **rows; /* the tables' lists are parts of it */
};

static struct table *find_table(const struct tables *tables, const char *id)
{
    for (size_t i = 0; i < tables->count; i++)
        if (strcmp(tables->entries[i].id, id) == 0)
            return &tables->entries[i];
    return NULL;
}

static void close_tables(struct tables *tables)
{
    free(tables->entries);
    free(tables->rows);
}

/* Places rows behind each other, table by table: first those of predicted metrics. */
static void fill_tables(struct tables *tables, const struct validate_row *rows, size_t count)
{
    size_t at = 0;

    for (size_t t = 0; t < tables->count; t++) {
        struct table *table = &tables->entries[t];

        for (int others = 0; others < 2; others++) {
            size_t start = at;
            char id[sizeof table->id];

            for (size_t i = 0; i < count; i++) {
                validate_table_id(rows[i].row->id, id, sizeof id);
                if (strcmp(id, table->id) == 0 && (rows[i].metric == ROW_OTHER) == (others == 1))
                    tables->rows[at++] = &rows[i];
            }
            *(others ? &table->others : &table->rows) = tables->rows + start;
            *(others ? &table->other_count : &table->row_count) = at - start;
        }
    }
}

static int read_tables(const struct trace *trace, const struct validate_row *rows,
                       struct tables *tables, struct error *err)
{
    *tables = (struct tables){.entries = calloc(trace->count + 1, sizeof *tables->entries),
                              .rows = calloc(trace->count + 1, sizeof *tables->rows)};
    if (tables->entries == NULL || tables->rows == NULL) {
        close_tables(tables);
        return error_set(err, ERROR_MEMORY, "no memory for %zu rows", trace->count);
    }
    for (size_t i = 0; i < trace->count; i++) {
        char id[sizeof tables->entries->id];
        struct table *table;

        validate_table_id(trace->rows[i].id, id, sizeof id);
        if (find_table(tables, id) != NULL)
            continue;
        table = &tables->entries[tables->count++];
        memcpy(table->id, id, sizeof id);
        table->about = trace_find_table(trace, id);
    }
    fill_tables(tables, rows, trace->count);
    return 0;
}

/* ---- summary ---- */

struct summary {
    double *errors; /* of speeds, with room for all rows */
    size_t speeds, others, verdicts, right, not_counted, skipped, left_out;
    double worst_other;
};

static void add_row(struct summary *summary, const struct validate_row *row)
{
    summary->skipped += row->status == VALIDATE_SKIPPED;
    summary->not_counted += row->status != VALIDATE_SKIPPED && row->status != VALIDATE_COUNTED;
    if (row->status != VALIDATE_COUNTED)
        return;
    if (is_verdict(row)) {
        summary->verdicts++;
        summary->right += row->error_pct == 0;
    } else if (row_metric_is_speed(row->metric)) {
        summary->errors[summary->speeds++] = fabs(row->error_pct);
    } else {
        summary->others++;
        summary->worst_other = fmax(summary->worst_other, fabs(row->error_pct));
    }
}

static void print_summary(const char *name, struct summary *s)
{
    printf("| %s | ", name);
    values_sort(s->errors, s->speeds);
    if (s->speeds > 0)
        printf("%zu | %.1f | %.1f | %.1f", s->speeds, validate_percentile(s->errors, s->speeds, 50),
               validate_percentile(s->errors, s->speeds, 95), s->errors[s->speeds - 1]);
    else
        printf("0 | - | - | -");
    if (s->others > 0)
        printf(" | %zu | %.1f", s->others, s->worst_other);
    else
        printf(" | 0 | -");
    if (s->verdicts > 0)
        printf(" | %zu of %zu", s->right, s->verdicts);
    else
        printf(" | -");
    printf(" | %zu | %zu | %zu |\n", s->not_counted, s->skipped, s->left_out);
}

static int print_summaries(const struct trace *trace, const struct tables *tables,
                           struct error *err)
{
    struct summary total = {.errors = calloc(trace->count + 1, sizeof(double))};
    struct summary one = {.errors = calloc(trace->count + 1, sizeof(double))};
    char name[sizeof trace->source];
    int status = -1;

    if (total.errors == NULL || one.errors == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for %zu rows", trace->count);
        goto done;
    }
    base_name(trace->source, name, sizeof name);
    printf("### Summary of %s\n\n", name);
    puts("| table | speeds | median % | p95 % | max % | sizes | max % | verdicts | not counted | "
         "skipped | left out |\n"
         "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (size_t t = 0; t < tables->count; t++) {
        const struct table *table = &tables->entries[t];

        one = (struct summary){.errors = one.errors, .left_out = table->other_count};
        total.left_out += table->other_count;
        for (size_t i = 0; i < table->row_count; i++) {
            add_row(&one, table->rows[i]);
            add_row(&total, table->rows[i]);
        }
        print_summary(table->id, &one);
    }
    print_summary("all", &total);
    putchar('\n');
    status = 0;

done:
    free(total.errors);
    free(one.errors);
    return status;
}

/* ---- the document ---- */

static void print_introduction(void)
{
    puts("# Measured and predicted, table by table\n");
    print_paragraph("", "Each table below is one of the sources' tables: what was measured, beside "
                        "what this program predicts for the same machine, model and flags. An "
                        "error is (predicted - measured) / measured.");
    print_paragraph("",
                    "A star marks what the source does not say and a reader had to assume. A "
                    "model without a stated quantisation is read as " ROW_CASE_USUAL_QUANT
                    ", a cache without a stated type as f16. What all rows of a table share, as "
                    "far as they have the choice, stands above it. \"t/s\" is tokens per second; "
                    "several slots are "
                    "added up. A spread is the standard deviation of repeated runs, of what was "
                    "measured.");
    print_paragraph("",
                    "Status: *counted* rows make up the summaries. *Fitted* rows were used to "
                    "set the constants of the machine, so they have to agree and prove "
                    "nothing; a *duplicate* has the configuration of a fitted row. A *repeated* "
                    "row measures another one's configuration once more: that one has the "
                    "mean and the spread of both. *Derived* "
                    "rows were worked out by their author from other rows. *Skipped* rows "
                    "cannot be predicted; the number leads to the reason below the table.");
}

static int print_trace(const struct trace *trace, const struct validate_row *rows,
                       struct error *err)
{
    char name[sizeof trace->source];
    struct tables tables;
    int status = 0;

    if (read_tables(trace, rows, &tables, err) != 0)
        return -1;
    base_name(trace->source, name, sizeof name);
    printf("## %s\n\n", name);
    if (trace->about[0] != '\0')
        print_paragraph("What was measured: ", trace->about);
    for (size_t t = 0; t < tables.count && status == 0; t++)
        status = print_table(&tables.entries[t], err);
    close_tables(&tables);
    return status;
}

int validate_tables_print(const struct validation *validation, const struct trace *traces,
                          size_t trace_count, struct error *err)
{
    size_t at = 0;

    print_introduction();
    for (size_t t = 0; t < trace_count; at += traces[t].count, t++)
        if (print_trace(&traces[t], validation->rows + at, err) != 0)
            return -1;
    puts("## Summary\n");
    print_paragraph("", "Errors of counted rows without their sign; percentiles by nearest rank. "
                        "Speeds include times of a prompt. \"Not counted\" are fitted, duplicate "
                        "and derived rows; \"left out\" are rows of metrics that are not "
                        "predicted.");
    if (validation->order.pairs > 0) {
        char order[200];

        snprintf(order, sizeof order,
                 "Of two plans that were measured more than %g %% apart, all else being the same, "
                 "the faster one is predicted to be it in %zu of %zu pairs.",
                 VALIDATE_APART_PCT, validation->order.pairs - validation->order.wrong,
                 validation->order.pairs);
        print_paragraph("", order);
    }
    at = 0;
    for (size_t t = 0; t < trace_count; at += traces[t].count, t++) {
        struct tables tables;
        int status;

        if (read_tables(&traces[t], validation->rows + at, &tables, err) != 0)
            return -1;
        status = print_summaries(&traces[t], &tables, err);
        close_tables(&tables);
        if (status != 0)
            return -1;
    }
    return 0;
}
