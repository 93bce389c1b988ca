// SPDX-License-Identifier: Apache-2.0
// See template_message.h: the first file of an archive. It is hostile: it is unpacked into a bounded arena and checked
// with the rules of the schema, as a request is, and then for what those cannot say.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "proto/validate.h"
#include "proto/wire.h"
#include "server/sandbox/template.h"
#include "server/snapshot/work.h"
#include "server/store/store.h"
#include "template_message.h"

static int
refuse(struct err *e, const char *what)
{
    int r = err_set(e, ERR_INVALID_ARGUMENT, "the archive is refused: %s", what);
    err_detail(e, "ARCHIVE_REFUSED", "archive", "load what \"stockade template push\" wrote");
    return r;
}

static int
check_env(const Stockade__V1__SandboxTemplate *t, struct err *e)
{
    size_t bytes = 0;
    for (size_t i = 0; i < t->n_env; i++) {
        const size_t n = strlen(t->env[i]->value);
        bytes += strlen(t->env[i]->name) + n;
        if (n >= sizeof((struct template_env *)NULL)->value)
            return refuse(e, "a variable is too long");
        for (size_t k = 0; k < i; k++)
            if (strcmp(t->env[i]->name, t->env[k]->name) == 0)
                return refuse(e, "a variable is there twice");
    }
    return bytes > MADE_ENV_BYTES ? refuse(e, "its environment is too large") : 0;
}

static int
check_layers(const Stockade__V1__TemplateArchive *m, struct err *e)
{
    uint64_t bytes = 0, files = 0;
    if (m->n_layers == 0)
        return refuse(e, "it has no layers");
    for (size_t i = 0; i < m->n_layers; i++) {
        if (m->layers[i]->bytes > INT64_MAX / STORE_LAYERS_MAX)
            return refuse(e, "a layer is too large");
        bytes += m->layers[i]->bytes;
        files += m->layers[i]->file_bytes;
    }
    // a link takes up to 4 KiB there, and counts 1 KiB; everything else takes less
    return files / 5 > bytes ? refuse(e, "its layers are larger than their files") : 0;
}

int
template_archive_read(const uint8_t *bytes, size_t n, struct arena *a,
                      Stockade__V1__TemplateArchive **out, struct err *e)
{
    ProtobufCMessage *m = NULL;
    struct err why;
    int rc = wire_unpack(&stockade__v1__template_archive__descriptor, bytes, n, a, &m, &why);
    if (rc < 0)
        return refuse(e, why.text);
    Stockade__V1__TemplateArchive *archive = (Stockade__V1__TemplateArchive *)m;
    if (archive->version > TEMPLATE_ARCHIVE_VERSION) {
        rc = err_set(e, ERR_FAILED_PRECONDITION,
                     "the archive is of version %u, and this broker knows up to %d",
                     archive->version, TEMPLATE_ARCHIVE_VERSION);
        err_detail(e, "ARCHIVE_NEWER", "archive", "load it with a newer broker");
        return rc;
    }
    if (validate_message(m, &why) < 0)
        return refuse(e, why.text);
    const Stockade__V1__SandboxTemplate *t = archive->template_;
    if (t->of_host || t->n_steps > 0)
        return refuse(e, "its template is none that was made from work");
    if (t->workdir[0] != '\0' && t->workdir[0] != '/')
        return refuse(e, "its working directory is no absolute path");
    rc = check_env(t, e);
    if (rc == 0)
        rc = check_layers(archive, e);
    if (rc == 0)
        *out = archive;
    return rc;
}

// ---- for the record

static Stockade__Work__Step *
step_of(const Stockade__V1__TemplateStep *s, struct arena *a)
{
    Stockade__Work__Step *m = wire_make(a, &stockade__work__step__descriptor);
    if (m == NULL)
        return NULL;
    m->command = s->command;
    m->end_ms = s->end_time != NULL && s->end_time->seconds >= 0 &&
                        s->end_time->seconds < INT64_MAX / 1000 - 1
                    ? s->end_time->seconds * 1000 + s->end_time->nanos / 1000000
                    : 0;
    m->outcome = (uint32_t)s->outcome;
    m->exit_code = s->exit_code;
    m->reached = s->destinations;
    m->n_reached = s->n_destinations;
    m->connections = s->connections;
    return m;
}

static Stockade__Work__Layer *
layer_of(const Stockade__V1__TemplateArchiveLayer *l, struct arena *a)
{
    Stockade__Work__Layer *m = wire_make(a, &stockade__work__layer__descriptor);
    if (m == NULL || (m->steps = arena_alloc(a, (l->n_steps + 1) * sizeof(void *))) == NULL)
        return NULL;
    m->omitted = l->steps_omitted;
    for (size_t i = 0; i < l->n_steps; i++)
        if ((m->steps[m->n_steps++] = step_of(l->steps[i], a)) == NULL)
            return NULL;
    return m;
}

static bool
fill(Stockade__Work__Work *w, const Stockade__V1__TemplateArchive *of, struct arena *a)
{
    const Stockade__V1__SandboxTemplate *t = of->template_;
    w->version = WORK_VERSION;
    w->made_on = t->made_on;
    w->snapshot = t->snapshot;
    w->network = t->network;
    w->principal = t->principal;
    w->workdir = t->workdir;
    w->layers = arena_alloc(a, (of->n_layers + 1) * sizeof(void *));
    w->env = arena_alloc(a, (t->n_env + 1) * sizeof(void *));
    bool good = w->layers != NULL && w->env != NULL;
    for (size_t i = 0; good && i < of->n_layers; i++)
        good = (w->layers[w->n_layers++] = layer_of(of->layers[i], a)) != NULL;
    for (size_t i = 0; good && i < t->n_env; i++) {
        Stockade__Work__Variable *v = wire_make(a, &stockade__work__variable__descriptor);
        good = v != NULL;
        if (!good)
            break;
        v->name = t->env[i]->name;
        v->value = t->env[i]->value;
        w->env[w->n_env++] = v;
    }
    return good;
}

uint8_t *
template_archive_about(const Stockade__V1__TemplateArchive *of, const char *loaded_by, size_t *n,
                       struct err *e)
{
    struct arena *auto_arena a = arena_new(WORK_ARENA_BYTES);
    Stockade__Work__Work *w = a == NULL ? NULL : wire_make(a, &stockade__work__work__descriptor);
    uint8_t *bytes = NULL;
    if (w != NULL && fill(w, of, a)) {
        w->loaded_by = loaded_by;
        bytes = work_pack(w, STORE_ABOUT_MAX, n);
    }
    if (bytes == NULL)
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "the archive says too much about itself");
    return bytes;
}
