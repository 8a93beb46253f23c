/* The links of a machine: reading them, filling in what a profile leaves out, and
 * finding the way from node to node. */
#include "sim/machine_private.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/word_list.h"

/* Both directions together move this many times what the slower one moves alone, and no
 * less than the faster one. Measured: 1.6 on an H200 (50 and 55 GB/s alone, 40 + 40
 * together), 1.8 on RTX 5090s (sim/data/links.json, "duplex"); the low end. */
#define DUPLEX_RATIO 1.6

/* Pageable copies on a link of no class: half of pinned ones, as on PCIe 4.0 x16
 * (12.6 of 24.6 GB/s, sim/data/links.json). */
#define PAGEABLE_RATIO 0.5

/* A copy on a link of no class: as the classes of sim/data/links.json. */
#define LATENCY_S 1e-6

enum link_field { DOWN, UP, DUPLEX, PAGEABLE, LATENCY, PACKET, OVERHEAD, ROW, LINK_FIELDS };

static const char *const link_keys[LINK_FIELDS] = {
    [DOWN] = "down_gbs",
    [UP] = "up_gbs",
    [DUPLEX] = "duplex_gbs",
    [PAGEABLE] = "pageable_gbs",
    [LATENCY] = "latency_us",
    [PACKET] = "packet_bytes",
    [OVERHEAD] = "packet_overhead_bytes",
    [ROW] = "row_ns",
};

static bool is_given(uint32_t given, enum link_field field)
{
    return given >> machine_field_index(machine_link_fields, link_keys[field]) & 1;
}

double machine_duplex_gbs(double down_gbs, double up_gbs)
{
    return fmax(DUPLEX_RATIO * fmin(down_gbs, up_gbs), fmax(down_gbs, up_gbs));
}

static const struct machine_link *class_of(const struct machine_catalogue *catalogue,
                                           const struct machine_link *link)
{
    for (size_t i = 0; i < catalogue->link_count; i++)
        if (link->class_name[0] != '\0' &&
            strcmp(catalogue->links[i].link.class_name, link->class_name) == 0)
            return &catalogue->links[i].link;
    return NULL;
}

static void complete_link(const struct machine_catalogue *catalogue, struct machine_link *link,
                          uint32_t given)
{
    const struct machine_link *class = class_of(catalogue, link);
    bool as_class = class != NULL && !is_given(given, DOWN) && !is_given(given, UP);

    if (class != NULL && !is_given(given, DOWN))
        link->down_gbs = class->down_gbs;
    if (!is_given(given, UP))
        link->up_gbs = link->down_gbs;
    if (!is_given(given, DUPLEX))
        link->duplex_gbs =
            as_class ? class->duplex_gbs : machine_duplex_gbs(link->down_gbs, link->up_gbs);
    if (!is_given(given, PAGEABLE))
        link->pageable_gbs = class != NULL ? fmin(class->pageable_gbs, link->down_gbs)
                                           : PAGEABLE_RATIO * link->down_gbs;
    if (!is_given(given, LATENCY))
        link->latency_s = class != NULL ? class->latency_s : LATENCY_S;
    if (!is_given(given, PACKET))
        link->packet_bytes = catalogue->packet.packet_bytes;
    if (!is_given(given, OVERHEAD))
        link->packet_overhead_bytes = catalogue->packet.packet_overhead_bytes;
    if (!is_given(given, ROW))
        link->row_s = catalogue->packet.row_s;
}

void machine_draft_complete_links(struct machine_draft *draft)
{
    struct machine *machine = draft->machine;

    for (uint32_t i = 0; i < machine->link_count; i++)
        complete_link(draft->catalogue, &machine->links[i], draft->links_given[i]);
}

/* --- reading --- */

static int read_node(const struct machine *machine, const struct json_cursor *link, const char *key,
                     uint32_t *node, struct error *err)
{
    const char *names[MACHINE_NODES_MAX];
    size_t index;

    for (uint32_t i = 0; i < machine->node_count; i++)
        names[i] = machine->nodes[i].name;
    if (json_input_word(link, key, "a node", names, machine->node_count, &index, err) != 0)
        return -1;
    *node = (uint32_t)index;
    return 0;
}

