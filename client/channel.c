// SPDX-License-Identifier: Apache-2.0
// See channel.h.
#include "channel.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct tls_module *module;
static certificates_make_fn *make_certificates;

// It stays loaded. In a build folder the caller's search path finds it; installed, it has a fixed place.
static void
load_module(void)
{
    static const char *const paths[] = {"stockade-tls.so", STOCKADE_MODULES "/stockade-tls.so"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0] && module == NULL; i++) {
        void *library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
        const struct tls_module *found = library != NULL ? dlsym(library, TLS_MODULE_SYMBOL) : NULL;
        if (found != NULL && found->version == TLS_MODULE_VERSION)
            module = found;
        if (module != NULL)
            *(void **)&make_certificates = dlsym(library, CERTIFICATES_SYMBOL);
    }
}

static int
missing(struct err *e)
{
    int rc = err_set(e, ERR_FAILED_PRECONDITION,
                     "this program has no TLS: stockade-tls.so of this version is missing");
    err_detail(e, "TLS_MISSING", "address",
               "install the package that has " STOCKADE_MODULES "/stockade-tls.so");
    return rc;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

int
channel_certificates(const struct certificate_order *o, struct err *e)
{
    (void)pthread_once(&once, load_module);
    return make_certificates != NULL ? make_certificates(o, e) : missing(e);
}

int
channel_tls(struct channel *c, const char *host, const struct tls_options *o, struct err *e)
{
    (void)pthread_once(&once, load_module);
    return module != NULL ? module->open(&c->tls, c->fd, host, o, e) : missing(e);
}

int
channel_shake(struct channel *c, bool *out, struct err *e)
{
    return module->shake(c->tls, out, e);
}

ssize_t
channel_send(struct channel *c, const void *bytes, size_t n)
{
    return c->tls != NULL ? module->send(c->tls, bytes, n)
                          : send(c->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t
channel_receive(struct channel *c, void *bytes, size_t n)
{
    return c->tls != NULL ? module->receive(c->tls, bytes, n) : recv(c->fd, bytes, n, MSG_DONTWAIT);
}

bool
channel_refused(const struct channel *c, struct err *e)
{
    return c->tls != NULL && module->refused(c->tls, e);
}

bool
channel_pending(const struct channel *c)
{
    return c->tls != NULL && module->pending(c->tls);
}

void
channel_close(struct channel *c)
{
    if (c->tls != NULL)
        module->close(c->tls);
    c->tls = NULL;
    if (c->fd >= 0)
        (void)close(c->fd);
    c->fd = -1;
}
