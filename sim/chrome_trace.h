/* Timelines in the Trace Event Format, for Perfetto and chrome://tracing.
 *
 * Processes are the host, what all devices do together, the links and each device; threads are
 * their queues, with the numbers of sim/program.h plus 1. On them:
 *
 *   slices    ('X') a task on its queue, in the category of its class. On each other queue that it
 *             holds a slice of the category "held": a sum over devices lies on "collective" (or
 *             "beside") and is held on each member's compute thread. Where the times of issuing
 *             are known, the host's thread has what it issues ("issue") and waits for ("blocked").
 *   flows     ('s', 'f') along dependencies, and from a task that blocks to the host's wait; where
 *             that is not known, to the task issued next. One that would lead back in time, as
 *             clocks of two GPUs may say, is left out.
 *   counters  ('C') GB/s of each direction of a link, and the number of busy compute queues
 *   instants  ('i') starts of steps
 *
 * Times are us with three decimals. Slices of a thread do not overlap: one that begins before
 * the one before it on its thread has ended, as recorded ones may by a few ns, is cut. */
#ifndef SIM_CHROME_TRACE_H
#define SIM_CHROME_TRACE_H

#include "sim/timeline.h"

/**
 * Writes a timeline as a JSON object. The same timeline gives the same bytes.
 *
 * @return 0, or -1 with `err` set: ERROR_MEMORY, ERROR_IO when `out` cannot be written
 */
int chrome_trace_write(const struct timeline *timeline, FILE *out, struct error *err);

#endif
