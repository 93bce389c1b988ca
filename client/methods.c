// SPDX-License-Identifier: Apache-2.0
// See methods.h.
#include "methods.h"

#include <string.h>

const struct method methods[] = {
    {"/stockade.v1.SandboxService/Create", false, true},
    {"/stockade.v1.SandboxService/Get", true, false},
    {"/stockade.v1.SandboxService/List", true, false},
    {"/stockade.v1.SandboxService/Update", true, false},
    {"/stockade.v1.SandboxService/Delete", true, false},
    {"/stockade.v1.SandboxService/Pause", true, false},
    {"/stockade.v1.SandboxService/Resume", true, false},
    {"/stockade.v1.ProcessService/Run", false, false},
    {"/stockade.v1.ProcessService/Start", false, false},
    {"/stockade.v1.ProcessService/Attach", true, false},
    {"/stockade.v1.ProcessService/Input", false, false},
    {"/stockade.v1.ProcessService/CloseInput", true, false},
    {"/stockade.v1.ProcessService/Signal", false, false},
    {"/stockade.v1.ProcessService/Resize", true, false},
    {"/stockade.v1.ProcessService/Wait", true, false},
    {"/stockade.v1.ProcessService/RunBatch", false, false},
    {"/stockade.v1.ProcessService/AddToBatch", true, false},
    {"/stockade.v1.ProcessService/List", true, false},
    {"/stockade.v1.SandboxService/Fork", false, true},
    {"/stockade.v1.SandboxService/Forward", false, false},
    {"/stockade.v1.SandboxService/ForwardInput", false, false},
    {"/stockade.v1.SandboxService/ForwardClose", true, false},
    {"/stockade.v1.SnapshotService/Create", false, false},
    {"/stockade.v1.SnapshotService/Get", true, false},
    {"/stockade.v1.SnapshotService/List", true, false},
    {"/stockade.v1.SnapshotService/Restore", true, false},
    {"/stockade.v1.SnapshotService/Delete", true, false},
    {"/stockade.v1.SnapshotService/Diff", true, false},
    {"/stockade.v1.SnapshotService/DiffFile", false, false},
    {"/stockade.v1.TemplateService/Create", false, false},
    {"/stockade.v1.TemplateService/Get", true, false},
    {"/stockade.v1.TemplateService/List", true, false},
    {"/stockade.v1.TemplateService/Delete", true, false},
    {"/stockade.v1.CodeService/CreateContext", false, true},
    {"/stockade.v1.CodeService/ListContexts", true, false},
    {"/stockade.v1.CodeService/RestartContext", true, false},
    {"/stockade.v1.CodeService/InterruptContext", true, false},
    {"/stockade.v1.CodeService/DeleteContext", true, false},
    {"/stockade.v1.CodeService/RunCode", false, false},
    {"/stockade.v1.FileService/Stat", true, false},
    {"/stockade.v1.FileService/List", true, false},
    {"/stockade.v1.FileService/Read", false, false},
    {"/stockade.v1.FileService/Write", false, false},
    {"/stockade.v1.FileService/OpenWrite", false, false},
    {"/stockade.v1.FileService/Send", true, false},
    {"/stockade.v1.FileService/Finish", true, false},
    {"/stockade.v1.FileService/MakeDir", false, false},
    {"/stockade.v1.FileService/Move", false, false},
    {"/stockade.v1.FileService/Copy", false, false},
    {"/stockade.v1.FileService/Remove", false, false},
    {"/stockade.v1.FileService/SetMode", true, false},
    {"/stockade.v1.FileService/Upload", false, false},
    {"/stockade.v1.FileService/Download", false, false},
    {"/stockade.v1.FileService/Watch", false, false},
    {"/stockade.v1.HealthService/Check", true, false},
    {"/stockade.v1.HealthService/Watch", true, false},
    {"/stockade.v1.ReflectionService/GetFileDescriptorSet", true, false},
    {"/stockade.v1.SystemService/Info", true, false},
    {"/stockade.v1.MetricsService/Get", true, false},
    {"/stockade.v1.AnomalyService/ListFindings", true, false},
    {"/stockade.v1.AnomalyService/ListRules", true, false},
    {"/stockade.v1.AnomalyService/ListProfiles", true, false},
    {"/stockade.v1.AnomalyService/ExportProfile", true, false},
    {"/stockade.v1.AnomalyService/ImportProfile", true, false},
    {"/stockade.v1.AnomalyService/ResetProfile", true, false},
    {"/stockade.v1.AnomalyService/FreezeProfile", true, false},
    {"/stockade.v1.TelemetryService/Subscribe", true, false},
    {"/stockade.v1.TelemetryService/GetRecord", true, false},
    {"/stockade.v1.TelemetryService/ListUsage", true, false},
    {0},
};

bool
method_wants_key(const char *path)
{
    for (const struct method *m = methods; m->path != NULL; m++)
        if (strcmp(m->path, path) == 0)
            return m->key;
    return true;
}
