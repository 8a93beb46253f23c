/* Each figure is the best of several tries: whatever else the machine does only adds time. Of
 * pageable copies it is the median, as their time is what the CPU's caches make of it. */
#include "cuda/probe.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_check.h"
#include "cuda/matmul_fast.h"
#include "cuda/nccl.h"

extern "C" {
#include "ref/host_probe.h"
#include "sim/values.h"
}

const uint64_t probe_sizes[PROBE_SIZES] = {64 << 10, 1 << 20,  4 << 20,
                                           16 << 20, 64 << 20, 256 << 20};
const uint32_t probe_widths[PROBE_WIDTHS] = {136, 272, 544, 1088};

namespace
{

const size_t BUFFER_BYTES = 256 << 20, READ_BYTES = size_t(1) << 30, PAGEABLE_BYTES = READ_BYTES;
const int TRIES = 5;

/* What a GPU is measured with. */
struct bench {
    int gpu;
    cudaStream_t stream, other;
    cudaEvent_t begin, end;
    char *device, *second;                   /* READ_BYTES, BUFFER_BYTES */
    char *pinned, *pinned_second, *pageable; /* the last of PAGEABLE_BYTES */
};

int open_bench(struct bench *b, int gpu, struct error *err)
{
    *b = bench{};
    b->gpu = gpu;
    if (cuda_check(cudaSetDevice(gpu), "choosing a GPU", err) != 0 ||
        cuda_check(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), "a stream", err) !=
            0 ||
        cuda_check(cudaStreamCreateWithFlags(&b->other, cudaStreamNonBlocking), "a stream", err) !=
            0 ||
        cuda_check(cudaEventCreate(&b->begin), "an event", err) != 0 ||
        cuda_check(cudaEventCreate(&b->end), "an event", err) != 0 ||
        cuda_allocate((void **)&b->device, READ_BYTES, gpu, "the probe", err) != 0 ||
        cuda_allocate((void **)&b->second, BUFFER_BYTES, gpu, "the probe", err) != 0 ||
        cuda_check(cudaMallocHost((void **)&b->pinned, BUFFER_BYTES), "pinned memory", err) != 0 ||
        cuda_check(cudaMallocHost((void **)&b->pinned_second, BUFFER_BYTES), "pinned memory",
                   err) != 0)
        return -1;
    b->pageable = (char *)malloc(PAGEABLE_BYTES);
    if (b->pageable == nullptr)
        return error_set(err, ERROR_MEMORY, "no host memory for the probe");
    memset(b->pageable, 1, PAGEABLE_BYTES);
    memset(b->pinned, 1, BUFFER_BYTES);
    return cuda_check(cudaMemset(b->device, 1, READ_BYTES), "filling memory", err);
}

void close_bench(struct bench *b)
{
    cudaSetDevice(b->gpu);
    cudaFree(b->device);
    cudaFree(b->second);
    cudaFreeHost(b->pinned);
    cudaFreeHost(b->pinned_second);
    free(b->pageable);
    if (b->begin != nullptr)
        cudaEventDestroy(b->begin);
    if (b->end != nullptr)
        cudaEventDestroy(b->end);
    if (b->stream != nullptr)
        cudaStreamDestroy(b->stream);
    if (b->other != nullptr)
        cudaStreamDestroy(b->other);
}

/* ---- kernels ---- */

__global__ void nothing(void)
{
}

/* Grid-stride, 16 bytes a thread, four loads in flight. */
__global__ void read_all(const uint4 *words, size_t count, uint32_t *sink)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    uint32_t sum = 0;

    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i + 3 * step < count;
         i += 4 * step) {
        uint4 a = __ldcs(words + i), b = __ldcs(words + i + step);
        uint4 c = __ldcs(words + i + 2 * step), d = __ldcs(words + i + 3 * step);

        sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^
               d.z ^ d.w;
    }
    if (sum == 0x12345678)
        *sink = sum;
}

/* ---- timing ---- */

