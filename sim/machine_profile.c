/* Machine profiles. A profile is a JSON object:
 *
 *   lopside_machine   1, the version of the format
 *   name, about       for people; sources: where the figures come from, a list of strings
 *                     or an object of them
 *   host              {cpu, threads 8, memory_gbs, thread_gbs 16, thread_gflops 5.5,
 *                     launch_us 3, copy_us 8, sync_us 5, split_us 11.6, sample_ns 1.8,
 *                     rope_ns 0.4, reserve_us 10000, build_us 1500,
 *                     collective_issue_us 8};
 *                     all but memory_gbs may be left out, and then are as shown here
 *   devices           [{name, gpu, family, compute_capability "8.9", memory_mib, other_mib (what
 *                     others use of it, a display say; 0), l2_mib, memory_gbs,
 *                     sm_count, clock_mhz, fp32_tflops, fp16_tflops, int8_tops,
 *                     int8_tensor_cores, fp16_tensor_cores}]: a gpu of the catalogue fills
 *                     in the rest; where clock_mhz differs from the catalogue's, the rates
 *                     that are not given scale with it
 *   switches          ["plx0"]: nodes that are neither host nor device
 *   links             [{from, to, link, down_gbs, up_gbs, duplex_gbs, pageable_gbs,
 *                     latency_us, packet_bytes, packet_overhead_bytes, row_ns}]: a link class
 *                     ("gen4x16") fills in the rest, and figures given stay; from is the
 *                     node nearer to "host". up_gbs is by default down_gbs
 *   collective        {latency_us, ratio}
 *   families          {"ada": {memory_ratio, ...}}: changes of sim/data/families.json
 *   memory            {context_mib, collective_mib}, per device
 *   kernels           {"NVIDIA H200": {step_us, pace_inside_us, pace_behind_us, ahead_lag_us,
 *                     attention_alone, delta_net_alone, copy_us, ready_each_us, ready_next_us,
 *                     products: [{kind, type, group 256, tokens, launch_us, gbs, ahead_mib,
 *                     held_gbs}],
 *                     attention: [{cache, head_dim 128, heads 32, kv_heads, tokens, cells, us}],
 *                     other: [{kind, behind, head_dim, normed, tokens, bytes, us}],
 *                     sums: [{devices, bytes, us}]}}:
 *                     what was measured of our own runtime's kernels on a GPU, by the name that
 *                     devices have in gpu; kinds are those of tasks, docs/time-model.md, "Kernel
 *                     tables"
 *   fitted            {rows: [ids], constants: [{name, value, unit, uncertainty}]}: values of
 *                     machine_constants(), which go over the figures above
 *   variants          {"oc": {about, host, devices: {"CUDA0": {...}}, links: {"CUDA0": {...}}}}:
 *                     changes on request, which go over all else
 *
 * or changes another profile:
 *
 *   from              a built-in profile, or a file NAME.json beside this one
 *   devices_kept      ["CUDA1", "CUDA0"]: those stay, renamed CUDA0, CUDA1, ...
 *   links_changed     {"CUDA0": {"down_gbs": 24.61}}, by the names after devices_kept
 *
 * and then may change host, collective, families and memory, replace kernel tables as a whole,
 * and add fitted and variants.
 * A variant of the other profile is in force when it is asked for by name. Unknown keys
 * are refused everywhere. */
#include "sim/machine_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/word_list.h"

enum { PROFILE_VERSION = 1, PROFILE_DEPTH_MAX = 8 };

static const char *const whole_keys[] = {
    "lopside_machine", "name",       "about",    "sources", "host",    "devices", "switches",
    "links",           "collective", "families", "memory",  "kernels", "fitted",  "variants"};
static const char *const derived_keys[] = {
    "lopside_machine", "name",          "about",  "sources",    "from",
    "devices_kept",    "links_changed", "host",   "collective", "families",
    "memory",          "kernels",       "fitted", "variants"};

/* Calls a reader of part `key` if the profile has it. */
static int
read_part(struct machine_draft *draft, const struct json_cursor *profile, const char *key,
          int (*read)(struct machine_draft *, const struct json_cursor *, struct error *),
          struct error *err)
{
    struct json_cursor part;
    int found = json_input_find_object(profile, key, &part, err);

