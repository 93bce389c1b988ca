// SPDX-License-Identifier: Apache-2.0
// stockade-fetcher: reads one file over HTTPS for the broker, and exits (fetch.h). The spawner has taken all rights from it before.
//
//   order -> libcurl's handle -> filter of system calls -> name, address, TLS, HTTP -> parts
//
// The address is checked when the socket is opened, which is after the name was resolved: a name cannot lead to another address
// than the one that was checked. No redirect is followed, and no proxy is used.
#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bpf/net_ranges.h"
#include "fetch.h"
#include "proto/confine.h"
#include "proto/leak.h"

enum { OK = 200, REDIRECTS = 300, CLIENT_ERRORS = 400, V4_AT = 12 };

// Of address space, most of which libraries reserve and never touch, and of memory that it may write. A server that sends without end
// what OpenSSL and libcurl keep (chains of certificates, headers) ends the fetcher, not the host.
#define SPACE_BYTES  (UINT64_C(512) << 20)
#define MEMORY_BYTES (UINT64_C(64) << 20)

struct fetch {
    struct fetch_order order;
    struct fetch_part part;
    size_t sent_n; // in parts before
    struct err why;
    CURL *curl;
    char said[CURL_ERROR_SIZE];
};

static bool
send_part(struct fetch *f)
{
    const ssize_t n = send(FETCH_BROKER_FD, &f->part, sizeof f->part, MSG_NOSIGNAL);
    f->sent_n += f->part.n;
    f->part.n = 0;
    return n == (ssize_t)sizeof f->part;
}

static int
refuse(struct fetch *f, const char *reason, const char *why)
{
    int r = err_set(&f->why, ERR_FAILED_PRECONDITION, "%s", why);
    err_detail(&f->why, reason, NULL, NULL);
    return r;
}

static size_t
on_body(char *bytes, size_t size, size_t n, void *fetch)
{
    struct fetch *f = fetch;
    for (size_t left = size * n; left > 0;) {
        const size_t room = sizeof f->part.bytes - f->part.n, more = left < room ? left : room;
        if (f->sent_n + f->part.n + more > FETCH_BYTES_MAX) {
            (void)refuse(f, "FETCH_SIZE", "the file is larger than 256 KiB");
            return 0;
        }
        memcpy(f->part.bytes + f->part.n, bytes + size * n - left, more);
        f->part.n += (uint32_t)more;
        left -= more;
        if (f->part.n == sizeof f->part.bytes && !send_part(f))
            return 0;
    }
    return size * n;
}

static bool
address_of(const struct curl_sockaddr *a, uint8_t out[16])
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memset(out, 0, 16);
    if (a->family == AF_INET6 && a->addrlen >= sizeof v6) {
        memcpy(&v6, &a->addr, sizeof v6);
        memcpy(out, &v6.sin6_addr, sizeof v6.sin6_addr);
        return true;
    }
    if (a->family != AF_INET || a->addrlen < sizeof v4)
        return false;
    memcpy(&v4, &a->addr, sizeof v4);
    out[10] = out[11] = 0xff;
    memcpy(out + V4_AT, &v4.sin_addr, sizeof v4.sin_addr);
    return true;
}

static bool
is_loopback(const uint8_t a[16])
{
    static const uint8_t v6[16] = {[15] = 1};
    return net_is_v4(a) ? a[V4_AT] == 127 : memcmp(a, v6, sizeof v6) == 0;
}

static curl_socket_t
on_open(void *fetch, curlsocktype purpose, struct curl_sockaddr *to)
{
    struct fetch *f = fetch;
    uint8_t address[16];
    (void)purpose;
    if (!address_of(to, address))
        return CURL_SOCKET_BAD;
    if (f->order.private == 0 && net_special_bits(address) != 0) {
        (void)refuse(f, "FETCH_PRIVATE", "its name leads to an address that is not public");
        return CURL_SOCKET_BAD;
    }
    if (strncmp(f->order.url, "https://", strlen("https://")) != 0 && !is_loopback(address)) {
        (void)refuse(f, "FETCH_PLAIN", "http:// is for loopback only");
        return CURL_SOCKET_BAD;
    }
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

static int
set_up(struct fetch *f)
{
    CURL *c = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_easy_init() : NULL;
    bool ok = c != NULL;
    f->curl = c;
    ok = ok && curl_easy_setopt(c, CURLOPT_URL, f->order.url) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR,
                          f->order.private != 0 ? "https,http" : "https") == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_PROXY, "") == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)f->order.timeout_ms) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 2L) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK;
    ok = ok && curl_easy_setopt(c, CURLOPT_USERAGENT, "stockade/" STOCKADE_VERSION) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_ERRORBUFFER, f->said) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_WRITEDATA, f) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_open) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, f) == CURLE_OK &&
         (f->order.ca_file[0] == '\0' ||
          curl_easy_setopt(c, CURLOPT_CAINFO, f->order.ca_file) == CURLE_OK);
    return ok ? 0 : err_set(&f->why, ERR_INTERNAL, "libcurl does not start");
}

// A build with AddressSanitizer reserves terabytes.
static int
limit_memory(struct err *e)
{
#ifndef LEAK_WITH_ASAN
    const struct rlimit space = {SPACE_BYTES, SPACE_BYTES}, memory = {MEMORY_BYTES, MEMORY_BYTES};
    if (setrlimit(RLIMIT_AS, &space) < 0 || setrlimit(RLIMIT_DATA, &memory) < 0)
        return err_sys(e, errno, "set a limit");
#endif
    (void)e;
    return 0;
}

static int
read_order(struct fetch_order *o, struct err *e)
{
    const ssize_t n = recv(FETCH_BROKER_FD, o, sizeof *o, 0);
    if (n == (ssize_t)sizeof *o && memchr(o->url, '\0', sizeof o->url) != NULL &&
        memchr(o->ca_file, '\0', sizeof o->ca_file) != NULL && o->private <= 1 &&
        o->timeout_ms > 0 && o->timeout_ms <= FETCH_TIMEOUT_MS_MAX)
        return 0;
    return err_set(e, ERR_INVALID_ARGUMENT, "the order is malformed");
}

static int
perform(struct fetch *f)
{
    long status = 0;
    const CURLcode code = curl_easy_perform(f->curl);
    if (f->why.code != ERR_OK)
        return -1;
    if (code != CURLE_OK)
        return err_set(&f->why, ERR_UNAVAILABLE, "%s",
                       f->said[0] != '\0' ? f->said : curl_easy_strerror(code));
    (void)curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == OK)
        return 0;
    return err_set(
        &f->why, ERR_UNAVAILABLE, "the answer is HTTP %ld%s", status,
        status >= REDIRECTS && status < CLIENT_ERRORS ? ", a redirect, which is not followed" : "");
}

int
main(void)
{
    static struct fetch f;
    if (getuid() == 0 || geteuid() == 0) {
        (void)fputs("stockade-fetcher: the broker's spawner starts it, without rights\n", stderr);
        return EXIT_FAILURE;
    }
    int r = read_order(&f.order, &f.why);
    if (r == 0)
        r = limit_memory(&f.why);
    if (r == 0)
        r = set_up(&f);
    if (r == 0)
        r = confine_filter(false, &f.why);
    if (r == 0)
        r = perform(&f);
    f.part.err = f.why;
    f.part.last = r == 0;
    const bool sent = send_part(&f);
    curl_easy_cleanup(f.curl);
    curl_global_cleanup();
    leak_judge();
    _exit(sent ? EXIT_SUCCESS : EXIT_FAILURE);
}
