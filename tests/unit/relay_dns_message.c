// SPDX-License-Identifier: Apache-2.0
// Queries of jobs: whatever is not exactly one valid question gets an error or is dropped; answers repeat the
// question.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "server/relay/dns_message.h"

enum { ROOM = 2048 };

struct message {
    uint8_t bytes[ROOM];
    size_t n;
};

static void
put(struct message *m, const void *bytes, size_t n)
{
    assert_true(m->n + n <= ROOM);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static void
put_u16(struct message *m, unsigned v)
{
    const uint8_t bytes[] = {(uint8_t)(v >> 8), (uint8_t)v};
    put(m, bytes, sizeof bytes);
}

static void
put_label(struct message *m, const char *text)
{
    const uint8_t n = (uint8_t)strlen(text);
    put(m, &n, 1);
    put(m, text, n);
}

// The header and "Name.Example" of type A.
static struct message
query(void)
{
    struct message m = {.n = 0};
    put_u16(&m, 0xabcd);
    put_u16(&m, 0x0100);
    put_u16(&m, 1);
    put_u16(&m, 0);
    put_u16(&m, 0);
    put_u16(&m, 0);
    put_label(&m, "Name");
    put_label(&m, "Example");
    put(&m, "", 1);
    put_u16(&m, DNS_A);
    put_u16(&m, DNS_IN);
    return m;
}

// Decodes a copy of exactly this size, so that reading beyond it is detected.
static int
decode(const struct message *m, struct dns_query *q)
{
    uint8_t *copy = malloc(m->n > 0 ? m->n : 1);
    assert_non_null(copy);
    memcpy(copy, m->bytes, m->n);
    int rc = dns_decode(copy, m->n, q);
    free(copy);
    return rc;
}

static void
messages_that_are_not_queries_are_dropped(void **state)
{
    (void)state;
    struct dns_query q;
    struct message m = query();
    m.bytes[2] |= 0x80; // an answer
    assert_true(decode(&m, &q) < 0);
    m = query();
    for (m.n = 0; m.n < DNS_HEADER; m.n++)
        assert_true(decode(&m, &q) < 0);
    m.n = DNS_QUERY_MAX + 1;
    assert_true(decode(&m, &q) < 0);
}

static void
a_query_truncated_anywhere_is_a_format_error(void **state)
{
    (void)state;
    struct dns_query q;
    struct message m = query();
    for (size_t n = m.n - 1; n >= DNS_HEADER; n--) {
        m.n = n;
        assert_int_equal(decode(&m, &q), DNS_FORMERR);
        assert_int_equal(q.id, 0xabcd);
        assert_int_equal(q.question_n, 0);
    }
}

static void
counts_flags_and_rests_that_no_query_has_are_format_errors(void **state)
{
    (void)state;
    struct dns_query q;
    static const size_t places[] = {5, 7, 9, 11};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct message m = query();
        m.bytes[places[i]]++;
        assert_int_equal(decode(&m, &q), DNS_FORMERR);
    }
    struct message m = query();
    m.bytes[5] = 0; // no question
    assert_int_equal(decode(&m, &q), DNS_FORMERR);
    m = query();
    m.bytes[2] |= 2; // truncated
    assert_int_equal(decode(&m, &q), DNS_FORMERR);
    m = query();
    put(&m, "x", 1);
    assert_int_equal(decode(&m, &q), DNS_FORMERR);
    m = query();
    m.bytes[2] |= 0x28; // UPDATE
    assert_int_equal(decode(&m, &q), DNS_NOTIMP);
    m = query();
    m.bytes[m.n - 1] = 3; // CHAOS
    assert_int_equal(decode(&m, &q), DNS_REFUSED);
}

static void
compression_and_reserved_labels_are_format_errors(void **state)
{
    (void)state;
    struct dns_query q;
    for (unsigned first = 64; first < 256; first++) {
        struct message m = query();
        m.bytes[DNS_HEADER] = (uint8_t)first;
        assert_int_equal(decode(&m, &q), DNS_FORMERR);
    }
    struct message m = query();
    m.bytes[DNS_HEADER] = 0xc0;
    m.bytes[DNS_HEADER + 1] = DNS_HEADER; // a pointer to itself
    assert_int_equal(decode(&m, &q), DNS_FORMERR);
}

