/* What the subcommands share: their table, exit statuses and how errors look. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "sim/error.h"

enum cli_status {
    CLI_OK = 0,
    CLI_FAILED = 1, /* the work was done and its verdict is no */
    CLI_USAGE = 2,  /* a wrong call, or input that cannot be used */
};

/* Each subcommand: argv[0] is its own name. Returns an exit status. */
int cli_bench(int argc, char **argv);
int cli_calibrate(int argc, char **argv);
int cli_compare(int argc, char **argv);
int cli_machine(int argc, char **argv);
int cli_model(int argc, char **argv);
int cli_probe(int argc, char **argv);
int cli_program(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_synth(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_validate(int argc, char **argv);
int cli_verify(int argc, char **argv);

/**
 * Prints a failure once, to stderr, with the line and a caret where they are known:
 *
 *     lopside: two-gpus.json:7:39: links[0].gbs: -32 is not a bandwidth; a number above 0 is
 *         {"from": "gpu0", "to": "host", "gbs": -32}
 *                                               ^
 * @return CLI_USAGE
 */
int cli_fail(const struct error *err);

/** A wrong call: prints "lopside COMMAND: MESSAGE" and where help is. @return CLI_USAGE */
int cli_wrong_call(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/**
 * Reads a whole number into `*value`.
 *
 * @return CLI_OK, or CLI_USAGE after a message that names `flag` and what is accepted
 */
int cli_read_whole(const char *command, const char *flag, const char *text, long min, long max,
                   long *value);

/** After getopt's own message: where help is. @return CLI_USAGE */
int cli_unknown_option(const char *command);

/** Prints a warning, once per call, to stderr. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
