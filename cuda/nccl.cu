#include "cuda/nccl.h"

extern "C" {
#include "sim/machine.h"
}

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* NCCL 2 user guide, "API": ncclComm_t; ncclResult_t, of which 0 is success; ncclDataType_t
 * ncclInt64; ncclRedOp_t ncclSum. */
typedef struct ncclComm *nccl_communicator;
typedef int nccl_status;

enum { NCCL_INT64 = 4, NCCL_FLOAT32 = 7, NCCL_SUM = 0 };

struct nccl {
    void *library;
    nccl_communicator *communicators;
    uint32_t count;
    nccl_status (*init_all)(nccl_communicator *, int, const int *);
    nccl_status (*destroy)(nccl_communicator);
    nccl_status (*all_reduce)(const void *, void *, size_t, int, int, nccl_communicator,
                              cudaStream_t);
    nccl_status (*group_start)(void);
    nccl_status (*group_end)(void);
    const char *(*error_string)(nccl_status);
};

static int load_symbol(const struct nccl *nccl, const char *name, void *function)
{
    void *symbol = dlsym(nccl->library, name);

    if (symbol == nullptr)
        return -1;
    memcpy(function, &symbol, sizeof symbol);
    return 0;
}

static int check(const struct nccl *nccl, nccl_status status, const char *doing, struct error *err)
{
    return status == 0 ? 0 : error_set(err, ERROR_IO, "%s: %s", doing, nccl->error_string(status));
}

static int load(struct nccl *nccl, struct error *err)
{
    nccl->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (nccl->library == nullptr)
        return error_set(err, ERROR_UNSUPPORTED, "there is no libnccl.so.2 here");
    if (load_symbol(nccl, "ncclCommInitAll", &nccl->init_all) != 0 ||
        load_symbol(nccl, "ncclCommDestroy", &nccl->destroy) != 0 ||
        load_symbol(nccl, "ncclAllReduce", &nccl->all_reduce) != 0 ||
        load_symbol(nccl, "ncclGroupStart", &nccl->group_start) != 0 ||
        load_symbol(nccl, "ncclGroupEnd", &nccl->group_end) != 0 ||
        load_symbol(nccl, "ncclGetErrorString", &nccl->error_string) != 0)
        return error_set(err, ERROR_UNSUPPORTED, "libnccl.so.2 lacks a function");
    return 0;
}

static struct nccl *make(const int *gpus, uint32_t count, struct error *err);
static void destroy(struct nccl *nccl);

/* Communicators take seconds to make, and executors come and go: the last ones are kept. */
static struct {
    struct nccl *nccl;
    int gpus[MACHINE_DEVICES_MAX];
    bool in_use;
} kept;

struct nccl *nccl_open(const int *gpus, uint32_t count, struct error *err)
{
    struct nccl *made;

    if (kept.nccl != nullptr && !kept.in_use && kept.nccl->count == count &&
        memcmp(kept.gpus, gpus, count * sizeof *gpus) == 0) {
        kept.in_use = true;
        return kept.nccl;
    }
    made = make(gpus, count, err);
    if (made != nullptr && !kept.in_use && count <= MACHINE_DEVICES_MAX) {
        destroy(kept.nccl);
        kept.nccl = made;
        memcpy(kept.gpus, gpus, count * sizeof *gpus);
        kept.in_use = true;
    }
    return made;
}

void nccl_close(struct nccl *nccl)
{
    if (nccl != nullptr && nccl == kept.nccl)
        kept.in_use = false;
    else
        destroy(nccl);
}

static struct nccl *make(const int *gpus, uint32_t count, struct error *err)
{
    struct nccl *nccl = (struct nccl *)calloc(1, sizeof *nccl);

    if (nccl != nullptr)
        nccl->communicators = (nccl_communicator *)calloc(count + 1, sizeof *nccl->communicators);
    if (nccl == nullptr || nccl->communicators == nullptr) {
        error_set(err, ERROR_MEMORY, "no memory for %u communicators", count);
        free(nccl);
        return nullptr;
    }
    if (load(nccl, err) != 0 || check(nccl, nccl->init_all(nccl->communicators, (int)count, gpus),
                                      "ncclCommInitAll", err) != 0) {
        destroy(nccl);
        return nullptr;
    }
    nccl->count = count;
    return nccl;
}

static void destroy(struct nccl *nccl)
{
    if (nccl == nullptr)
        return;
    for (uint32_t i = 0; i < nccl->count; i++)
        nccl->destroy(nccl->communicators[i]);
    if (nccl->library != nullptr)
        dlclose(nccl->library);
    free(nccl->communicators);
    free(nccl);
}

int nccl_sum(struct nccl *nccl, enum nccl_element element, void *const *from, void *const *to,
             size_t n, const cudaStream_t *streams, struct error *err)
{
    int status = check(nccl, nccl->group_start(), "ncclGroupStart", err);
    int type = element == NCCL_OF_INT64 ? NCCL_INT64 : NCCL_FLOAT32;

    if (status != 0)
        return -1;
    for (uint32_t i = 0; i < nccl->count && status == 0; i++)
        status = check(
            nccl,
            nccl->all_reduce(from[i], to[i], n, type, NCCL_SUM, nccl->communicators[i], streams[i]),
            "ncclAllReduce", err);
    return check(nccl, nccl->group_end(), "ncclGroupEnd", err) == 0 ? status : -1;
}
