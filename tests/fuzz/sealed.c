// SPDX-License-Identifier: Apache-2.0
// Encrypted objects: any bytes are refused, for nobody can make ones that pass; and the stream of files in a sealed layer, which is
// encrypted here first, so that each byte of it gets to its reader: it is read to its end or refused, and nothing is made. What
// the judge of foreign streams accepts, its reader accepts as well.
#include <assert.h>
#include <sodium.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/sealed.h"
#include "server/keeper/work.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static const struct sealed_key key = {.id = {1}, .contents = {2}, .names = {3}};

struct span {
    const uint8_t *bytes;
    size_t at, n;
};

static long
get(void *cookie, void *bytes, size_t room, struct err *e)
{
    struct span *s = cookie;
    const size_t n = room < s->n - s->at ? room : s->n - s->at;
    (void)e;
    if (n > 0)
        memcpy(bytes, s->bytes + s->at, n);
    s->at += n;
    return (long)n;
}

static int
read_layer(const uint8_t *bytes, size_t n, const struct foreign *foreign)
{
    static struct sealed_reader r;
    const struct sealed_what what = {.kind = SEALED_LAYER};
    const struct unseal u = {.key = &key, .layer_fd = -1, .foreign = foreign};
    uint8_t *sealed = NULL;
    size_t sealed_n = 0;
    struct digest d;
    struct err e = {.code = ERR_OK};
    assert(sealed_bytes(&key, &what, bytes, n, &sealed, &sealed_n, &e) == 0);
    struct span s = {sealed, 0, sealed_n};
    r.get = get;
    r.cookie = &s;
    int rc = unseal_layer(&r, &u, &d, &e);
    assert(rc == 0 ? s.at == sealed_n && d.entries > 0
                   : e.code == ERR_DATA_LOSS ||
                         (foreign != NULL &&
                          (e.code == ERR_INVALID_ARGUMENT || e.code == ERR_RESOURCE_EXHAUSTED)));
    free(sealed);
    return rc;
}

// The keeper asks its socket between two files whether it is still wanted.
static void
be_wanted(void)
{
    static bool done;
    int pair[2];
    if (done)
        return;
    assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    assert(pair[0] == KEEP_BROKER_FD || dup2(pair[0], KEEP_BROKER_FD) == KEEP_BROKER_FD);
    done = true;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const struct sealed_what what = {SEALED_ABOUT, "one", 3};
    uint8_t *out = NULL;
    size_t out_n = 0;
    struct err e;
    be_wanted();
    assert(sealed_unbytes(&key, &what, bytes, n, &out, &out_n, &e) < 0 && out == NULL);
    assert(e.code == ERR_DATA_LOSS || e.code == ERR_FAILED_PRECONDITION);
    static const struct foreign rules = {.bytes_max = 1 << 20, .parts_max = 2};
    const int any = read_layer(bytes, n, NULL);
    assert(read_layer(bytes, n, &rules) != 0 || any == 0);
    return 0;
}