    return found == 1 ? read(draft, &part, err) : found;
}

static int read_host(struct machine_draft *draft, const struct json_cursor *host, struct error *err)
{
    return machine_read_host(draft, host, false, err);
}

static int change_host(struct machine_draft *draft, const struct json_cursor *host,
                       struct error *err)
{
    return machine_read_host(draft, host, true, err);
}

/* --- the head --- */

/* A list of strings, or an object of strings or lists of them. */
static int check_sources(const struct json_cursor *sources, int depth, struct error *err)
{
    const char *text, *key;
    json_t *value;

    if (json_is_object(sources->value) && depth == 0) {
        json_object_foreach(sources->value, key, value)
        {
            struct json_cursor member = json_input_member(sources, key);

            if (check_sources(&member, depth + 1, err) != 0)
                return -1;
        }
        return 0;
    }
    if (json_is_array(sources->value)) {
        for (size_t i = 0; i < json_array_size(sources->value); i++) {
            struct json_cursor element = json_input_element(sources, i);

            if (json_input_as_string(&element, "a source", &text, err) != 0)
                return -1;
        }
        return 0;
    }
    return json_input_as_string(sources, "a source", &text, err);
}

static int read_head(struct machine_draft *draft, const struct json_cursor *profile,
                     struct error *err)
{
    const struct json_integer_rule any = {"a version", INT64_MIN, INT64_MAX};
    struct json_cursor version_cursor, sources;
    struct machine *machine = draft->machine;
    bool derived;
    int64_t version;
    int found;

    if (json_input_integer(profile, "lopside_machine", &any, &version, err) != 0)
        return -1;
    version_cursor = json_input_member(profile, "lopside_machine");
    if (version != PROFILE_VERSION)
        return json_input_refuse(&version_cursor, err,
                                 "version %lld of the format is not known here; %d is",
                                 (long long)version, PROFILE_VERSION);
    derived = json_input_member(profile, "from").value != NULL;
    if (json_input_refuse_unknown_keys(profile, derived ? derived_keys : whole_keys,
                                       derived ? sizeof derived_keys / sizeof *derived_keys
                                               : sizeof whole_keys / sizeof *whole_keys,
                                       err) != 0)
        return -1;
    machine->about[0] = '\0';
    found = machine_read_text(profile, "name", "a name", machine->name, sizeof machine->name, err);
    if (found == 0) {
        const char *name;

        return json_input_string(profile, "name", "a name", &name, err);
    }
    if (found == 1 && machine->name[0] == '\0') {
        struct json_cursor name_cursor = json_input_member(profile, "name");

        return json_input_refuse(&name_cursor, err, "empty; a name belongs here");
    }
    if (found < 0 || machine_read_text(profile, "about", "a description", machine->about,
                                       sizeof machine->about, err) < 0)
        return -1;
    sources = json_input_member(profile, "sources");
    return sources.value != NULL ? check_sources(&sources, 0, err) : 0;
}

/* --- fitted constants --- */

static bool has_fitted_row(const struct machine *machine, const char *id)
{
    for (size_t i = 0; i < machine->fitted_row_count; i++)
        if (strcmp(machine->fitted_rows[i], id) == 0)
            return true;
    return false;
}

static int read_fitted_rows(struct machine *machine, const struct json_cursor *rows,
                            struct error *err)
{
    size_t count = json_array_size(rows->value), total = machine->fitted_row_count + count;
    char(*grown)[32] = realloc(machine->fitted_rows, (total + 1) * sizeof *grown);

