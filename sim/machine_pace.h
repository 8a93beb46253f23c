/* A machine that is made slower on purpose, so that equal GPUs on equal links are like unlike ones:
 * --pace-devices and --pace-links. */
#ifndef SIM_MACHINE_PACE_H
#define SIM_MACHINE_PACE_H

#include "sim/machine.h"

/* Device by device; 0: none. */
struct machine_pace {
    double slowdowns[MACHINE_DEVICES_MAX]; /* kernels take so many times as long; 1: none */
    double link_gbs[MACHINE_DEVICES_MAX];  /* copies from and to the host take as long as with it */
};

/**
 * Reads "1/0.6", the share of its speed that each device has, and "25/3.4", GB/s of each link.
 *
 * @param devices, links as typed; NULL: not given
 * @return 0, or -1 with `err` set (ERROR_USAGE: the flag, and what is accepted)
 */
int machine_pace_read(struct machine_pace *pace, const char *devices, const char *links,
                      struct error *err);

/** Makes a machine so slow: its devices' `slowdown`, and the links that lead to them. */
void machine_apply_pace(struct machine *machine, const struct machine_pace *pace);

#endif
