// SPDX-License-Identifier: Apache-2.0
// See err.h. Plain formatting into fixed buffers: nothing here allocates.
#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct code_row {
    const char *name;
    int sys; // the errno that a function returns for it
};

static const struct code_row codes[] = {
    [ERR_OK] = {"OK", EIO},
    [ERR_CANCELLED] = {"CANCELLED", ECANCELED},
    [ERR_UNKNOWN] = {"UNKNOWN", EIO},
    [ERR_INVALID_ARGUMENT] = {"INVALID_ARGUMENT", EINVAL},
    [ERR_DEADLINE_EXCEEDED] = {"DEADLINE_EXCEEDED", ETIMEDOUT},
    [ERR_NOT_FOUND] = {"NOT_FOUND", ENOENT},
    [ERR_ALREADY_EXISTS] = {"ALREADY_EXISTS", EEXIST},
    [ERR_PERMISSION_DENIED] = {"PERMISSION_DENIED", EACCES},
    [ERR_RESOURCE_EXHAUSTED] = {"RESOURCE_EXHAUSTED", ENOSPC},
    [ERR_FAILED_PRECONDITION] = {"FAILED_PRECONDITION", EBUSY},
    [ERR_ABORTED] = {"ABORTED", EAGAIN},
    [ERR_OUT_OF_RANGE] = {"OUT_OF_RANGE", ERANGE},
    [ERR_UNIMPLEMENTED] = {"UNIMPLEMENTED", ENOSYS},
    [ERR_INTERNAL] = {"INTERNAL", EIO},
    [ERR_UNAVAILABLE] = {"UNAVAILABLE", ECONNREFUSED},
    [ERR_DATA_LOSS] = {"DATA_LOSS", EBADMSG},
    [ERR_UNAUTHENTICATED] = {"UNAUTHENTICATED", EACCES},
};
enum { CODES_N = sizeof codes / sizeof codes[0] };

static bool
code_is_known(int code)
{
    return code >= 0 && code < CODES_N;
}

const char *
err_code_name(int code)
{
    return code_is_known(code) ? codes[code].name : "UNKNOWN";
}

int
err_errno(const struct err *e)
{
    if (e->sys > 0)
        return -e->sys;
    return -codes[code_is_known(e->code) ? e->code : ERR_INTERNAL].sys;
}

static void set_text(struct err *e, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));

static void
set_text(struct err *e, const char *fmt, va_list ap)
{
    (void)vsnprintf(e->text, sizeof e->text, fmt, ap);
}

static void
copy_text(char *to, size_t n, const char *from)
{
    (void)snprintf(to, n, "%s", from);
}

// These functions neither allocate nor translate.
static const char *
error_name(int sys)
{
#ifdef __GLIBC__
    return strerrordesc_np(sys);
#else // musl
    return strerror(sys);
#endif
}

int
err_sys(struct err *e, int sys, const char *fmt, ...)
{
    *e = (struct err){.sys = sys < 0 ? -sys : sys, .code = ERR_INTERNAL};
    if (e->sys == ENOMEM || e->sys == EAGAIN || e->sys == EMFILE || e->sys == ENFILE)
        e->code = ERR_RESOURCE_EXHAUSTED;
    va_list ap;
    va_start(ap, fmt);
    set_text(e, fmt, ap);
    va_end(ap);
    size_t used = strlen(e->text);
    const char *name = error_name(e->sys);
    (void)snprintf(e->text + used, sizeof e->text - used, ": %s",
                   name != NULL ? name : "unknown error");
    return err_errno(e);
}

int
err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    *e = (struct err){.code = (int32_t)code};
    va_list ap;
    va_start(ap, fmt);
    set_text(e, fmt, ap);
    va_end(ap);
    return err_errno(e);
}

int
err_field(struct err *e, const char *field, const char *fmt, ...)
{
    *e = (struct err){.code = ERR_INVALID_ARGUMENT};
    copy_text(e->subject, sizeof e->subject, field);
    copy_text(e->reason, sizeof e->reason, "FIELD_INVALID");
    int used = snprintf(e->text, sizeof e->text, "%s: ", e->subject);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(e->text + used, sizeof e->text - (size_t)used, fmt, ap);
    va_end(ap);
    return -EINVAL;
}

int
err_wrap(struct err *e, const char *fmt, ...)
{
    char inner[sizeof e->text];
    copy_text(inner, sizeof inner, e->text);
    va_list ap;
    va_start(ap, fmt);
    set_text(e, fmt, ap);
    va_end(ap);
    size_t used = strlen(e->text);
    (void)snprintf(e->text + used, sizeof e->text - used, ": %s", inner);
    return err_errno(e);
}

void
err_detail(struct err *e, const char *reason, const char *subject, const char *hint)
{
    if (reason != NULL)
        copy_text(e->reason, sizeof e->reason, reason);
    if (subject != NULL)
        copy_text(e->subject, sizeof e->subject, subject);
    if (hint != NULL)
        copy_text(e->hint, sizeof e->hint, hint);
}

void
err_rule(struct err *e, const char *rule, const char *allowed)
{
    if (rule != NULL)
        copy_text(e->rule, sizeof e->rule, rule);
    if (allowed != NULL)
        copy_text(e->allowed, sizeof e->allowed, allowed);
}

static void
sanitize_text(char *text, size_t n)
{
    text[n - 1] = '\0';
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
            *p = '?';
}

void
err_sanitize(struct err *e)
{
    if (!code_is_known(e->code) || e->code == ERR_OK)
        e->code = ERR_INTERNAL;
    if (e->sys < 0 || e->sys > 4095)
        e->sys = 0;
    sanitize_text(e->reason, sizeof e->reason);
    sanitize_text(e->subject, sizeof e->subject);
    sanitize_text(e->hint, sizeof e->hint);
    sanitize_text(e->text, sizeof e->text);
    sanitize_text(e->rule, sizeof e->rule);
    sanitize_text(e->allowed, sizeof e->allowed);
}