/* The class, if any, then the figures that differ from it. */
static int read_link_figures(struct machine_draft *draft, const struct json_cursor *cursor,
                             struct machine_link *link, uint32_t *given, struct error *err)
{
    struct json_cursor member = json_input_member(cursor, "link");
    const struct machine_catalogue *catalogue = draft->catalogue;
    const char *name;
    char why[300];
    int found = json_input_find_string(cursor, "link", "a link class", &name, err);
    int class;

    if (found < 0)
        return -1;
    if (found == 1) {
        class = machine_catalogue_find_link(catalogue, name, why, sizeof why);
        if (class < 0)
            return json_input_refuse(&member, err, "\"%.40s\" %s", name, why);
        memcpy(link->class_name, catalogue->links[class].link.class_name, sizeof link->class_name);
        *given = 0;
    }
    if (machine_fields_read(cursor, machine_link_fields, link, given, err) != 0)
        return -1;
    if (link->class_name[0] == '\0' && !is_given(*given, DOWN))
        return json_input_refuse(cursor, err,
                                 "neither \"link\" nor \"down_gbs\"; a class such as \"gen4x16\" "
                                 "or a bandwidth belongs here");
    complete_link(catalogue, link, *given);
    if (link->duplex_gbs < fmax(link->down_gbs, link->up_gbs)) {
        member = json_input_member(cursor, "duplex_gbs");
        return json_input_refuse(member.value != NULL ? &member : cursor, err,
                                 "both directions together move %g GB/s, less than one alone "
                                 "(%g); at least that is needed",
                                 link->duplex_gbs, fmax(link->down_gbs, link->up_gbs));
    }
    return 0;
}

static int read_link(struct machine_draft *draft, const struct json_cursor *cursor,
                     struct error *err)
{
    struct machine *machine = draft->machine;
    struct machine_link *link = &machine->links[machine->link_count];
    struct json_cursor to = json_input_member(cursor, "to");

    if (json_input_as_object(cursor, err) != 0 ||
        machine_fields_refuse_unknown(cursor, machine_link_fields,
                                      MACHINE_KEYS("from", "to", "link"), err) != 0 ||
        read_node(machine, cursor, "from", &link->from, err) != 0 ||
        read_node(machine, cursor, "to", &link->to, err) != 0)
        return -1;
    if (link->from == link->to)
        return json_input_refuse(&to, err, "a link joins two nodes, and \"%s\" is where it starts",
                                 machine->nodes[link->to].name);
    for (uint32_t i = 0; i < machine->link_count; i++) {
        const struct machine_link *other = &machine->links[i];

        if ((other->from == link->from && other->to == link->to) ||
            (other->from == link->to && other->to == link->from))
            return json_input_refuse(cursor, err, "links[%u] joins \"%s\" and \"%s\" already", i,
                                     machine->nodes[link->from].name,
                                     machine->nodes[link->to].name);
    }
    if (read_link_figures(draft, cursor, link, &draft->links_given[machine->link_count], err) != 0)
        return -1;
    machine->link_count++;
    return 0;
}

/* Whether the way from the host to the link's own start leads through it. */
static bool points_to_host(const struct machine *machine, uint32_t link)
{
    uint32_t links[MACHINE_NODES_MAX];
    bool down[MACHINE_NODES_MAX];
    int count = machine_route(machine, 0, machine->links[link].from, links, down);

    return count > 0 && links[count - 1] == link;
}

/* Every node of a link has a way to the host, and links on such a way lead from it. */
static int check_ways(const struct machine *machine, const struct json_cursor *links,
                      struct error *err)
{
    for (uint32_t i = 0; i < machine->device_count; i++)
        if (machine_distance(machine, machine->devices[i].node) < 0)
            return json_input_refuse(links, err,
                                     "no way from \"host\" to \"%s\"; a link {\"from\": \"host\", "
                                     "\"to\": \"%s\", ...} or one behind a switch is needed",
                                     machine->devices[i].name, machine->devices[i].name);
    for (uint32_t i = 0; i < machine->link_count; i++) {
        const struct machine_link *link = &machine->links[i];
        const char *from = machine->nodes[link->from].name, *to = machine->nodes[link->to].name;
        struct json_cursor element = json_input_element(links, i);

        if (machine_distance(machine, link->from) < 0)
            return json_input_refuse(&element, err, "no way from \"host\" to \"%s\"", from);
        if (link->to == 0 || points_to_host(machine, i))
            return json_input_refuse(&element, err,
                                     "points towards the host; from \"%s\" to \"%s\" is how it is "
                                     "written",
                                     to, from);
    }
    return 0;
}

