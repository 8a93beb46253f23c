#include "ref/stream.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

void stream_floats(const float *from, uint64_t n, float *to)
{
    uint64_t done = 0;

#ifdef __SSE2__
    for (; done + 4 <= n; done += 4)
        _mm_stream_ps(to + done, _mm_loadu_ps(from + done));
#endif
    memcpy(to + done, from + done, (n - done) * sizeof *to);
}

void stream_end(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}