    if (grown == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu row ids", total);
    machine->fitted_rows = grown;
    for (size_t i = 0; i < count; i++) {
        struct json_cursor element = json_input_element(rows, i);
        const char *id;

        if (json_input_as_string(&element, "a row's id", &id, err) != 0)
            return -1;
        if (id[0] == '\0' || strlen(id) >= sizeof *grown)
            return json_input_refuse(&element, err, "a row's id has 1 to %zu bytes, not %zu",
                                     sizeof *grown - 1, strlen(id));
        if (!has_fitted_row(machine, id))
            memcpy(grown[machine->fitted_row_count++], id, strlen(id) + 1);
    }
    return 0;
}

/* A figure of a link that was fitted is no default any more. */
static void mark_given(struct machine_draft *draft, const double *value)
{
    for (uint32_t i = 0; i < draft->machine->link_count; i++)
        for (size_t row = 0; row < machine_link_fields.count; row++)
            if (machine_field_at(&machine_link_fields.rows[row], &draft->machine->links[i]) ==
                value)
                draft->links_given[i] |= UINT32_C(1) << row;
}

static int find_constant(struct machine *machine, const struct json_cursor *cursor,
                         const char *name, struct machine_constant *constant, struct error *err)
{
    size_t count = machine_constants(machine, NULL, 0);
    struct machine_constant *constants = malloc(count * sizeof *constants);
    const char **names = malloc(count * sizeof *names), *closest;
    int result = -1;

    if (constants == NULL || names == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for %zu constants", count);
        goto free_lists;
    }
    machine_constants(machine, constants, count);
    for (size_t i = 0; i < count && result != 0; i++) {
        names[i] = constants[i].name;
        if (strcmp(constants[i].name, name) == 0) {
            *constant = constants[i];
            result = 0;
        }
    }
    if (result == 0)
        goto free_lists;
    closest = word_list_closest(name, names, count);
    if (closest != NULL)
        json_input_refuse(cursor, err,
                          "\"%.60s\" is no constant of this machine; did you mean "
                          "\"%s\"?",
                          name, closest);
    else
        json_input_refuse(cursor, err,
                          "\"%.60s\" is no constant of this machine; one such as "
                          "\"%s\" is",
                          name, names[0]);

free_lists:
    free(names);
    free(constants);
    return result;
}

static int read_constant(struct machine_draft *draft, const struct json_cursor *cursor,
                         struct error *err)
{
    const struct json_number_rule spread = {"an uncertainty", 0, INFINITY, false, false};
    struct json_cursor name_cursor = json_input_member(cursor, "name");
    struct json_cursor unit_cursor = json_input_member(cursor, "unit");
    struct machine_constant constant;
    struct json_number_rule rule;
    const char *name, *unit;
    double value, uncertainty;

    if (json_input_as_object(cursor, err) != 0 ||
        json_input_refuse_unknown_keys(
            cursor, MACHINE_KEYS("name", "value", "unit", "uncertainty", "about"), err) != 0 ||
        json_input_string(cursor, "name", "a constant's name", &name, err) != 0 ||
        find_constant(draft->machine, &name_cursor, name, &constant, err) != 0)
        return -1;
    rule = (struct json_number_rule){"a value of this constant", constant.min, constant.max, false,
                                     false};
    if (json_input_number(cursor, "value", &rule, &value, err) != 0 ||
        json_input_string(cursor, "unit", "a unit", &unit, err) != 0 ||
        json_input_find_number(cursor, "uncertainty", &spread, &uncertainty, err) < 0)
        return -1;
    if (strcmp(unit, constant.unit) != 0)
        return json_input_refuse(&unit_cursor, err, "\"%.40s\" is not the unit of %s; \"%s\" is",
                                 unit, constant.name, constant.unit);
    *constant.value = value * constant.scale;
    mark_given(draft, constant.value);
    machine_draft_complete_links(draft);
    return 0;
}

static int read_fitted(struct machine_draft *draft, const struct json_cursor *fitted,
                       struct error *err)
{
    struct json_cursor rows, constants;
    int found;

    if (json_input_refuse_unknown_keys(fitted, MACHINE_KEYS("about", "rows", "constants"), err) !=
        0)
        return -1;
    found = json_input_find_array(fitted, "rows", &rows, err);
    if (found < 0 || (found == 1 && read_fitted_rows(draft->machine, &rows, err) != 0))
        return -1;
    found = json_input_find_array(fitted, "constants", &constants, err);
    for (size_t i = 0; found == 1 && i < json_array_size(constants.value); i++) {
        struct json_cursor element = json_input_element(&constants, i);

        if (read_constant(draft, &element, err) != 0)
            return -1;
    }
    return found < 0 ? -1 : 0;
}

/* --- variants --- */

static int apply_variant(struct machine_draft *draft, const struct json_cursor *variant,
                         struct error *err)
{
    if (json_input_as_object(variant, err) != 0 ||
        json_input_refuse_unknown_keys(variant, MACHINE_KEYS("about", "host", "devices", "links"),
                                       err) != 0 ||
        read_part(draft, variant, "host", change_host, err) < 0 ||
        read_part(draft, variant, "devices", machine_change_devices, err) < 0 ||
        read_part(draft, variant, "links", machine_change_links, err) < 0)
        return -1;
    return 0;
}

/* Applies a variant to a copy, so that a wrong one is refused even when not asked for. */
static int check_variant(const struct machine_draft *draft, const struct json_cursor *variant,
                         struct error *err)
{
    struct machine_draft copy = *draft;
    int result;

