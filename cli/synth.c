/* lopside synth: GGUF files with synthetic weights. */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ref/model_write.h"
#include "ref/shape.h"
#include "sim/model.h"

static const char help_text[] =
    "Usage: lopside synth NAME[:TYPE] -o FILE.gguf [--seed N]\n"
    "       lopside synth [list]\n"
    "\n"
    "Writes a GGUF file of a model with synthetic weights, which are a function of the\n"
    "seed and of each tensor's name, type and shape, or lists the small models. NAME:TYPE\n"
    "is a small model and the type of its weights (F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K\n"
    "or Q6_K; else Q8_0), or a model of the catalogue and one of its mixes. The file has\n"
    "no vocabulary, so prompts for it are token ids.\n"
    "\n"
    "  -o, --output FILE     the file to write; an existing one is replaced\n"
    "      --seed N          of the weights (default 1)\n"
    "  -h, --help            this text\n";

struct synth_options {
    const char *operand; /* NULL: list */
    const char *path;    /* NULL for none */
    uint64_t seed;
    bool seed_given, help;
};

static bool is_shape(const char *spec)
{
    size_t length = strcspn(spec, ":");

    for (size_t i = 0; i < shape_count(); i++)
        if (strlen(shape_name(i)) == length && strncasecmp(shape_name(i), spec, length) == 0)
            return true;
    return strncasecmp(spec, "tiny", 4) == 0; /* whose error lists the small models */
}

static int list_shapes(void)
{
    printf("| %-18s | %-12s | %6s | %9s | what it has |\n", "name", "arch", "layers", "params");
    puts("| ------------------ | ------------ | -----: | --------: | ----------- |");
    for (size_t i = 0; i < shape_count(); i++) {
        struct error err = {0};
        struct model *model = shape_open(shape_name(i), &err);

        if (model == NULL)
            return cli_fail(&err);
        printf("| %-18s | %-12s | %6" PRIu32 " | %7.2f M | %s |\n", model->name, model->arch,
               model->n_layer, (double)model->params / 1e6, shape_about(i));
        model_free(model);
    }
    puts("\nModels of the catalogue can be written too: 'lopside model list'.");
    return CLI_OK;
}

static int write_file(const struct synth_options *options)
{
    struct error err = {0};
    struct model *model = is_shape(options->operand) ? shape_open(options->operand, &err)
                                                     : model_from_catalogue(options->operand, &err);
    int status;

    if (model == NULL)
        return cli_fail(&err);
    status = model_write_gguf(model, options->seed, options->path, &err);
    if (status == 0)
        printf("%s: %s %s, %zu tensors of %.2f MiB, seed %" PRIu64 "\n", options->path, model->name,
               model->quant, model->tensor_count, (double)model->tensor_bytes / 1048576,
               options->seed);
    model_free(model);
    return status == 0 ? CLI_OK : cli_fail(&err);
}

/* --- the call --- */

static int read_seed(const char *text, uint64_t *seed)
{
    char *end;

    errno = 0;
    *seed = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return cli_wrong_call("synth", "\"%s\" is not a seed; a whole number below 2^64 is", text);
    return CLI_OK;
}

/* "list" or the name of a model. */
static int take_words(int argc, char **argv, struct synth_options *options)
{
    if (optind < argc && strcmp(argv[optind], "list") == 0)
        optind++;
    else if (optind < argc)
        options->operand = argv[optind++];
    if (optind < argc && !options->help)
        return cli_wrong_call("synth", "\"%s\" is one word too many", argv[optind]);
    return CLI_OK;
}

static int parse_options(int argc, char **argv, struct synth_options *options)
{
    static const struct option long_options[] = {{"output", required_argument, NULL, 'o'},
                                                 {"seed", required_argument, NULL, 's'},
                                                 {"help", no_argument, NULL, 'h'},
                                                 {NULL, 0, NULL, 0}};
    int option;

    optind = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":o:h", long_options, NULL)) != -1) {
        switch (option) {
        case 'o':
            options->path = optarg;
            break;
        case 's':
            if (read_seed(optarg, &options->seed) != CLI_OK)
                return CLI_USAGE;
            options->seed_given = true;
            break;
        case 'h':
            options->help = true;
            break;
        case ':':
            return cli_wrong_call("synth", "%s needs a value", argv[optind - 1]);
        default:
            return cli_wrong_call("synth", "unknown option %s", argv[optind - 1]);
        }
    }
    return take_words(argc, argv, options);
}

int cli_synth(int argc, char **argv)
{
    struct synth_options options = {.seed = 1};
    int status = parse_options(argc, argv, &options);

    if (status != CLI_OK)
        return status;
    if (options.help) {
        fputs(help_text, stdout);
        return CLI_OK;
    }
    if (options.operand == NULL && (options.path != NULL || options.seed_given))
        return cli_wrong_call("synth", "-o and --seed belong to a model; which?");
    if (options.operand == NULL)
        return list_shapes();
    if (options.path == NULL)
        return cli_wrong_call("synth", "%s needs -o FILE.gguf", options.operand);
    return write_file(&options);
}
