// SPDX-License-Identifier: Apache-2.0
// Destinations as people write them: any text is refused, or taken apart into what means the same when it is put together
// again.
#include <assert.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void
put_together(const struct target_text *t, char *out, size_t n)
{
    const char *protocol = t->protocol == IPPROTO_TCP ? "/tcp" : "/udp";
    char ports[16] = "";
    if (t->first != 0)
        (void)snprintf(ports, sizeof ports, ":%u-%u", t->first, t->last);
    (void)snprintf(out, n, "[%s]%s%s", t->host, ports, t->protocol != 0 ? protocol : "");
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct target_text t;
    struct target_text again;
    struct err e;
    char whole[300];
    char *text = malloc(n + 1);
    if (text == NULL)
        return 0;
    memcpy(text, bytes, n);
    text[n] = '\0';
    if (target_parse(text, &t, &e) == 0) {
        assert(t.host[0] != '\0' && t.host[strcspn(t.host, "[]")] == '\0');
        assert(t.first <= t.last && (t.first != 0) == (t.last != 0));
        put_together(&t, whole, sizeof whole);
        assert(target_parse(whole, &again, &e) == 0);
        assert(strcmp(t.host, again.host) == 0 && t.is_name == again.is_name);
        assert(t.first == again.first && t.last == again.last && t.protocol == again.protocol);
    } else {
        assert(e.code == ERR_INVALID_ARGUMENT && e.text[0] != '\0');
    }
    free(text);
    return 0;
}
