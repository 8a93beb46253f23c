#include "cli/rule_warnings.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

void cli_warn_rules(uint32_t rules)
{
    static const char *const verdicts[] = {[FEASIBILITY_WORKS] = "works",
                                           [FEASIBILITY_WRONG] = "gives wrong output",
                                           [FEASIBILITY_ABORTS] = "aborts",
                                           [FEASIBILITY_REFUSED] = "is refused"};

    for (int rule = 0; rule < FEASIBILITY_RULE_COUNT; rule++) {
        const struct feasibility_rule_info *info =
            feasibility_rule_info((enum feasibility_rule)rule);

        if ((rules >> rule & 1) != 0)
            cli_warn("%s: a plan %s: %s; what works: %s", info->name, verdicts[info->verdict],
                     info->why, info->instead);
    }
}

void cli_warn_rules_of_refused(uint32_t rules)
{
    for (int rule = 0; rule < FEASIBILITY_RULE_COUNT; rule++)
        if (feasibility_rule_info((enum feasibility_rule)rule)->verdict == FEASIBILITY_REFUSED)
            rules &= ~(1u << rule);
    cli_warn_rules(rules);
}

void cli_rule_names(uint32_t rules, char *text, size_t size)
{
    text[0] = '\0';
    for (int rule = 0; rule < FEASIBILITY_RULE_COUNT; rule++)
        if ((rules >> rule & 1) != 0)
            snprintf(text + strlen(text), size - strlen(text), "%s%s", text[0] != '\0' ? ", " : "",
                     feasibility_rule_info((enum feasibility_rule)rule)->name);
}