/* Seconds on the device between two points of a stream. */
template <typename Queue> double device_s(struct bench *b, Queue queue)
{
    float best = 1e9f, ms;

    for (int i = 0; i < TRIES; i++) {
        cudaEventRecord(b->begin, b->stream);
        queue();
        cudaEventRecord(b->end, b->stream);
        cudaEventSynchronize(b->end);
        cudaEventElapsedTime(&ms, b->begin, b->end);
        best = ms < best ? ms : best;
    }
    return best * 1e-3;
}

/* Seconds of the thread's clock. */
template <typename Work> double host_s(Work work)
{
    double best = 1e9;

    for (int i = 0; i < TRIES; i++) {
        double start = host_probe_now_s(), time;

        work();
        time = host_probe_now_s() - start;
        best = time < best ? time : best;
    }
    return best;
}

double gbs(double bytes, double time_s)
{
    return bytes / time_s / 1e9;
}

void measure_memory(struct bench *b, struct probe_device *device)
{
    struct cudaDeviceProp properties;
    double time_s;

    cudaGetDeviceProperties(&properties, b->gpu);
    time_s = device_s(b, [&] {
        read_all<<<properties.multiProcessorCount * 8, 512, 0, b->stream>>>(
            (const uint4 *)b->device, READ_BYTES / 16, (uint32_t *)b->second);
    });
    device->memory_gbs = gbs((double)READ_BYTES, time_s);
}

void measure_launches(struct bench *b, struct probe_device *device)
{
    const int count = 400, nodes = 1000;
    cudaGraph_t graph;
    cudaGraphExec_t executable;

    nothing<<<1, 32, 0, b->stream>>>();
    cudaStreamSynchronize(b->stream);
    device->launch_s = host_s([&] {
                           for (int i = 0; i < count; i++)
                               nothing<<<1, 32, 0, b->stream>>>();
                       }) /
                       count;
    cudaStreamSynchronize(b->stream);
    device->sync_s = host_s([&] {
                         for (int i = 0; i < count; i++) {
                             nothing<<<1, 32, 0, b->stream>>>();
                             cudaStreamSynchronize(b->stream);
                         }
                     }) /
                     count;
    cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < nodes; i++)
        nothing<<<1, 32, 0, b->stream>>>();
    cudaStreamEndCapture(b->stream, &graph);
    cudaGraphInstantiate(&executable, graph, 0);
    device->graph_node_s = device_s(b, [&] { cudaGraphLaunch(executable, b->stream); }) / nodes;
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
}

void measure_copies(struct bench *b, struct probe_device *device)
{
    const int count = 200;
    double both_s;

    device->copy_s = host_s([&] {
                         for (int i = 0; i < count; i++)
                             cudaMemcpy(b->second, b->pinned, 64, cudaMemcpyHostToDevice);
                     }) /
                     count;
    device->copy_latency_s = device_s(b,
                                      [&] {
                                          for (int i = 0; i < count; i++)
                                              cudaMemcpyAsync(b->second, b->pinned, 64,
                                                              cudaMemcpyHostToDevice, b->stream);
                                      }) /
                             count;
    device->down_gbs = gbs(BUFFER_BYTES, device_s(b, [&] {
                               cudaMemcpyAsync(b->second, b->pinned, BUFFER_BYTES,
                                               cudaMemcpyHostToDevice, b->stream);
                           }));
    device->up_gbs = gbs(BUFFER_BYTES, device_s(b, [&] {
                             cudaMemcpyAsync(b->pinned_second, b->device, BUFFER_BYTES,
                                             cudaMemcpyDeviceToHost, b->stream);
                         }));
    both_s = host_s([&] {
        cudaMemcpyAsync(b->second, b->pinned, BUFFER_BYTES, cudaMemcpyHostToDevice, b->stream);
        cudaMemcpyAsync(b->pinned_second, b->device, BUFFER_BYTES, cudaMemcpyDeviceToHost,
                        b->other);
        cudaStreamSynchronize(b->stream);
        cudaStreamSynchronize(b->other);
    });
    device->duplex_gbs = gbs(2.0 * BUFFER_BYTES, both_s);
}

