// SPDX-License-Identifier: Apache-2.0
// See read.h: the interpreter that a template keeps warm.
//
//   warm:
//     python: [pandas, matplotlib.pyplot]
#include "proto/config_read.h"
#include "private.h"

#include <string.h>

#include "server/sandbox/template.h"

enum { IMPORTS_MAX = 32 };

// A dotted name of ASCII letters, digits and _. Python accepts more; no package that is installed needs it.
static bool
is_module(const char *name)
{
    bool starts = true;
    for (; *name != '\0'; name++) {
        bool letter =
            (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') || *name == '_';
        bool digit = *name >= '0' && *name <= '9';
        if (*name == '.' ? starts : !(letter || (digit && !starts)))
            return false;
        starts = *name == '.';
    }
    return !starts;
}

static int
read_imports(const struct config_reader *r, const struct yaml_node *n, struct template *t)
{
    size_t used = 0;
    unsigned count = 0;
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of modules to import; [] for none");
    t->warm = true;
    for (const struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (it->kind != YAML_TEXT || !is_module(it->text))
            return config_fail(r, it, "must be the name of a module, such as pandas or os.path");
        const size_t length = strlen(it->text);
        if (++count > IMPORTS_MAX || used + length + 2 > sizeof t->imports)
            return config_fail(r, it,
                               "more than %d modules, or names of more than %d bytes together",
                               IMPORTS_MAX, TEMPLATE_IMPORTS_BYTES_MAX);
        if (used > 0)
            t->imports[used++] = ' ';
        memcpy(t->imports + used, it->text, length + 1);
        used += length;
    }
    return 0;
}

int
config_read_warm(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                 void *to)
{
    (void)k;
    if (n->kind != YAML_MAP)
        return config_fail(r, n, "must be a mapping of a language to modules, such as python: []");
    for (const struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (strcmp(it->key, "python") != 0)
            return config_fail(r, it, "%.40s cannot be kept warm, only python can", it->key);
        int err = read_imports(r, it, to);
        if (err < 0)
            return err;
    }
    return 0;
}
