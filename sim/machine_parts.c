/* The parts of a machine profile: host, devices, switches, links, families.
 * machine_profile.c puts them together and describes the format. */
#include "sim/machine_private.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/word_list.h"

/* Host figures of a profile that gives none: microseconds of llama.cpp's host thread.
 * split is measured (pull request "llama-bench placement flags, two host-KV fixes, and
 * H1/H2/H3/H5/H13 measured"), launch is the kernel launch of aiconfigurator's system
 * files; the others are start values. */
static const struct machine_host host_defaults = {
    .threads = 8,
    .thread_flops = 5.5e9,
    .launch_s = 3e-6,
    .copy_s = 8e-6,
    .sync_s = 5e-6,
    .split_s = 11.6e-6,
    .build_s = 1500e-6,
    .sample_s = 1.8e-9,
    .rope_s = 0.4e-9,
    .reserve_s = 10000e-6,
    .collective_issue_s = 8e-6,
};
static const double host_thread_gbs = 16; /* of one thread, where memory reaches it */

/* A device figure has to be there unless the catalogue has it. */
enum { CAPABILITY_MAX = 999 };

int machine_read_text(const struct json_cursor *object, const char *key, const char *noun,
                      char *text, size_t size, struct error *err)
{
    struct json_cursor member;
    const char *value;
    int found = json_input_find_string(object, key, noun, &value, err);

    if (found != 1)
        return found;
    if (strlen(value) >= size) {
        member = json_input_member(object, key);
        return json_input_refuse(&member, err, "%zu bytes are too long; %s has at most %zu",
                                 strlen(value), noun, size - 1);
    }
    snprintf(text, size, "%s", value);
    return 1;
}

/* --- host, collective, memory, families --- */

int machine_read_host(struct machine_draft *draft, const struct json_cursor *host, bool partial,
                      struct error *err)
{
    const struct json_integer_rule thread_rule = {"a number of threads", 1, 4096};
    const uint32_t memory_bit = UINT32_C(1)
                                << machine_field_index(machine_host_fields, "memory_gbs");
    const uint32_t thread_bit = UINT32_C(1)
                                << machine_field_index(machine_host_fields, "thread_gbs");
    struct machine_host *record = &draft->machine->host;
    int64_t threads;
    uint32_t given = 0;
    int found;

    if (!partial)
        *record = host_defaults;
    threads = record->threads;
    if (machine_fields_refuse_unknown(host, machine_host_fields,
                                      MACHINE_KEYS("cpu", "threads", "basis"), err) != 0 ||
        machine_read_text(host, "cpu", "a name", record->cpu, sizeof record->cpu, err) < 0 ||
        machine_fields_read(host, machine_host_fields, record, &given, err) != 0)
        return -1;
    found = json_input_find_integer(host, "threads", &thread_rule, &threads, err);
    if (found < 0)
        return -1;
    record->threads = (uint32_t)threads;
    if (partial)
        return 0;
    if (!(given & memory_bit))
        return machine_fields_require(host, machine_host_fields, ~memory_bit, err);
    if (!(given & thread_bit))
        record->thread_gbs = fmin(host_thread_gbs, record->memory_gbs);
    return 0;
}

int machine_read_collective(struct machine_draft *draft, const struct json_cursor *collective,
                            struct error *err)
{
    uint32_t given = 0;

    if (machine_fields_refuse_unknown(collective, machine_collective_fields, MACHINE_KEYS("basis"),
                                      err) != 0)
        return -1;
    return machine_fields_read(collective, machine_collective_fields, &draft->machine->collective,
                               &given, err);
}

int machine_read_memory(struct machine_draft *draft, const struct json_cursor *memory,
                        struct error *err)
{
    const struct json_number_rule rule = {"a size in MiB", 0, 1 << 20, false, false};
    struct machine *machine = draft->machine;
    double context_mib = (double)machine->context_bytes / (double)MACHINE_MIB_BYTES;
    double collective_mib = (double)machine->collective_bytes / (double)MACHINE_MIB_BYTES;

    if (json_input_refuse_unknown_keys(
            memory, MACHINE_KEYS("context_mib", "collective_mib", "basis"), err) != 0 ||
        json_input_find_number(memory, "context_mib", &rule, &context_mib, err) < 0 ||
        json_input_find_number(memory, "collective_mib", &rule, &collective_mib, err) < 0)
        return -1;
    machine->context_bytes = (uint64_t)(context_mib * (double)MACHINE_MIB_BYTES + 0.5);
    machine->collective_bytes = (uint64_t)(collective_mib * (double)MACHINE_MIB_BYTES + 0.5);
    return 0;
}

