/* Values that a device reads next, and this processor does not. */
#ifndef REF_STREAM_H
#define REF_STREAM_H

#include <stdint.h>

/**
 * Copies (n) values past the caches where the processor can. A device that copies what lies changed
 * in the caches of many cores waits for each line: of 8 MB just written by 16 threads it got 9 to
 * 26 GB/s over PCIe 5.0 x16, of the same once they lay in memory 50.
 *
 * @param to of 16 bytes' alignment; behind the last copy of a thread stream_end()
 */
void stream_floats(const float *from, uint64_t n, float *to);

/** What the thread has copied so is there for others. */
void stream_end(void);

#endif