/* Median over copies from one place behind the other, as a cache's windows are: what the CPU's own
 * caches still hold comes twice as fast. */
double pageable_s(struct bench *b, size_t bytes)
{
    const int copies = 4 * TRIES;
    double times_s[copies];

    for (int i = 0; i < copies; i++) {
        const char *from = b->pageable + (size_t)i * BUFFER_BYTES % PAGEABLE_BYTES +
                           (size_t)i * bytes % BUFFER_BYTES / bytes * bytes;
        double start_s = host_probe_now_s();

        cudaMemcpy(b->second, from, bytes, cudaMemcpyHostToDevice);
        times_s[i] = host_probe_now_s() - start_s;
    }
    values_sort(times_s, copies);
    return times_s[copies / 2];
}

/* Pageable copies of several sizes, and strided ones of narrow rows: a head's part of a cache. */
void measure_curves(struct bench *b, struct probe_device *device)
{
    const size_t pitch = 4096, rows = BUFFER_BYTES / pitch;

    for (int i = 0; i < PROBE_SIZES; i++)
        device->pageable_gbs[i] =
            gbs((double)probe_sizes[i], pageable_s(b, (size_t)probe_sizes[i]));
    for (int i = 0; i < PROBE_WIDTHS; i++) {
        uint32_t width = probe_widths[i];
        double time_s = device_s(b, [&] {
            cudaMemcpy2DAsync(b->second, width, b->pinned, pitch, width, rows,
                              cudaMemcpyHostToDevice, b->stream);
        });

        device->strided_gbs[i] = gbs((double)width * rows, time_s);
        if (i == 0)
            device->row_s = (time_s - (double)width * rows / (device->down_gbs * 1e9)) / rows;
    }
    if (device->row_s < 0)
        device->row_s = 0;
}

/* ---- several devices ---- */

void measure_together(struct bench *benches, uint32_t count, struct probe *probe)
{
    double time_s = host_s([&] {
        for (uint32_t d = 0; d < count; d++) {
            cudaSetDevice(benches[d].gpu);
            cudaMemcpyAsync(benches[d].second, benches[d].pinned, BUFFER_BYTES,
                            cudaMemcpyHostToDevice, benches[d].stream);
        }
        for (uint32_t d = 0; d < count; d++)
            cudaStreamSynchronize(benches[d].stream);
    });

    probe->down_together_gbs = gbs((double)count * BUFFER_BYTES, time_s);
}

void measure_peer(struct bench *benches, struct probe *probe)
{
    int access = 0;

    cudaDeviceCanAccessPeer(&access, benches[1].gpu, benches[0].gpu);
    cudaSetDevice(benches[1].gpu);
    probe->peer_access = access != 0 && cudaDeviceEnablePeerAccess(benches[0].gpu, 0) !=
                                            cudaErrorPeerAccessUnsupported;
    cudaGetLastError(); /* it may have been enabled before */
    cudaSetDevice(benches[0].gpu);
    probe->peer_gbs =
        gbs(BUFFER_BYTES, device_s(&benches[0], [&] {
                cudaMemcpyPeerAsync(benches[1].second, benches[1].gpu, benches[0].device,
                                    benches[0].gpu, BUFFER_BYTES, benches[0].stream);
            }));
}

/* A sum of n int64 on every device, over and over. */
double reduce_s(struct nccl *nccl, struct bench *benches, uint32_t count, size_t n)
{
    const int repeats = 20;
    cudaStream_t streams[MACHINE_DEVICES_MAX];
    void *values[MACHINE_DEVICES_MAX];
    struct error err = {};

    for (uint32_t d = 0; d < count; d++) {
        streams[d] = benches[d].stream;
        values[d] = benches[d].second;
    }
    return host_s([&] {
               for (int i = 0; i < repeats; i++)
                   nccl_sum(nccl, NCCL_OF_INT64, values, values, n, streams, &err);
               for (uint32_t d = 0; d < count; d++)
                   cudaStreamSynchronize(streams[d]);
           }) /
           repeats;
}