/* Index of a name among the machine's families; -1 with `err` set, at `cursor`. */
static int find_family(const struct machine *machine, const struct json_cursor *cursor,
                       const char *name, struct error *err)
{
    const char *names[MACHINE_FAMILIES_MAX], *closest;
    char list[200];

    for (uint32_t i = 0; i < machine->family_count; i++) {
        names[i] = machine->families[i].name;
        if (strcmp(names[i], name) == 0)
            return (int)i;
    }
    closest = word_list_closest(name, names, machine->family_count);
    word_list_text(names, machine->family_count, list, sizeof list);
    if (closest != NULL)
        return json_input_refuse(cursor, err, "\"%s\" is no family; did you mean \"%s\"? known: %s",
                                 name, closest, list);
    return json_input_refuse(cursor, err, "\"%s\" is no family; known: %s", name, list);
}

int machine_read_families(struct machine_draft *draft, const struct json_cursor *families,
                          struct error *err)
{
    struct machine *machine = draft->machine;
    const char *name;
    json_t *value;

    json_object_foreach(families->value, name, value)
    {
        struct json_cursor member = json_input_member(families, name);
        int family = find_family(machine, &member, name, err);
        uint32_t given = 0;

        if (family < 0 || json_input_as_object(&member, err) != 0 ||
            machine_fields_refuse_unknown(&member, machine_family_fields, MACHINE_KEYS("basis"),
                                          err) != 0 ||
            machine_fields_read(&member, machine_family_fields, &machine->families[family], &given,
                                err) != 0)
            return -1;
    }
    return 0;
}

/* --- devices --- */

/* Rates follow the clock unless they were given with it. */
static void scale_rates(struct machine_device *device, double former_clock_ghz, uint32_t given)
{
    static const char *const rates[] = {"fp32_tflops", "fp16_tflops", "int8_tops"};

    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        size_t row = machine_field_index(machine_device_fields, rates[i]);

        if (!(given & UINT32_C(1) << row))
            *machine_field_at(&machine_device_fields.rows[row], device) *=
                device->clock_ghz / former_clock_ghz;
    }
}

/* Generations of NVIDIA by compute capability; NULL for others. */
static const char *family_of_capability(int capability)
{
    static const struct {
        int from;
        const char *family;
    } generations[] = {{100, "blackwell"}, {90, "hopper"}, {89, "ada"},   {80, "ampere"},
                       {75, "turing"},     {70, "volta"},  {60, "pascal"}};

    for (size_t i = 0; i < sizeof generations / sizeof generations[0]; i++)
        if (capability >= generations[i].from)
            return generations[i].family;
    return NULL;
}

/* "8.9" is 89. */
static int read_capability(const struct json_cursor *cursor, int *capability, struct error *err)
{
    int major = 0, minor = 0, length = 0;
    const char *text;
    int found = json_input_find_string(cursor, "compute_capability", "a version", &text, err);
    struct json_cursor member;

    if (found != 1)
        return found;
    if (!isdigit((unsigned char)text[0]) ||
        sscanf(text, "%2d.%1d%n", &major, &minor, &length) != 2 || text[length] != '\0' ||
        major < 1 || major * 10 + minor > CAPABILITY_MAX) {
        member = json_input_member(cursor, "compute_capability");
        return json_input_refuse(&member, err,
                                 "\"%.20s\" is not a compute capability; a version such as "
                                 "\"8.9\" is (leave it out for other vendors)",
                                 text);
    }
    *capability = major * 10 + minor;
    return 1;
}

/* Family: as given, or the generation of the compute capability, or the catalogue's. */
static int read_family(const struct machine *machine, const struct json_cursor *cursor,
                       struct machine_device *device, bool known, struct error *err)
{
    const char *name;
    struct json_cursor member = json_input_member(cursor, "family");
    int found = json_input_find_string(cursor, "family", "a family", &name, err);
    int family;

