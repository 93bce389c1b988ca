// SPDX-License-Identifier: Apache-2.0
// See yaml_write.h.
#include "yaml_write.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "utf8.h"

struct writing {
    char *out;
    size_t room, n; // n: of the whole text
};

static void
add_bytes(struct writing *w, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++, w->n++)
        if (w->n + 1 < w->room)
            w->out[w->n] = text[i];
}

static void
add(struct writing *w, const char *text)
{
    add_bytes(w, text, strlen(text));
}

static void
add_line(struct writing *w, unsigned indent)
{
    add(w, "\n");
    for (unsigned i = 0; i < indent; i++)
        add(w, " ");
}

// ---- texts

// Whether it means itself without quotes, also inside of brackets.
static bool
is_plain(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    static const char others[] = "_/.+-@:";
    const size_t n = strlen(text);
    if (n == 0 || (strchr(letters, text[0]) == NULL && text[0] != '/' && text[0] != '_') ||
        text[n - 1] == ':')
        return false;
    for (size_t i = 0; i < n; i++)
        if (strchr(letters, text[i]) == NULL && strchr(others, text[i]) == NULL)
            return false;
    return true;
}

// Whether a character means itself between quotes: it is neither a line end for YAML (U+0085, U+2028, U+2029) nor one that must not
// stand in a file (YAML 1.1, section 5.1), nor one that makes a line look like another one (U+200B to U+200F, and those of
// https://www.unicode.org/reports/tr9/ that embed, override and isolate).
static bool
is_shown(uint32_t c)
{
    return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && !(c >= 0x200b && c <= 0x200f) &&
           !(c >= 0x2028 && c <= 0x202e) && !(c >= 0x2060 && c <= 0x206f) && c != 0xfeff &&
           c != 0xfffe && c != 0xffff;
}

static void
add_quoted(struct writing *w, const char *text)
{
    char hex[8];
    size_t n = 0;
    add(w, "\"");
    for (const char *p = text; *p != '\0'; p += n) {
        uint32_t c = 0xfffd; // of a byte that is none
        n = utf8_decode(p, UTF8_MAX, &c);
        const bool shown = n != 0 && is_shown(c);
        n = n != 0 ? n : 1;
        if (*p == '"' || *p == '\\')
            add(w, "\\");
        if (shown) {
            add_bytes(w, p, n);
            continue;
        }
        (void)snprintf(hex, sizeof hex, "\\u%04x", (unsigned)c);
        add(w, hex);
    }
    add(w, "\"");
}

static void
add_text(struct writing *w, const char *text)
{
    if (is_plain(text))
        add(w, text);
    else
        add_quoted(w, text);
}

// ---- values

static void write_message(struct writing *w, const ProtobufCMessage *m, enum yaml_style style,
                          unsigned indent, bool begun);

static void
add_word(struct writing *w, const ProtobufCEnumDescriptor *type, uint32_t value)
{
    const size_t prefix = strlen(type->values[0].name) - (sizeof "UNSPECIFIED" - 1);
    for (unsigned i = 0; i < type->n_values; i++) {
        if ((uint32_t)type->values[i].value != value)
            continue;
        for (const char *p = type->values[i].name + prefix; *p != '\0'; p++) {
            const char c = (char)(*p >= 'A' && *p <= 'Z' ? *p - 'A' + 'a' : *p);
            add_bytes(w, &c, 1);
        }
        return;
    }
}

// A value at this address, which has the type of the field. Never a message.
static void
add_scalar(struct writing *w, const ProtobufCFieldDescriptor *f, const void *at)
{
    char number[24];
    uint64_t v = 0;
    if (f->type == PROTOBUF_C_TYPE_STRING) {
        add_text(w, *(const char *const *)at);
    } else if (f->type == PROTOBUF_C_TYPE_BOOL) {
        add(w, *(const protobuf_c_boolean *)at ? "true" : "false");
    } else if (f->type == PROTOBUF_C_TYPE_ENUM) {
        add_word(w, f->descriptor, *(const uint32_t *)at);
    } else {
        v = f->type == PROTOBUF_C_TYPE_UINT64 ? *(const uint64_t *)at : *(const uint32_t *)at;
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)v);
        add(w, number);
    }
}