void measure_collectives(struct bench *benches, uint32_t count, struct probe *probe)
{
    struct error ignored = {};
    int gpus[MACHINE_DEVICES_MAX];
    struct nccl *nccl;

    for (uint32_t d = 0; d < count; d++)
        gpus[d] = benches[d].gpu;
    nccl = nccl_open(gpus, count, &ignored);
    if (nccl == nullptr)
        return;
    reduce_s(nccl, benches, count, 1); /* the first call sets up */
    probe->reduce_small_s = reduce_s(nccl, benches, count, 20480 / sizeof(int64_t));
    probe->reduce_large_s = reduce_s(nccl, benches, count, (10 << 20) / sizeof(int64_t));
    nccl_close(nccl);
}

int measure_device(struct bench *b, struct probe_device *device, struct error *err)
{
    struct cudaDeviceProp properties;

    if (cuda_check(cudaSetDevice(b->gpu), "choosing a GPU", err) != 0 ||
        cuda_check(cudaGetDeviceProperties(&properties, b->gpu), "a GPU's properties", err) != 0)
        return -1;
    strncpy(device->name, properties.name, sizeof device->name - 1);
    measure_memory(b, device);
    measure_launches(b, device);
    measure_copies(b, device);
    measure_curves(b, device);
    return cuda_check(cudaGetLastError(), "measuring", err);
}

} /* namespace */

int probe_run(struct probe *probe, struct error *err)
{
    struct bench benches[MACHINE_DEVICES_MAX] = {};
    int count = 0, status = 0;

    *probe = (struct probe){};
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
        return error_set(err, ERROR_UNSUPPORTED, "there is no GPU to measure");
    probe->device_count = count < MACHINE_DEVICES_MAX ? (uint32_t)count : MACHINE_DEVICES_MAX;
    for (uint32_t d = 0; d < probe->device_count && status == 0; d++)
        status = open_bench(&benches[d], (int)d, err);
    for (uint32_t d = 0; d < probe->device_count && status == 0; d++)
        status = measure_device(&benches[d], &probe->devices[d], err);
    if (status == 0) {
        measure_together(benches, probe->device_count, probe);
        if (probe->device_count > 1) {
            measure_peer(benches, probe);
            measure_collectives(benches, probe->device_count, probe);
        }
        status = cuda_check(cudaGetLastError(), "measuring", err);
    }
    for (uint32_t d = 0; d < probe->device_count; d++)
        close_bench(&benches[d]);
    return status;
}

void probe_apply(const struct probe *probe, struct machine *machine)
{
    for (uint32_t d = 0; d < probe->device_count && d < machine->device_count; d++) {
        const struct probe_device *measured = &probe->devices[d];
        int link = machine_device_link(machine, d);

        machine->devices[d].memory_gbs = measured->memory_gbs;
        if (link < 0)
            continue;
        machine->links[link].down_gbs = measured->down_gbs;
        machine->links[link].up_gbs = measured->up_gbs;
        machine->links[link].duplex_gbs = measured->duplex_gbs;
        machine->links[link].pageable_gbs = measured->pageable_gbs[PROBE_SIZES - 1];
        machine->links[link].latency_s = measured->copy_latency_s;
        machine->links[link].row_s = measured->row_s;
    }
    machine->host.launch_s = probe->devices[0].launch_s;
    machine->host.copy_s = probe->devices[0].copy_s;
    machine->host.sync_s = probe->devices[0].sync_s - probe->devices[0].launch_s;
    if (probe->reduce_small_s > 0)
        machine->collective.latency_s = probe->reduce_small_s;
}

uint64_t probe_ahead_bytes(int gpu, enum tensor_type type, uint32_t tokens)
{
    return cudaSetDevice(gpu) == cudaSuccess ? matmul_fast_ahead_bytes(type, tokens) : 0;
}