    copy.machine = malloc(sizeof *copy.machine);
    if (copy.machine == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a machine");
    *copy.machine = *draft->machine;
    result = apply_variant(&copy, variant, err);
    free(copy.machine);
    return result;
}

/* Adds a name to those that the machine offers, once. */
static int add_variant(struct machine *machine, const struct json_cursor *cursor, const char *name,
                       struct error *err)
{
    if (name[0] == '\0' || strcmp(name, "stock") == 0 || strlen(name) >= sizeof *machine->variants)
        return json_input_refuse(cursor, err,
                                 "\"%.40s\" cannot name a variant; 1 to %zu bytes other than "
                                 "\"stock\" can",
                                 name, sizeof *machine->variants - 1);
    for (uint32_t i = 0; i < machine->variant_count; i++)
        if (strcmp(machine->variants[i], name) == 0)
            return 0;
    if (machine->variant_count == MACHINE_VARIANTS_MAX)
        return json_input_refuse(cursor, err, "one variant too many; %d are the limit",
                                 MACHINE_VARIANTS_MAX);
    memcpy(machine->variants[machine->variant_count++], name, strlen(name) + 1);
    return 0;
}

static int read_variants(struct machine_draft *draft, const struct json_cursor *profile,
                         const char *wanted, struct error *err)
{
    struct json_cursor variants;
    int found = json_input_find_object(profile, "variants", &variants, err);
    const char *name;
    json_t *value;

    if (found != 1)
        return found;
    json_object_foreach(variants.value, name, value)
    {
        struct json_cursor variant = json_input_member(&variants, name);

        if (add_variant(draft->machine, &variant, name, err) != 0 ||
            check_variant(draft, &variant, err) != 0)
            return -1;
    }
    if (wanted == NULL || json_object_get(variants.value, wanted) == NULL)
        return 0;
    variants = json_input_member(&variants, wanted);
    if (apply_variant(draft, &variants, err) != 0)
        return -1;
    snprintf(draft->machine->variant, sizeof draft->machine->variant, "%s", wanted);
    draft->variant_found = true;
    return 0;
}

/* --- a profile from another --- */

/* The document that "from" names: built in, or a file beside the profile. */
static struct json_input *load_base(const struct json_cursor *cursor, const char *name,
                                    struct error *err)
{
    const char *source = cursor->input->source, *slash = strrchr(source, '/');
    size_t size, length = strlen(name);
    const char *text = machine_builtin_text(name, &size);
    struct json_input *input;
    struct error unread = {0};
    char path[400];

    if (text != NULL)
        return json_input_load_text(text, size, name, err);
    if (length < 6 || strcmp(name + length - 5, ".json") != 0) {
        json_input_refuse(cursor, err,
                          "\"%.60s\" is no built-in profile; one of those or a file name ending "
                          "in .json is needed",
                          name);
        return NULL;
    }
    snprintf(path, sizeof path, "%.*s%s",
             slash != NULL && name[0] != '/' ? (int)(slash - source) + 1 : 0, source, name);
    input = json_input_load_file(path, &unread);
    if (input == NULL && unread.code == ERROR_IO)
        json_input_refuse(cursor, err, "\"%.120s\" %s", name, unread.text);
    else if (input == NULL && err != NULL && err->code == ERROR_NONE)
        *err = unread;
    return input;
}

static int keep_devices(struct machine_draft *draft, const struct json_cursor *profile,
                        struct error *err)
{
    uint32_t order[MACHINE_DEVICES_MAX], origin[MACHINE_LINKS_MAX];
    struct machine *machine = draft->machine;
    const char *names[MACHINE_DEVICES_MAX];
    struct json_cursor kept;
    int found = json_input_find_array(profile, "devices_kept", &kept, err);
    size_t count = found == 1 ? json_array_size(kept.value) : 0;

