/* Runs a fuzz target over files and folders without libFuzzer, so that every
 * build tries the corpus.
 *
 *     fuzz_gguf [files or folders; by default the target's own corpus] */
#ifndef LOPSIDE_LIBFUZZER

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t replayed;

/* The whole content, for free(), or NULL after a message. */
static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL, *moved;
    size_t capacity = 0, got;

    if (!file) {
        perror(path);
        return NULL;
    }
    *size = 0;
    do {
        capacity += 65536;
        moved = realloc(data, capacity);
        if (!moved)
            break;
        data = moved;
        got = fread(data + *size, 1, capacity - *size, file);
        *size += got;
    } while (got != 0);
    if (!moved || ferror(file)) {
        perror(path);
        free(data);
        data = NULL;
    }
    fclose(file);
    return data;
}

/* A copy of the exact size lets the address sanitizer see reads behind the end. */
static int replay_file(const char *path)
{
    size_t size;
    uint8_t *data = read_file(path, &size), *exact;

    if (!data)
        return -1;
    exact = malloc(size ? size : 1);
    if (!exact) {
        perror(path);
        free(data);
        return -1;
    }
    memcpy(exact, data, size);
    free(data);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    replayed++;
    return 0;
}

static int replay(const char *path)
{
    struct stat status;
    struct dirent *entry;
    DIR *folder;
    int result = 0;

    if (stat(path, &status)) {
        perror(path);
        return -1;
    }
    if (!S_ISDIR(status.st_mode))
        return replay_file(path);
    folder = opendir(path);
    if (!folder) {
        perror(path);
        return -1;
    }
    while (!result && (entry = readdir(folder))) {
        char inside[4096];

        if (entry->d_name[0] == '.')
            continue;
        snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        result = replay(inside);
    }
    closedir(folder);
    return result;
}

/* The target's own corpus, below $srcdir. */
static int replay_corpus(void)
{
    const char *top = getenv("srcdir");
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", top ? top : ".", LOPSIDE_CORPUS);
    return replay(path);
}

int main(int argc, char **argv)
{
    if (argc < 2 && replay_corpus())
        return EXIT_FAILURE;
    for (int i = 1; i < argc; i++)
        if (replay(argv[i]))
            return EXIT_FAILURE;
    printf("%zu inputs replayed\n", replayed);
    return replayed != 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#else
typedef int fuzz_replay_is_empty; /* libFuzzer has its own main() */
#endif
