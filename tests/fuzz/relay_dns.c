// SPDX-License-Identifier: Apache-2.0
// DNS queries of jobs: any bytes are dropped, refused with an error, or one valid question whose answer fits and
// repeats it. The input is copied to its exact size, so that reading one byte further is seen.
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/relay/dns_message.h"
#include "server/relay/permit.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const uint8_t address[16] = {198, 18, 0, 1};
    uint8_t out[DNS_ANSWER_MAX];
    struct dns_query q;
    uint8_t *copy = malloc(n > 0 ? n : 1);
    if (copy == NULL)
        return 0;
    memcpy(copy, bytes, n);
    int rcode = dns_decode(copy, n, &q);
    if (rcode >= 0) {
        assert(strlen(q.name) <= RELAY_NAME_MAX);
        assert(q.name[strspn(q.name, "abcdefghijklmnopqrstuvwxyz0123456789-_.")] == '\0');
        assert(q.question_n <= DNS_QUESTION_MAX);
        bool found = rcode == DNS_NOERROR && (q.type == DNS_A || q.type == DNS_AAAA);
        size_t length = dns_answer(&q, (enum dns_rcode)rcode, found ? address : NULL, out);
        assert(length <= sizeof out && memcmp(out, copy, 2) == 0);
        assert(memcmp(out + DNS_HEADER, q.question, q.question_n) == 0);
        struct dns_query again;
        assert(dns_decode(out, length, &again) < 0); // an answer is no query
    }
    free(copy);
    return 0;
}
