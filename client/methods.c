// See methods.h.
#include "methods.h"

#include <string.h>

const struct method methods[] = {
    {"/stockade.v1.SandboxService/Create", false},
    {"/stockade.v1.SandboxService/Get", true},
    {"/stockade.v1.SandboxService/List", true},
    {"/stockade.v1.SandboxService/Update", true},
    {"/stockade.v1.SandboxService/Delete", true},
    {"/stockade.v1.SandboxService/Pause", true},
    {"/stockade.v1.SandboxService/Resume", true},
    {"/stockade.v1.ProcessService/Run", false},
    {"/stockade.v1.ProcessService/Start", false},
    {"/stockade.v1.ProcessService/Attach", true},
    {"/stockade.v1.ProcessService/Input", false},
    {"/stockade.v1.ProcessService/CloseInput", true},
    {"/stockade.v1.ProcessService/Signal", false},
    {"/stockade.v1.ProcessService/Resize", true},
    {"/stockade.v1.ProcessService/Wait", true},
    {"/stockade.v1.ProcessService/List", true},
    {"/stockade.v1.HealthService/Check", true},
    {"/stockade.v1.HealthService/Watch", true},
    {"/stockade.v1.ReflectionService/GetFileDescriptorSet", true},
    {"/stockade.v1.SystemService/Info", true},
    {0},
};

bool
method_is_idempotent(const char *path)
{
    for (const struct method *m = methods; m->path != NULL; m++)
        if (strcmp(m->path, path) == 0)
            return m->idempotent;
    return false;
}