    if (found < 0)
        return -1;
    if (found == 0 && known)
        return 0;
    if (found == 0)
        name = family_of_capability(device->compute_capability);
    if (name == NULL)
        return json_input_string(cursor, "family", "a family", &name, err);
    family = find_family(machine, &member, name, err);
    if (family < 0)
        return -1;
    device->family = (uint32_t)family;
    return 0;
}

/* A size in MiB, if it is there. */
static int find_mib(const struct json_cursor *cursor, const char *key, int64_t least,
                    uint64_t *bytes, struct error *err)
{
    const struct json_integer_rule rule = {"a size in MiB", least, 1 << 24};
    int64_t mib = 0;
    int found = json_input_find_integer(cursor, key, &rule, &mib, err);

    if (found == 1)
        *bytes = (uint64_t)mib * MACHINE_MIB_BYTES;
    return found;
}

/* Memory, multiprocessors, rates: changes what is there. `required`: all must be. */
static int read_device_figures(const struct json_cursor *cursor, struct machine_device *device,
                               bool required, struct error *err)
{
    const struct json_integer_rule memory_rule = {"a size in MiB", 1, 1 << 24};
    const struct json_integer_rule count_rule = {"a number of multiprocessors", 1, 4096};
    double former_clock_ghz = device->clock_ghz;
    int64_t mib, multiprocessors = device->sm_count;
    uint32_t given = 0;

    if (required &&
        (json_input_integer(cursor, "memory_mib", &memory_rule, &mib, err) != 0 ||
         json_input_integer(cursor, "sm_count", &count_rule, &multiprocessors, err) != 0))
        return -1;
    if (find_mib(cursor, "memory_mib", 1, &device->memory_bytes, err) < 0 ||
        find_mib(cursor, "other_mib", 0, &device->other_bytes, err) < 0 ||
        find_mib(cursor, "l2_mib", 0, &device->l2_bytes, err) < 0 ||
        json_input_find_integer(cursor, "sm_count", &count_rule, &multiprocessors, err) < 0 ||
        machine_fields_read(cursor, machine_device_fields, device, &given, err) != 0)
        return -1;
    device->sm_count = (uint32_t)multiprocessors;
    if (required)
        return machine_fields_require(cursor, machine_device_fields, given, err);
    scale_rates(device, former_clock_ghz, given);
    return 0;
}

/* The catalogue's figures when "gpu" names one of its cards; any other text is a mere
 * name, and the profile has to give the figures. `*known` says which. */
static int read_gpu(const struct machine_draft *draft, const struct json_cursor *cursor,
                    struct machine_device *device, bool *known, struct error *err)
{
    char typed[sizeof device->gpu], why[300], name[sizeof device->name];
    struct json_cursor member = json_input_member(cursor, "gpu");
    int found = machine_read_text(cursor, "gpu", "a GPU's name", typed, sizeof typed, err);
    int gpu;

    *known = false;
    if (found < 1)
        return found;
    gpu = machine_catalogue_find_gpu(draft->catalogue, typed, why, sizeof why);
    if (gpu < 0 && json_input_member(cursor, "memory_mib").value == NULL)
        return json_input_refuse(&member, err, "\"%s\" %s", typed, why);
    if (gpu < 0) {
        memcpy(device->gpu, typed, sizeof typed);
        return 0;
    }
    memcpy(name, device->name, sizeof name);
    *device = draft->catalogue->gpus[gpu].device;
    memcpy(device->name, name, sizeof name);
    *known = true;
    return 0;
}

/* A new node of a name that is no node's yet. -1 with `err` set, at `cursor`. */
static int add_node(struct machine *machine, const struct json_cursor *cursor, const char *name,
                    enum machine_node_kind kind, struct error *err)
{
    struct machine_node *node = &machine->nodes[machine->node_count];

    if (name[0] == '\0' || name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                             "0123456789_")] != '\0')
        return json_input_refuse(cursor, err,
                                 "\"%s\" cannot name a node; letters, digits and _ can", name);
    for (uint32_t i = 0; i < machine->node_count; i++)
        if (strcmp(machine->nodes[i].name, name) == 0)
            return json_input_refuse(cursor, err, "\"%s\" is taken; each node has its own name",
                                     name);
    if (machine->node_count == MACHINE_NODES_MAX)
        return json_input_refuse(cursor, err, "one node too many; %d are the limit",
                                 MACHINE_NODES_MAX);
    snprintf(node->name, sizeof node->name, "%s", name);
    node->kind = kind;
    node->device = machine->device_count;
    machine->node_count++;
    return 0;
}

