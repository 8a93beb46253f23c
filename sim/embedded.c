/* The files of embedded.h, read by the assembler: below EMBEDDED_FOLDER, the top
 * of the source tree. Needs ELF, and gcc or clang. */
#include "sim/embedded.h"

#if __SIZEOF_SIZE_T__ == 8
#define EMBEDDED_SIZE_T ".quad"
#else
#define EMBEDDED_SIZE_T ".long"
#endif

#define EMBEDDED_LINE(symbol, path) "embed embedded_" #symbol ", \"" EMBEDDED_FOLDER "/" path "\"\n"

/* clang-format off */
__asm__(".macro embed symbol, path\n"
        ".globl \\symbol, \\symbol\\()_size\n"
        ".type \\symbol, %object\n"
        ".type \\symbol\\()_size, %object\n"
        ".balign 16\n"
        "\\symbol:\n"
        ".incbin \"\\path\"\n"
        "\\symbol\\()_end:\n"
        ".byte 0\n"
        ".size \\symbol, . - \\symbol\n"
        ".balign 16\n"
        "\\symbol\\()_size:\n"
        EMBEDDED_SIZE_T " \\symbol\\()_end - \\symbol\n"
        ".size \\symbol\\()_size, . - \\symbol\\()_size\n"
        ".endm\n"
        ".pushsection .rodata\n"
        EMBEDDED_FILES(EMBEDDED_LINE)
        ".popsection\n");
/* clang-format on */
