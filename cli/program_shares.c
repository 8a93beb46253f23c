#include "cli/program_shares.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/program.h"

/* --- shares: layers --- */

static const char *device_name(const struct placement *placement, uint32_t d)
{
    return placement->machine->devices[placement->devices[d]].name;
}

static const char *mixer_name(const struct model_layer *layer)
{
    static const char *const names[] = {
        [MODEL_MIXER_ATTENTION] = "attention",
        [MODEL_MIXER_SLIDING_WINDOW] = "sliding window",
        [MODEL_MIXER_MLA] = "latent attention",
        [MODEL_MIXER_GATED_DELTA_NET] = "gated delta net",
    };

    return names[layer->mixer];
}

/* Prints chosen layers as the flags write them: "0-3,8-32+4,40". */
static void print_layer_list(const bool *chosen, uint32_t count)
{
    const char *comma = "";

    for (uint32_t first = 0, step, last; first < count; first++) {
        if (!chosen[first])
            continue;
        for (step = 1; first + step < count && !chosen[first + step];)
            step++;
        for (last = first; last + step < count && chosen[last + step];) {
            uint32_t between = last + 1;

            while (between < last + step && !chosen[between])
                between++;
            if (between < last + step)
                break;
            last += step;
        }
        if (last > first && (step == 1 || last > first + step)) {
            printf("%s%" PRIu32 "-%" PRIu32, comma, first, last);
            if (step > 1)
                printf("+%" PRIu32, step);
            first = last;
        } else {
            printf("%s%" PRIu32, comma, first);
        }
        comma = ",";
    }
}

/* Whether two layers are alike and divided alike. */
static bool same_shape(const struct placement *placement, uint32_t a, uint32_t b)
{
    const struct model_layer *x = &placement->model->layers[a], *y = &placement->model->layers[b];
    const struct share_slices *s = &placement->slices[a], *t = &placement->slices[b];

    if (x->mixer != y->mixer || x->window != y->window || x->n_head != y->n_head ||
        x->n_head_kv != y->n_head_kv || x->head_dim_k != y->head_dim_k ||
        x->head_dim_v != y->head_dim_v || x->n_ff != y->n_ff || x->n_ff_exp != y->n_ff_exp ||
        x->n_expert != y->n_expert || placement->owner[a] != placement->owner[b])
        return false;
    for (uint32_t d = 0; d < placement->device_count; d++)
        if (s->q_heads[d] != t->q_heads[d] || s->kv_heads[d] != t->kv_heads[d] ||
            s->gdn_k_heads[d] != t->gdn_k_heads[d] || s->n_ff[d] != t->n_ff[d] ||
            s->n_ff_exp[d] != t->n_ff_exp[d])
            return false;
    return true;
}

/* A figure that the kind of layer has; a layer on the host is whole there. */
static void print_figure(bool has, bool on_host, uint64_t figure)
{
    if (!has)
        printf(" %7s |", "-");
    else if (on_host)
        printf(" %7s |", "all");
    else
        printf(" %7" PRIu64 " |", figure);
}

static void print_shape_row(const struct placement *placement, uint32_t layer, uint32_t d)
{
    const struct model_layer *l = &placement->model->layers[layer];
    const struct share_slices *slices = &placement->slices[layer];
    bool on_host = placement->owner[layer] < 0;
    char heads[32];

    snprintf(heads, sizeof heads, "%" PRIu32 ":%" PRIu32, slices->q_heads[d], slices->kv_heads[d]);
    printf("| %-16s | %-8s | %7s |", mixer_name(l), on_host ? "host" : device_name(placement, d),
           l->n_head == 0 ? "-"
           : on_host      ? "all"
                          : heads);
    print_figure(l->gdn_k_heads > 0, on_host, slices->gdn_k_heads[d]);
    print_figure(l->n_ff > 0, on_host, slices->n_ff[d]);
    print_figure(l->n_ff_exp > 0, on_host, slices->n_ff_exp[d]);
}

/* The rows of the layers that are like `first`, which it marks in `done`. */
static void print_shape(const struct placement *placement, uint32_t first, bool *like, bool *done)
{
    uint32_t count = placement->model->n_layer, alike = 0;

    for (uint32_t i = 0; i < count; i++) {
        like[i] = !done[i] && same_shape(placement, first, i);
        done[i] = done[i] || like[i];
        alike += like[i];
    }
    for (uint32_t d = 0; d < placement->device_count; d++) {
        if (placement->owner[first] < 0 ? d > 0 : !placement_has_layer(placement, first, d))
            continue;
        print_shape_row(placement, first, d);
        printf(" %4" PRIu32 ": ", alike);
        print_layer_list(like, count);
        puts(" |");
    }
}

static void print_shapes(const struct placement *placement, bool *like, bool *done)
{
    uint32_t count = placement->model->n_layer;

    printf("| %-16s | %-8s | %7s | %7s | %7s | %7s | layers |\n", "kind", "device", "Q:KV",
           "k-heads", "ffn", "experts");
    puts("| ---------------- | -------- | ------: | ------: | ------: | ------: | ------ |");
    memset(done, 0, count * sizeof *done);
    for (uint32_t i = 0; i < count; i++)
        if (!done[i])
            print_shape(placement, i, like, done);
}

