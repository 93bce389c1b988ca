// SPDX-License-Identifier: Apache-2.0
// Names in network rules: any text is refused with a reason, or is a name that the relay takes and that holds itself.
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/policy/rule.h"
#include "server/relay/orders.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

// What the relay says to an order with that rule.
static bool
relay_takes(const struct relay_rule *r)
{
    size_t n = sizeof(struct relay_order) + sizeof *r;
    struct relay_order *o = calloc(1, n);
    if (o == NULL)
        return true;
    o->kind = RELAY_POLICY;
    o->mode = NET_ALLOWLIST;
    o->rules_n = 1;
    o->rules[0] = *r;
    bool fits = orders_check(o, n, 0);
    free(o);
    return fits;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct relay_rule r = {0};
    struct relay_rule again = {0};
    const char *what = NULL;
    char shown[RELAY_NAME_MAX + 3];
    char *text = malloc(n + 1);
    if (text == NULL)
        return 0;
    memcpy(text, bytes, n);
    text[n] = '\0';
    if (net_rule_domain(text, &r, &what)) {
        assert(r.kind == RELAY_NAME || r.kind == RELAY_SUFFIX);
        assert(what[0] == '\0' && relay_takes(&r));
        net_rule_text(&r, shown, sizeof shown);
        assert(net_rule_domain(shown, &again, &what) && memcmp(&r, &again, sizeof r) == 0);
        assert(net_rule_within(&r, &again));
    } else {
        assert(r.kind == 0 && what[0] != '\0');
    }
    free(text);
    return 0;
}
