/* The machine that the program runs on, as far as NVML can see it. */
#ifndef SIM_MACHINE_LOCAL_H
#define SIM_MACHINE_LOCAL_H

#include "sim/machine.h"

/**
 * Composes a machine of the GPUs that CUDA programs see here, with the PCI Express
 * links they are on and the memory the driver reports. Heeds CUDA_VISIBLE_DEVICES
 * and CUDA_DEVICE_ORDER.
 *
 * @return a machine for machine_free(), or NULL with `err` set: ERROR_UNSUPPORTED
 *         when there is no driver or no visible GPU, another code when a GPU is not in
 *         the catalogue
 */
struct machine *machine_local(struct error *err);

#endif