int machine_read_links(struct machine_draft *draft, const struct json_cursor *links,
                       struct error *err)
{
    size_t count = json_array_size(links->value);

    if (count > MACHINE_LINKS_MAX)
        return json_input_refuse(links, err, "%zu links are too many; %d are the limit", count,
                                 MACHINE_LINKS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct json_cursor link = json_input_element(links, i);

        if (read_link(draft, &link, err) != 0)
            return -1;
    }
    return check_ways(draft->machine, links, err);
}

int machine_change_links(struct machine_draft *draft, const struct json_cursor *links,
                         struct error *err)
{
    struct machine *machine = draft->machine;
    char labels[MACHINE_LINKS_MAX][32], list[260];
    const char *names[MACHINE_LINKS_MAX], *name;
    json_t *value;

    for (uint32_t i = 0; i < machine->link_count; i++) {
        machine_link_label(machine, i, labels[i], sizeof labels[i]);
        names[i] = labels[i];
    }
    word_list_text(names, machine->link_count, list, sizeof list);
    json_object_foreach(links->value, name, value)
    {
        struct json_cursor member = json_input_member(links, name);
        uint32_t i = 0;

        while (i < machine->link_count && strcmp(labels[i], name) != 0)
            i++;
        if (i == machine->link_count)
            return json_input_refuse(&member, err, "is no link of this machine; known: %s", list);
        if (json_input_as_object(&member, err) != 0 ||
            machine_fields_refuse_unknown(&member, machine_link_fields, MACHINE_KEYS("link"),
                                          err) != 0 ||
            read_link_figures(draft, &member, &machine->links[i], &draft->links_given[i], err) != 0)
            return -1;
    }
    return 0;
}

/* --- ways --- */

int machine_route(const struct machine *machine, uint32_t from_node, uint32_t to_node,
                  uint32_t links[MACHINE_NODES_MAX], bool down[MACHINE_NODES_MAX])
{
    uint32_t queue[MACHINE_NODES_MAX], by[MACHINE_NODES_MAX] = {0};
    bool seen[MACHINE_NODES_MAX] = {false};
    uint32_t head = 0, tail = 0;
    int count = 0;

    /* breadth first from the far end, so that `by` leads from each node towards it */
    queue[tail++] = to_node;
    seen[to_node] = true;
    while (head < tail && !seen[from_node]) {
        uint32_t node = queue[head++];

        if (machine->nodes[node].kind == MACHINE_NODE_DEVICE && node != to_node)
            continue;
        for (uint32_t i = 0; i < machine->link_count; i++) {
            const struct machine_link *link = &machine->links[i];
            uint32_t next = link->from == node ? link->to : link->from;

            if ((link->from != node && link->to != node) || seen[next])
                continue;
            seen[next] = true;
            by[next] = i;
            queue[tail++] = next;
        }
    }
    if (!seen[from_node])
        return -1;
    for (uint32_t node = from_node; node != to_node; count++) {
        const struct machine_link *link = &machine->links[by[node]];

        links[count] = by[node];
        down[count] = link->from == node;
        node = down[count] ? link->to : link->from;
    }
    return count;
}

int machine_distance(const struct machine *machine, uint32_t node)
{
    uint32_t links[MACHINE_NODES_MAX];
    bool down[MACHINE_NODES_MAX];

    return machine_route(machine, 0, node, links, down);
}

int machine_device_link(const struct machine *machine, uint32_t device)
{
    uint32_t links[MACHINE_NODES_MAX];
    bool down[MACHINE_NODES_MAX];
    int count;

    if (device >= machine->device_count)
        return -1;
    count = machine_route(machine, 0, machine->devices[device].node, links, down);
    return count > 0 ? (int)links[count - 1] : -1;
}

void machine_link_label(const struct machine *machine, uint32_t link, char *label, size_t size)
{
    const struct machine_link *record = &machine->links[link];
    const char *from = machine->nodes[record->from].name, *to = machine->nodes[record->to].name;
    uint32_t links[MACHINE_NODES_MAX];
    bool down[MACHINE_NODES_MAX];
    int count = machine_route(machine, 0, record->to, links, down);

    if (count > 0 && links[count - 1] == link)
        snprintf(label, size, "%s", to);
    else
        snprintf(label, size, "%s-%s", from, to);
}