static int read_device(struct machine_draft *draft, const struct json_cursor *cursor,
                       struct error *err)
{
    struct machine *machine = draft->machine;
    struct machine_device *device = &machine->devices[machine->device_count];
    struct json_cursor name = json_input_member(cursor, "name");
    int found, capability;
    const char *text;
    bool known;

    if (json_input_as_object(cursor, err) != 0 ||
        machine_fields_refuse_unknown(cursor, machine_device_fields,
                                      MACHINE_KEYS("name", "gpu", "family", "compute_capability",
                                                   "memory_mib", "other_mib", "l2_mib", "sm_count",
                                                   "int8_tensor_cores", "fp16_tensor_cores"),
                                      err) != 0 ||
        json_input_string(cursor, "name", "a device's name", &text, err) != 0 ||
        machine_read_text(cursor, "name", "a device's name", device->name, sizeof device->name,
                          err) < 0 ||
        add_node(machine, &name, device->name, MACHINE_NODE_DEVICE, err) != 0 ||
        read_gpu(draft, cursor, device, &known, err) != 0)
        return -1;
    device->node = machine->node_count - 1;
    capability = device->compute_capability;
    found = read_capability(cursor, &capability, err);
    if (found < 0)
        return -1;
    device->compute_capability = capability;
    if (!known || found == 1) {
        device->has_int8_tensor_cores = capability == 0 || capability >= 72;
        device->has_fp16_tensor_cores = capability == 0 || capability >= 70;
    }
    if (read_family(machine, cursor, device, known && found == 0, err) != 0 ||
        read_device_figures(cursor, device, !known, err) != 0 ||
        json_input_find_bool(cursor, "int8_tensor_cores", &device->has_int8_tensor_cores, err) <
            0 ||
        json_input_find_bool(cursor, "fp16_tensor_cores", &device->has_fp16_tensor_cores, err) < 0)
        return -1;
    machine->device_count++;
    return 0;
}

int machine_read_devices(struct machine_draft *draft, const struct json_cursor *devices,
                         struct error *err)
{
    size_t count = json_array_size(devices->value);

    if (count == 0 || count > MACHINE_DEVICES_MAX)
        return json_input_refuse(devices, err, "%zu devices are not a machine; 1 to %d are", count,
                                 MACHINE_DEVICES_MAX);
    for (size_t i = 0; i < count; i++) {
        struct json_cursor device = json_input_element(devices, i);

        if (read_device(draft, &device, err) != 0)
            return -1;
    }
    return 0;
}

int machine_read_switches(struct machine_draft *draft, const struct json_cursor *switches,
                          struct error *err)
{
    for (size_t i = 0; i < json_array_size(switches->value); i++) {
        struct json_cursor element = json_input_element(switches, i);
        const char *name;

        if (json_input_as_string(&element, "a switch's name", &name, err) != 0)
            return -1;
        if (strlen(name) >= sizeof draft->machine->nodes[0].name)
            return json_input_refuse(&element, err,
                                     "%zu bytes are too long; a name has at most "
                                     "%zu",
                                     strlen(name), sizeof draft->machine->nodes[0].name - 1);
        if (add_node(draft->machine, &element, name, MACHINE_NODE_SWITCH, err) != 0)
            return -1;
    }
    return 0;
}

int machine_change_devices(struct machine_draft *draft, const struct json_cursor *devices,
                           struct error *err)
{
    struct machine *machine = draft->machine;
    const char *names[MACHINE_DEVICES_MAX], *name;
    char list[200];
    json_t *value;

    for (uint32_t i = 0; i < machine->device_count; i++)
        names[i] = machine->devices[i].name;
    word_list_text(names, machine->device_count, list, sizeof list);
    json_object_foreach(devices->value, name, value)
    {
        struct json_cursor member = json_input_member(devices, name);
        int device = machine_find_device(machine, name);

        if (device < 0)
            return json_input_refuse(&member, err, "is no device of this machine; known: %s", list);
        if (json_input_as_object(&member, err) != 0 ||
            machine_fields_refuse_unknown(
                &member, machine_device_fields,
                MACHINE_KEYS("memory_mib", "other_mib", "l2_mib", "sm_count"), err) != 0 ||
            read_device_figures(&member, &machine->devices[device], false, err) != 0)
            return -1;
    }
    return 0;
}
