#include "cli/cli.h"
int cli_program(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return CLI_USAGE;
}