static void
bytes_that_no_host_name_has_are_format_errors(void **state)
{
    (void)state;
    static const char fine[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    struct dns_query q;
    for (unsigned b = 0; b < 256; b++) {
        struct message m = query();
        m.bytes[DNS_HEADER + 1] = (uint8_t)b;
        int want = b != 0 && strchr(fine, (int)b) != NULL ? DNS_NOERROR : DNS_FORMERR;
        assert_int_equal(decode(&m, &q), want);
    }
}

// A name with `labels` labels of this length, and a last one.
static struct message
long_name(unsigned labels, size_t length, size_t last)
{
    char text[64] = "";
    struct message m = query();
    m.n = DNS_HEADER;
    memset(text, 'a', length);
    for (unsigned i = 0; i < labels; i++)
        put_label(&m, text);
    memset(text, 'b', last);
    text[last] = '\0';
    put_label(&m, text);
    put(&m, "", 1);
    put_u16(&m, DNS_A);
    put_u16(&m, DNS_IN);
    return m;
}

static void
a_name_of_255_bytes_is_the_longest(void **state)
{
    (void)state;
    struct dns_query q;
    struct message m = long_name(3, 63, 61);
    assert_int_equal(decode(&m, &q), DNS_NOERROR);
    assert_int_equal(strlen(q.name), RELAY_NAME_MAX);
    m = long_name(3, 63, 62);
    assert_int_equal(decode(&m, &q), DNS_FORMERR);
    m = long_name(126, 1, 1);
    assert_int_equal(decode(&m, &q), DNS_NOERROR);
    m = long_name(127, 1, 1);
    assert_int_equal(decode(&m, &q), DNS_FORMERR);
}

static struct message
with_opt(unsigned type, unsigned version, const char *data)
{
    struct message m = query();
    m.bytes[11] = 1;
    put(&m, "", 1);
    put_u16(&m, type);
    put_u16(&m, 4096);
    put_u16(&m, version);
    put_u16(&m, 0);
    put_u16(&m, (unsigned)strlen(data));
    put(&m, data, strlen(data));
    return m;
}

static void
one_opt_record_may_follow_and_nothing_else(void **state)
{
    (void)state;
    struct dns_query q;
    struct message m = with_opt(DNS_OPT, 0, "some options");
    assert_int_equal(decode(&m, &q), DNS_NOERROR);
    assert_true(q.edns);
    for (size_t n = m.n - 1; n > m.n - 20; n--) {
        struct message cut = m;
        cut.n = n;
        assert_int_equal(decode(&cut, &q), DNS_FORMERR);
    }
    put(&m, "x", 1);
    assert_int_equal(decode(&m, &q), DNS_FORMERR);
    m = with_opt(250, 0, ""); // TSIG
    assert_int_equal(decode(&m, &q), DNS_FORMERR);
    m = with_opt(DNS_OPT, 1, "");
    assert_int_equal(decode(&m, &q), DNS_BADVERS);
}

static void
a_clean_query_is_read_and_its_answer_echoes_it(void **state)
{
    (void)state;
    static const uint8_t address[4] = {198, 18, 0, 7};
    struct dns_query q;
    struct message m = with_opt(DNS_OPT, 0, "");
    uint8_t out[DNS_ANSWER_MAX];
    assert_int_equal(decode(&m, &q), DNS_NOERROR);
    assert_string_equal(q.name, "name.example");
    assert_int_equal(q.type, DNS_A);
    assert_true(q.recursion);
    size_t n = dns_answer(&q, DNS_NOERROR, address, out);
    assert_true(n <= sizeof out);
    assert_memory_equal(out, m.bytes, 2);
    assert_int_equal(out[2], 0x81); // answer, recursion desired
    assert_int_equal(out[3], 0x80);
    assert_int_equal(out[7], 1);
    assert_int_equal(out[11], 1);                              // our OPT
    assert_memory_equal(out + 12, m.bytes + 12, q.question_n); // in the case of the query
    assert_memory_equal(out + 12 + q.question_n + 12, address, sizeof address);
    n = dns_answer(&q, DNS_BADVERS, NULL, out);
    assert_int_equal(out[3] & 0xf, 0);
    assert_int_equal(out[n - 6], 1); // the upper bits of 16
    struct message longest = long_name(3, 63, 61);
    longest.bytes[11] = 0;
    assert_int_equal(decode(&longest, &q), DNS_NOERROR);
    q.edns = true;
    q.type = DNS_AAAA;
    static const uint8_t six[16] = {0x20, 0x01};
    assert_int_equal(dns_answer(&q, DNS_NOERROR, six, out), DNS_ANSWER_MAX);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_that_are_not_queries_are_dropped),
        cmocka_unit_test(a_query_truncated_anywhere_is_a_format_error),
        cmocka_unit_test(counts_flags_and_rests_that_no_query_has_are_format_errors),
        cmocka_unit_test(compression_and_reserved_labels_are_format_errors),
        cmocka_unit_test(bytes_that_no_host_name_has_are_format_errors),
        cmocka_unit_test(a_name_of_255_bytes_is_the_longest),
        cmocka_unit_test(one_opt_record_may_follow_and_nothing_else),
        cmocka_unit_test(a_clean_query_is_read_and_its_answer_echoes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
