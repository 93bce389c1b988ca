// SPDX-License-Identifier: Apache-2.0
// See approval_call.h.
//
// A request is packed again after it was read, so what a digest covers is what runs: no unknown field, no field twice. `around` is the
// digest without the arguments of the command; the line about a command is written so that no two commands have the same.
#include "approval_call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "stockade/v1/process_service.pb-c.h"

enum { CALL_LINE_MAX = APPROVAL_SUBJECT_MAX };

struct line {
    char *text; // CALL_LINE_MAX + 1
    size_t n;
    bool cut;
};

static void
put(struct line *l, const char *text, size_t n)
{
    if (l->cut || l->n + n > CALL_LINE_MAX) {
        l->cut = true;
        return;
    }
    memcpy(l->text + l->n, text, n);
    l->n += n;
}

static void
put_escaped(struct line *l, const char *text)
{
    put(l, "$'", 2);
    for (; *text != '\0'; text++) {
        char code[8];
        const unsigned char c = (unsigned char)*text;
        const bool control = c < ' ' || c == 0x7f;
        if (control)
            (void)snprintf(code, sizeof code, "\\x%02x", c);
        else
            (void)snprintf(code, sizeof code, "%s%c", c == '\'' || c == '\\' ? "\\" : "", c);
        put(l, code, strlen(code));
    }
    put(l, "'", 1);
}

static bool
has_control(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return true;
    return false;
}

// As a shell would read it.
static void
put_word(struct line *l, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    const size_t n = strlen(word);
    if (n > 0 && strspn(word, plain) == n) {
        put(l, word, n);
    } else if (strchr(word, '\'') != NULL || has_control(word)) {
        put_escaped(l, word);
    } else {
        put(l, "'", 1);
        put(l, word, n);
        put(l, "'", 1);
    }
}

// What was cut ends with a whole character.
static const char *
end_line(struct line *l)
{
    while (l->cut && l->n > 0 && ((unsigned char)l->text[l->n - 1] & 0xc0) == 0x80)
        l->n--;
    if (l->cut && l->n > 0 && ((unsigned char)l->text[l->n - 1] & 0x80) != 0)
        l->n--;
    l->text[l->n] = '\0';
    return l->text;
}

static const Stockade__V1__Command *
command_of(const ProtobufCMessage *m, const ProtobufCFieldDescriptor **out)
{
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "command");
    if (f == NULL || f->type != PROTOBUF_C_TYPE_MESSAGE || f->label == PROTOBUF_C_LABEL_REPEATED ||
        f->descriptor != &stockade__v1__command__descriptor)
        return NULL;
    *out = f;
    return *(Stockade__V1__Command *const *)(const void *)((const char *)m + f->offset);
}

static void
describe_command(struct line *l, const Stockade__V1__Command *c)
{
    for (size_t i = 0; i < c->n_args; i++) {
        put(l, " ", i > 0);
        put_word(l, c->args[i]);
    }
}

// The texts of a request: "sandbox_id=1f0c... path=/data".
static void
describe_fields(struct line *l, const ProtobufCMessage *m)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        if (f->type != PROTOBUF_C_TYPE_STRING || f->label == PROTOBUF_C_LABEL_REPEATED ||
            (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0)
            continue;
        const char *value = *(const char *const *)(const void *)((const char *)m + f->offset);
        if (value == NULL || value[0] == '\0')
            continue;
        put(l, " ", l->n > 0);
        put(l, f->name, strlen(f->name));
        put(l, "=", 1);
        put_word(l, value);
    }
}

static uint8_t *
pack(const ProtobufCMessage *m, struct arena *a, size_t *n)
{
    *n = protobuf_c_message_get_packed_size(m);
    uint8_t *packed = arena_alloc(a, *n + 1);
    if (packed != NULL)
        (void)protobuf_c_message_pack(m, packed);
    return packed;
}

// The digest of the request as if its command had no arguments.
static bool
digest_around(const char *method, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
              struct arena *a, struct approval_call *out)
{
    size_t n = 0;
    const Stockade__V1__Command *bare = NULL;
    Stockade__V1__Command *c = arena_alloc(a, sizeof *c);
    char *copy = arena_alloc(a, m->descriptor->sizeof_message);
    if (c == NULL || copy == NULL)
        return false;
    memcpy(copy, m, m->descriptor->sizeof_message);
    memcpy(c, *(Stockade__V1__Command *const *)(void *)(copy + f->offset), sizeof *c);
    c->n_args = 0;
    bare = c;
    memcpy(copy + f->offset, &bare, sizeof(void *));
    const uint8_t *packed = pack((const ProtobufCMessage *)(void *)copy, a, &n);
    if (packed != NULL)
        approval_digest(method, packed, n, out->around);
    return packed != NULL;
}

int
approval_call_read(const char *method, const ProtobufCMessage *request, struct arena *a,
                   struct approval_call *out, struct err *e)
{
    const ProtobufCFieldDescriptor *f = NULL;
    const Stockade__V1__Command *c = command_of(request, &f);
    struct line line = {.text = arena_alloc(a, CALL_LINE_MAX + 1)};
    size_t n = 0;
    const uint8_t *packed = pack(request, a, &n);
    *out = (struct approval_call){.method = method, .request_n = n};
    if (line.text == NULL || packed == NULL)
        return err_sys(e, ENOMEM, "describe the call");
    approval_digest(method, packed, n, out->digest);
    out->request = n <= APPROVAL_REQUEST_MAX ? packed : NULL;
    if (c == NULL)
        describe_fields(&line, request);
    else
        describe_command(&line, c);
    out->subject = end_line(&line);
    out->has_command = c != NULL && !line.cut;
    if (out->has_command && !digest_around(method, request, f, a, out))
        return err_sys(e, ENOMEM, "describe the call");
    return 0;
}