    if (found != 1)
        return found;
    if (count == 0 || count > machine->device_count)
        return json_input_refuse(&kept, err, "%zu devices cannot stay of %u", count,
                                 machine->device_count);
    for (uint32_t i = 0; i < machine->device_count; i++)
        names[i] = machine->devices[i].name;
    for (size_t i = 0; i < count; i++) {
        struct json_cursor element = json_input_element(&kept, i);
        size_t index;

        if (json_input_as_word(&element, "a device of the other profile", names,
                               machine->device_count, &index, err) != 0)
            return -1;
        for (size_t k = 0; k < i; k++)
            if (order[k] == index)
                return json_input_refuse(&element, err, "\"%s\" is kept already", names[index]);
        order[i] = (uint32_t)index;
    }
    if (machine_keep(machine, order, count, origin, err) != 0)
        return -1;
    for (uint32_t i = 0; i < machine->link_count; i++)
        draft->links_given[i] = draft->links_given[origin[i]];
    return 0;
}

static int read_base(struct machine_draft *draft, const struct json_cursor *profile,
                     const char *variant, int depth, struct error *err)
{
    struct json_cursor from = json_input_member(profile, "from"), root;
    struct json_input *input;
    const char *name;
    int result;

    if (json_input_string(profile, "from", "a profile", &name, err) != 0)
        return -1;
    if (depth == PROFILE_DEPTH_MAX)
        return json_input_refuse(&from, err,
                                 "the %dth profile in a row that comes from another; one that "
                                 "comes from itself has no end",
                                 depth + 1);
    input = load_base(&from, name, err);
    if (input == NULL)
        return -1;
    root = json_input_root(input);
    result = machine_profile_read(draft, &root, variant, depth + 1, err);
    json_input_free(input);
    if (result != 0)
        return -1;
    if (keep_devices(draft, profile, err) < 0 ||
        read_part(draft, profile, "host", change_host, err) < 0 ||
        read_part(draft, profile, "links_changed", machine_change_links, err) < 0)
        return -1;
    return 0;
}

/* --- a whole profile --- */

static int read_topology(struct machine_draft *draft, const struct json_cursor *profile,
                         struct error *err)
{
    struct json_cursor host, devices, switches, links;
    int found;

    if (json_input_object(profile, "host", &host, err) != 0 || read_host(draft, &host, err) != 0 ||
        json_input_array(profile, "devices", &devices, err) != 0 ||
        machine_read_devices(draft, &devices, err) != 0)
        return -1;
    found = json_input_find_array(profile, "switches", &switches, err);
    if (found < 0 || (found == 1 && machine_read_switches(draft, &switches, err) != 0) ||
        json_input_array(profile, "links", &links, err) != 0)
        return -1;
    return machine_read_links(draft, &links, err);
}

int machine_profile_read(struct machine_draft *draft, const struct json_cursor *profile,
                         const char *variant, int depth, struct error *err)
{
    bool derived;

    if (json_input_as_object(profile, err) != 0)
        return -1;
    derived = json_input_member(profile, "from").value != NULL;
    /* a wrong head is reported before a wrong base; the head then replaces the base's */
    if (derived && (read_head(draft, profile, err) != 0 ||
                    read_base(draft, profile, variant, depth, err) != 0))
        return -1;
    if (read_head(draft, profile, err) != 0 ||
        (!derived && read_topology(draft, profile, err) != 0) ||
        read_part(draft, profile, "collective", machine_read_collective, err) < 0 ||
        read_part(draft, profile, "families", machine_read_families, err) < 0 ||
        read_part(draft, profile, "memory", machine_read_memory, err) < 0 ||
        read_part(draft, profile, "kernels", machine_read_kernels, err) < 0 ||
        read_part(draft, profile, "fitted", read_fitted, err) < 0 ||
        read_variants(draft, profile, variant, err) < 0)
        return -1;
    return 0;
}
