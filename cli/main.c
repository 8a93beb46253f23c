/* lopside: the table of subcommands. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "config.h"

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"bench", "throughput and memory of plans, as llama-bench prints it", cli_bench},
    {"run", "a plan executed on the CPU: tokens and a checksum", cli_run},
    {"verify", "many plans executed: one checksum, or where they differ", cli_verify},
    {"program", "what a plan does in a step, a line a task", cli_program},
    {"trace", "when each task runs, for Perfetto and chrome://tracing", cli_trace},
    {"compare", "a recorded run beside its prediction, task by task", cli_compare},
    {"model", "models: the catalogue, or a GGUF file", cli_model},
    {"machine", "machines: profiles, GPUs and links", cli_machine},
    {"probe", "this machine's GPUs and links, measured", cli_probe},
    {"synth", "GGUF files with synthetic weights", cli_synth},
    {"validate", "predictions beside measured rows", cli_validate},
    {"calibrate", "fit a machine's constants to measured rows", cli_calibrate},
};

static const size_t command_count = sizeof commands / sizeof *commands;

static void print_help(FILE *out)
{
    fputs("Usage: lopside COMMAND [OPTION]...\n"
          "Predicts how fast a language model runs for any division of its weights,\n"
          "attention heads and KV cache over unlike GPUs on unlike links.\n\nCommands:\n",
          out);
    for (size_t i = 0; i < command_count; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\n  --list-devices   GPUs of this machine, as 'bench' would use them\n"
          "  --version        the version\n"
          "  --help           this text; 'lopside COMMAND --help' has more\n",
          out);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (argc > 2 && strcmp(argv[1], "help") == 0) {
        char help[] = "--help";
        char *arguments[] = {argv[2], help, NULL};

        for (size_t i = 0; i < command_count; i++)
            if (strcmp(argv[2], commands[i].name) == 0)
                return commands[i].run(2, arguments);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("lopside " PACKAGE_VERSION);
        return CLI_OK;
    }
    for (size_t i = 0; i < command_count; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    /* What llama-bench takes, bench takes: a first word that is a flag goes there. */
    if (argv[1][0] == '-')
        return cli_bench(argc, argv);
    fprintf(stderr, "lopside: '%s' is not a command; 'lopside --help' lists them\n", argv[1]);
    return CLI_USAGE;
}