static bool
is_set(const ProtobufCFieldDescriptor *f, const void *at)
{
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(const void *const *)at != NULL;
    if (f->type == PROTOBUF_C_TYPE_STRING)
        return *(const char *const *)at != NULL && (*(const char *const *)at)[0] != '\0';
    if (f->type == PROTOBUF_C_TYPE_UINT64)
        return *(const uint64_t *)at != 0;
    return *(const uint32_t *)at != 0; // protobuf-c's bool is an int
}

static size_t
size_of(const ProtobufCFieldDescriptor *f)
{
    if (f->type == PROTOBUF_C_TYPE_MESSAGE || f->type == PROTOBUF_C_TYPE_STRING)
        return sizeof(void *);
    return f->type == PROTOBUF_C_TYPE_UINT64 ? sizeof(uint64_t) : sizeof(uint32_t);
}

// Elements of a repeated field. Texts and numbers stay in one line in any case.
static void
write_list(struct writing *w, const ProtobufCFieldDescriptor *f, const char *all, size_t n,
           enum yaml_style style, unsigned indent)
{
    const bool messages = f->type == PROTOBUF_C_TYPE_MESSAGE;
    const bool block = messages && style == YAML_BLOCK;
    add(w, block ? "" : "[");
    for (size_t i = 0; i < n; i++) {
        const void *at = all + i * size_of(f);
        if (block) {
            add_line(w, indent);
            add(w, "- ");
        } else if (i > 0) {
            add(w, ", ");
        }
        if (messages)
            write_message(w, *(const ProtobufCMessage *const *)at, style, indent + 2, true);
        else
            add_scalar(w, f, at);
    }
    add(w, block ? "" : "]");
}

// begun: the first key stands behind what is there.
static void
write_message(struct writing *w, const ProtobufCMessage *m, enum yaml_style style, unsigned indent,
              bool begun)
{
    bool first = true;
    add(w, style == YAML_LINE ? "{" : "");
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        const char *at = (const char *)m + f->offset;
        const bool list = f->label == PROTOBUF_C_LABEL_REPEATED;
        const size_t n =
            list ? *(const size_t *)(const void *)((const char *)m + f->quantifier_offset) : 0;
        if (list ? n == 0 : !is_set(f, at))
            continue;
        if (style == YAML_LINE)
            add(w, first ? "" : ", ");
        else if (!first || !begun)
            add_line(w, indent);
        first = false;
        add(w, f->name);
        add(w, ":");
        if (list) {
            add(w, style == YAML_BLOCK && f->type == PROTOBUF_C_TYPE_MESSAGE ? "" : " ");
            write_list(w, f, *(const char *const *)(const void *)at, n, style, indent + 2);
        } else if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
            // Inner mappings are short: a match, limits, a rate.
            add(w, " ");
            write_message(w, *(const ProtobufCMessage *const *)(const void *)at, YAML_LINE, 0,
                          true);
        } else {
            add(w, " ");
            add_scalar(w, f, at);
        }
    }
    add(w, style == YAML_LINE ? "}" : "");
}

static size_t
end(const struct writing *w, char *out, size_t n)
{
    if (n > 0)
        out[w->n < n ? w->n : n - 1] = '\0';
    return w->n;
}

size_t
yaml_write(const ProtobufCMessage *m, enum yaml_style style, char *out, size_t n)
{
    struct writing w = {out, n, 0};
    write_message(&w, m, style, 0, true);
    if (style == YAML_BLOCK)
        add(&w, "\n");
    return end(&w, out, n);
}

size_t
yaml_write_quoted(const char *text, char *out, size_t n)
{
    struct writing w = {out, n, 0};
    add_quoted(&w, text);
    return end(&w, out, n);
}
