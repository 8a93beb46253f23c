/* Any bytes are a timeline or a located refusal; what was read becomes a trace and is compared
 * with itself. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/chrome_trace.h"
#include "sim/compare.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void trace(struct timeline *timeline)
{
    struct error err = {0};
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    assert(out != NULL);
    assert(timeline_estimate_rates(timeline, &err) == 0);
    assert(chrome_trace_write(timeline, out, &err) == 0);
    fclose(out);
    assert(length > 2 && text[0] == '{');
    free(text);
}

static void compare(const struct timeline *timeline)
{
    struct error err = {0};
    struct comparison *comparison = compare_timelines(timeline, timeline, 10, &err);
    char text[600];

    assert(comparison != NULL);
    assert(!compare_find_difference(timeline, timeline, text, sizeof text));
    assert(comparison->measured_s == comparison->predicted_s);
    comparison_free(comparison);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = {0};
    struct timeline *timeline = timeline_parse((const char *)data, size, "fuzz", &err);

    if (timeline == NULL) {
        assert(err.code != ERROR_NONE && err.text[0] != '\0');
        assert(err.source[0] != '\0' && err.line >= 1);
        return 0;
    }
    trace(timeline);
    compare(timeline);
    timeline_free(timeline);
    return 0;
}