static void print_head(const struct placement *placement)
{
    printf("\nOutput rows:");
    if (placement->owner[placement->layer_count] < 0)
        printf(" all on the host");
    for (uint32_t d = 0; d < placement->device_count; d++)
        if (placement->output_rows[d] > 0)
            printf(" %s %" PRIu64, device_name(placement, d), placement->output_rows[d]);
    puts("");
}

/* --- shares: cache and memory --- */

/* Chooses the layers whose cache part of device `d` lies on it, or on the host. */
static uint32_t choose_cache(const struct placement *placement, uint32_t d, bool resident,
                             bool *chosen)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < placement->model->n_layer; i++) {
        uint64_t k, v;

        placement_kv_row(placement, i, d, &k, &v);
        chosen[i] = k > 0 && placement->owner[i] >= 0 &&
                    ((placement->kv_resident[i] >> d & 1) != 0) == resident;
        count += chosen[i];
    }
    return count;
}

static uint32_t choose_host_layers(const struct placement *placement, bool *chosen)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < placement->model->n_layer; i++) {
        chosen[i] = placement->owner[i] < 0 && model_layer_has_kv(&placement->model->layers[i]);
        count += chosen[i];
    }
    return count;
}

static void print_cache_row(const struct placement *placement, const char *heads, const char *where,
                            const bool *chosen, uint32_t count)
{
    if (count == 0)
        return;
    printf("| %-9s | %-9s | %4" PRIu32 ": ", heads, where, count);
    print_layer_list(chosen, placement->model->n_layer);
    puts(" |");
}

static void print_cells(const struct placement *placement)
{
    printf("\nKV cache: %s, %" PRIu32 " cells", tensor_type_info(placement->plan.type_k)->name,
           placement->n_ctx);
    for (uint32_t i = 0; i < placement->model->n_layer; i++) {
        uint32_t window = placement->model->layers[i].window;

        if (window > 0) {
            printf(", %" PRIu32 " of a sliding window",
                   program_sliding_cache_cells(placement, window));
            break;
        }
    }
    puts("");
}

static void print_state(const struct placement *placement)
{
    for (uint32_t i = 0; i < placement->model->n_layer; i++) {
        if (placement->model->layers[i].mixer != MODEL_MIXER_GATED_DELTA_NET)
            continue;
        printf("Recurrent state: %s\n",
               placement->recurrent_on_device ? "with its layers" : "on the host");
        return;
    }
}

static void print_cache(const struct placement *placement, bool *chosen)
{
    print_cells(placement);
    printf("| %-9s | %-9s | layers |\n", "heads of", "cached on");
    puts("| --------- | --------- | ------ |");
    for (uint32_t d = 0; d < placement->device_count; d++) {
        const char *name = device_name(placement, d);
        uint32_t count = choose_cache(placement, d, true, chosen);

        print_cache_row(placement, name, name, chosen, count);
        count = choose_cache(placement, d, false, chosen);
        print_cache_row(placement, name, "host", chosen, count);
    }
    print_cache_row(placement, "host", "host", chosen, choose_host_layers(placement, chosen));
    print_state(placement);
}

static double size_mib(uint64_t bytes)
{
    return (double)bytes / 1048576;
}

static void print_memory(const struct placement *placement)
{
    struct memory_account account;
    char verdict[80];

    memory_count(placement, &account);
    memory_verdict(placement, &account, verdict, sizeof verdict);
    printf("\n| %-8s | %9s | %9s | %9s | %9s | %9s | %9s | %9s |\n", "MiB", "weights", "KV",
           "state", "compute", "overhead", "total", "available");
    puts("| -------- | --------: | --------: | --------: | --------: | --------: | --------: | "
         "--------: |");
    for (uint32_t d = 0; d < account.device_count; d++) {
        const struct memory_device *device = &account.devices[d];

        printf("| %-8s | %9.1f | %9.1f | %9.1f | %9.1f | %9.1f | %9.1f | %9.1f |\n",
               device_name(placement, d), size_mib(device->weights), size_mib(device->kv),
               size_mib(device->recurrent), size_mib(device->compute), size_mib(device->overhead),
               size_mib(device->total), size_mib(device->available));
    }
    printf("| %-8s | %9.1f | %9.1f |\n", "host", size_mib(account.host_weights),
           size_mib(account.host_kv));
    printf("\nMemory: %s\n\n", verdict);
}

int program_shares_print(const struct placement *placement, struct error *err)
{
    uint32_t count = placement->model->n_layer;
    bool *marks = calloc(2 * (size_t)count + 1, sizeof *marks);

    if (marks == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %" PRIu32 " layers", count);
    print_shapes(placement, marks, marks + count);
    print_head(placement);
    print_cache(placement, marks);
    print_memory(placement);
    free(marks);
    return 0;
}
