// SPDX-License-Identifier: Apache-2.0
// Prefixes in network rules: any text is refused with a reason, or is a prefix (or the word host) whose own text is read as
// the same one.
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/net_ranges.h"
#include "server/policy/rule.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct relay_rule r = {0};
    struct relay_rule again = {0};
    const char *what = NULL;
    char shown[64];
    char *text = malloc(n + 1);
    if (text == NULL)
        return 0;
    memcpy(text, bytes, n);
    text[n] = '\0';
    if (net_rule_cidr(text, &r, &what)) {
        assert(r.kind == RELAY_PREFIX || (r.kind == RELAY_HOST && strcmp(text, "host") == 0));
        assert(r.prefix <= 128 && what[0] == '\0');
        assert(!net_is_v4(r.address) || r.prefix >= 96); // no IPv6 prefix begins at an IPv4 address
        net_rule_text(&r, shown, sizeof shown);
        assert(net_rule_cidr(shown, &again, &what) && memcmp(&r, &again, sizeof r) == 0);
        assert(net_rule_within(&r, &again));
    } else {
        assert(r.kind == 0 && what[0] != '\0');
    }
    free(text);
    return 0;
}
