# SPDX-License-Identifier: Apache-2.0
"""The methods of the public API: paths, messages, and the rules that the .proto files give them.

The rules (deadline, idempotency) are read from the options in the descriptors, so they are the
broker's own.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Optional, TypeVar

from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from stockade.v1 import (
    access_service_pb2,
    anomaly_service_pb2,
    approval_service_pb2,
    audit_service_pb2,
    code_service_pb2,
    file_service_pb2,
    options_pb2,
    policy_service_pb2,
    process_service_pb2,
    rules_service_pb2,
    sandbox_service_pb2,
    snapshot_service_pb2,
    system_service_pb2,
    telemetry_service_pb2,
    template_service_pb2,
    transaction_service_pb2,
    volume_service_pb2,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True)
class Method(Generic[Request, Response]):
    """One method."""

    #: ``/stockade.v1.Service/Method``
    path: str
    #: Class of the request.
    request: type[Request]
    #: Class of the response, or of one message of the stream.
    response: type[Response]
    #: It answers with a stream.
    streaming: bool
    #: Doing it twice is the same as doing it once.
    idempotent: bool
    #: Longest deadline in seconds; None: no limit.
    deadline: Optional[float]
    #: It goes out with an idempotency key, so that it may be sent again to the same broker.
    keyed: bool


@functools.lru_cache(maxsize=16)
def _file(serialized: bytes) -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto.FromString(serialized)


def from_descriptor(
    descriptor: MethodDescriptor, request: type[Request], response: type[Response]
) -> Method[Request, Response]:
    """Make a method from its descriptor, of whichever pool, and the classes of its messages."""
    service = descriptor.containing_service
    file = _file(service.file.serialized_pb)
    protos = {(s.name, m.name): m for s in file.service for m in s.method}
    proto = protos[service.name, descriptor.name]
    extension: Any = options_pb2.method
    rules: options_pb2.MethodRules = proto.options.Extensions[extension]
    return Method(
        path=f"/{service.full_name}/{descriptor.name}",
        request=request,
        response=response,
        streaming=proto.server_streaming,
        idempotent=rules.idempotent,
        deadline=rules.deadline_ms_max / 1000 or None,
        keyed=not rules.idempotent and not proto.server_streaming,
    )


def _method(
    path: str, request: type[Request], response: type[Response]
) -> Method[Request, Response]:
    service, name = path.split("/")
    descriptor: Any = request.DESCRIPTOR.file.services_by_name[service].methods_by_name[name]
    return from_descriptor(descriptor, request, response)


_sandbox = sandbox_service_pb2
CREATE = _method(
    "SandboxService/Create",
    _sandbox.SandboxServiceCreateRequest,
    _sandbox.SandboxServiceCreateResponse,
)
GET = _method(
    "SandboxService/Get", _sandbox.SandboxServiceGetRequest, _sandbox.SandboxServiceGetResponse
)
LIST = _method(
    "SandboxService/List", _sandbox.SandboxServiceListRequest, _sandbox.SandboxServiceListResponse
)
UPDATE = _method(
    "SandboxService/Update",
    _sandbox.SandboxServiceUpdateRequest,
    _sandbox.SandboxServiceUpdateResponse,
)
DELETE = _method(
    "SandboxService/Delete",
    _sandbox.SandboxServiceDeleteRequest,
    _sandbox.SandboxServiceDeleteResponse,
)
PAUSE = _method(
    "SandboxService/Pause",
    _sandbox.SandboxServicePauseRequest,
    _sandbox.SandboxServicePauseResponse,
)
RESUME = _method(
    "SandboxService/Resume",
    _sandbox.SandboxServiceResumeRequest,
    _sandbox.SandboxServiceResumeResponse,
)
SLEEP = _method(
    "SandboxService/Sleep",
    _sandbox.SandboxServiceSleepRequest,
    _sandbox.SandboxServiceSleepResponse,
)
WAKE = _method(
    "SandboxService/Wake", _sandbox.SandboxServiceWakeRequest, _sandbox.SandboxServiceWakeResponse
)

FORK = _method(
    "SandboxService/Fork", _sandbox.SandboxServiceForkRequest, _sandbox.SandboxServiceForkResponse
)
FORWARD = _method(
    "SandboxService/Forward",
    _sandbox.SandboxServiceForwardRequest,
    _sandbox.SandboxServiceForwardResponse,
)
FORWARD_INPUT = _method(
    "SandboxService/ForwardInput",
    _sandbox.SandboxServiceForwardInputRequest,
    _sandbox.SandboxServiceForwardInputResponse,
)
FORWARD_CLOSE = _method(
    "SandboxService/ForwardClose",
    _sandbox.SandboxServiceForwardCloseRequest,
    _sandbox.SandboxServiceForwardCloseResponse,
)

_process = process_service_pb2
RUN = _method("ProcessService/Run", _process.RunRequest, _process.RunResponse)
# A stream, but its process continues without a reader: the same key finds it again.
START = replace(
    _method("ProcessService/Start", _process.StartRequest, _process.StartResponse), keyed=True
)
ATTACH = _method("ProcessService/Attach", _process.AttachRequest, _process.AttachResponse)
INPUT = _method("ProcessService/Input", _process.InputRequest, _process.InputResponse)
CLOSE_INPUT = _method(
    "ProcessService/CloseInput", _process.CloseInputRequest, _process.CloseInputResponse
)
SIGNAL = _method("ProcessService/Signal", _process.SignalRequest, _process.SignalResponse)
RESIZE = _method("ProcessService/Resize", _process.ResizeRequest, _process.ResizeResponse)
WAIT = _method("ProcessService/Wait", _process.WaitRequest, _process.WaitResponse)
RUN_BATCH = _method("ProcessService/RunBatch", _process.RunBatchRequest, _process.RunBatchResponse)
ADD_TO_BATCH = _method(
    "ProcessService/AddToBatch", _process.AddToBatchRequest, _process.AddToBatchResponse
)
LIST_PROCESSES = _method(
    "ProcessService/List", _process.ProcessServiceListRequest, _process.ProcessServiceListResponse
)

_code = code_service_pb2
CREATE_CONTEXT = _method(
    "CodeService/CreateContext", _code.CreateContextRequest, _code.CreateContextResponse
)
LIST_CONTEXTS = _method(
    "CodeService/ListContexts", _code.ListContextsRequest, _code.ListContextsResponse
)
RESTART_CONTEXT = _method(
    "CodeService/RestartContext", _code.RestartContextRequest, _code.RestartContextResponse
)
INTERRUPT_CONTEXT = _method(
    "CodeService/InterruptContext", _code.InterruptContextRequest, _code.InterruptContextResponse
)
DELETE_CONTEXT = _method(
    "CodeService/DeleteContext", _code.DeleteContextRequest, _code.DeleteContextResponse
)
CHECKPOINT_CONTEXT = _method(
    "CodeService/CheckpointContext",
    _code.CheckpointContextRequest,
    _code.CheckpointContextResponse,
)
LIST_CHECKPOINTS = _method(
    "CodeService/ListCheckpoints", _code.ListCheckpointsRequest, _code.ListCheckpointsResponse
)
DELETE_CHECKPOINT = _method(
    "CodeService/DeleteCheckpoint", _code.DeleteCheckpointRequest, _code.DeleteCheckpointResponse
)
RESTORE_CONTEXT = _method(
    "CodeService/RestoreContext", _code.RestoreContextRequest, _code.RestoreContextResponse
)
FORK_CONTEXT = _method(
    "CodeService/ForkContext", _code.ForkContextRequest, _code.ForkContextResponse
)
RUN_CODE = _method("CodeService/RunCode", _code.RunCodeRequest, _code.RunCodeResponse)

_system = system_service_pb2
HEALTH_CHECK = _method(
    "HealthService/Check", _system.HealthServiceCheckRequest, _system.HealthServiceCheckResponse
)
HEALTH_WATCH = _method(
    "HealthService/Watch", _system.HealthServiceWatchRequest, _system.HealthServiceWatchResponse
)
REFLECT = _method(
    "ReflectionService/GetFileDescriptorSet",
    _system.GetFileDescriptorSetRequest,
    _system.GetFileDescriptorSetResponse,
)
INFO = _method("SystemService/Info", _system.InfoRequest, _system.InfoResponse)

_telemetry = telemetry_service_pb2
SUBSCRIBE = _method(
    "TelemetryService/Subscribe", _telemetry.SubscribeRequest, _telemetry.SubscribeResponse
)
GET_RECORD = _method(
    "TelemetryService/GetRecord", _telemetry.GetRecordRequest, _telemetry.GetRecordResponse
)
LIST_USAGE = _method(
    "TelemetryService/ListUsage", _telemetry.ListUsageRequest, _telemetry.ListUsageResponse
)

_snapshot = snapshot_service_pb2
CREATE_SNAPSHOT = _method(
    "SnapshotService/Create",
    _snapshot.SnapshotServiceCreateRequest,
    _snapshot.SnapshotServiceCreateResponse,
)
GET_SNAPSHOT = _method(
    "SnapshotService/Get",
    _snapshot.SnapshotServiceGetRequest,
    _snapshot.SnapshotServiceGetResponse,
)
LIST_SNAPSHOTS = _method(
    "SnapshotService/List",
    _snapshot.SnapshotServiceListRequest,
    _snapshot.SnapshotServiceListResponse,
)
DIFF_SNAPSHOTS = _method(
    "SnapshotService/Diff",
    _snapshot.SnapshotServiceDiffRequest,
    _snapshot.SnapshotServiceDiffResponse,
)
DIFF_FILE = _method(
    "SnapshotService/DiffFile",
    _snapshot.SnapshotServiceDiffFileRequest,
    _snapshot.SnapshotServiceDiffFileResponse,
)
RESTORE_SNAPSHOT = _method(
    "SnapshotService/Restore",
    _snapshot.SnapshotServiceRestoreRequest,
    _snapshot.SnapshotServiceRestoreResponse,
)
DELETE_SNAPSHOT = _method(
    "SnapshotService/Delete",
    _snapshot.SnapshotServiceDeleteRequest,
    _snapshot.SnapshotServiceDeleteResponse,
)

_transaction = transaction_service_pb2
BEGIN_TRANSACTION = _method(
    "TransactionService/Begin",
    _transaction.TransactionServiceBeginRequest,
    _transaction.TransactionServiceBeginResponse,
)
GET_TRANSACTION = _method(
    "TransactionService/Get",
    _transaction.TransactionServiceGetRequest,
    _transaction.TransactionServiceGetResponse,
)
LIST_TRANSACTIONS = _method(
    "TransactionService/List",
    _transaction.TransactionServiceListRequest,
    _transaction.TransactionServiceListResponse,
)
COMMIT_TRANSACTION = _method(
    "TransactionService/Commit",
    _transaction.TransactionServiceCommitRequest,
    _transaction.TransactionServiceCommitResponse,
)
DISCARD_TRANSACTION = _method(
    "TransactionService/Discard",
    _transaction.TransactionServiceDiscardRequest,
    _transaction.TransactionServiceDiscardResponse,
)

_template = template_service_pb2
CREATE_TEMPLATE = _method(
    "TemplateService/Create",
    _template.TemplateServiceCreateRequest,
    _template.TemplateServiceCreateResponse,
)
GET_TEMPLATE = _method(
    "TemplateService/Get",
    _template.TemplateServiceGetRequest,
    _template.TemplateServiceGetResponse,
)
LIST_TEMPLATES = _method(
    "TemplateService/List",
    _template.TemplateServiceListRequest,
    _template.TemplateServiceListResponse,
)
DELETE_TEMPLATE = _method(
    "TemplateService/Delete",
    _template.TemplateServiceDeleteRequest,
    _template.TemplateServiceDeleteResponse,
)
PUSH_TEMPLATE = _method(
    "TemplateService/Push",
    _template.TemplateServicePushRequest,
    _template.TemplateServicePushResponse,
)
LOAD_TEMPLATE = _method(
    "TemplateService/Load",
    _template.TemplateServiceLoadRequest,
    _template.TemplateServiceLoadResponse,
)

_anomaly = anomaly_service_pb2
LIST_FINDINGS = _method(
    "AnomalyService/ListFindings", _anomaly.ListFindingsRequest, _anomaly.ListFindingsResponse
)
ACKNOWLEDGE_FINDING = _method(
    "AnomalyService/AcknowledgeFinding",
    _anomaly.AcknowledgeFindingRequest,
    _anomaly.AcknowledgeFindingResponse,
)
LIST_ACKNOWLEDGED = _method(
    "AnomalyService/ListAcknowledged",
    _anomaly.ListAcknowledgedRequest,
    _anomaly.ListAcknowledgedResponse,
)
CREATE_SILENCE = _method(
    "AnomalyService/CreateSilence", _anomaly.CreateSilenceRequest, _anomaly.CreateSilenceResponse
)
LIST_SILENCES = _method(
    "AnomalyService/ListSilences", _anomaly.ListSilencesRequest, _anomaly.ListSilencesResponse
)
DELETE_SILENCE = _method(
    "AnomalyService/DeleteSilence", _anomaly.DeleteSilenceRequest, _anomaly.DeleteSilenceResponse
)

_rules = rules_service_pb2
SET_RULES = _method(
    "RulesService/Set", _rules.RulesServiceSetRequest, _rules.RulesServiceSetResponse
)
GET_RULES = _method(
    "RulesService/Get", _rules.RulesServiceGetRequest, _rules.RulesServiceGetResponse
)
LIST_RULES = _method(
    "RulesService/List", _rules.RulesServiceListRequest, _rules.RulesServiceListResponse
)
DELETE_RULES = _method(
    "RulesService/Delete", _rules.RulesServiceDeleteRequest, _rules.RulesServiceDeleteResponse
)
ENABLE_RULE = _method(
    "RulesService/Enable", _rules.RulesServiceEnableRequest, _rules.RulesServiceEnableResponse
)
DISABLE_RULE = _method(
    "RulesService/Disable", _rules.RulesServiceDisableRequest, _rules.RulesServiceDisableResponse
)
CHECK_RULES = _method(
    "RulesService/Check", _rules.RulesServiceCheckRequest, _rules.RulesServiceCheckResponse
)
TEST_RULES = _method(
    "RulesService/Test", _rules.RulesServiceTestRequest, _rules.RulesServiceTestResponse
)

_volume = volume_service_pb2
CREATE_VOLUME = _method(
    "VolumeService/Create",
    _volume.VolumeServiceCreateRequest,
    _volume.VolumeServiceCreateResponse,
)
GET_VOLUME = _method(
    "VolumeService/Get", _volume.VolumeServiceGetRequest, _volume.VolumeServiceGetResponse
)
LIST_VOLUMES = _method(
    "VolumeService/List", _volume.VolumeServiceListRequest, _volume.VolumeServiceListResponse
)
DELETE_VOLUME = _method(
    "VolumeService/Delete",
    _volume.VolumeServiceDeleteRequest,
    _volume.VolumeServiceDeleteResponse,
)

_file_service = file_service_pb2
FILE_STAT = _method(
    "FileService/Stat",
    _file_service.FileServiceStatRequest,
    _file_service.FileServiceStatResponse,
)
FILE_LIST = _method(
    "FileService/List",
    _file_service.FileServiceListRequest,
    _file_service.FileServiceListResponse,
)
FILE_READ = _method(
    "FileService/Read",
    _file_service.FileServiceReadRequest,
    _file_service.FileServiceReadResponse,
)
FILE_WRITE = _method(
    "FileService/Write",
    _file_service.FileServiceWriteRequest,
    _file_service.FileServiceWriteResponse,
)
FILE_OPEN_WRITE = _method(
    "FileService/OpenWrite",
    _file_service.FileServiceOpenWriteRequest,
    _file_service.FileServiceOpenWriteResponse,
)
FILE_SEND = _method(
    "FileService/Send",
    _file_service.FileServiceSendRequest,
    _file_service.FileServiceSendResponse,
)
FILE_FINISH = _method(
    "FileService/Finish",
    _file_service.FileServiceFinishRequest,
    _file_service.FileServiceFinishResponse,
)
FILE_MAKE_DIR = _method(
    "FileService/MakeDir",
    _file_service.FileServiceMakeDirRequest,
    _file_service.FileServiceMakeDirResponse,
)
FILE_MOVE = _method(
    "FileService/Move",
    _file_service.FileServiceMoveRequest,
    _file_service.FileServiceMoveResponse,
)
FILE_COPY = _method(
    "FileService/Copy",
    _file_service.FileServiceCopyRequest,
    _file_service.FileServiceCopyResponse,
)
FILE_REMOVE = _method(
    "FileService/Remove",
    _file_service.FileServiceRemoveRequest,
    _file_service.FileServiceRemoveResponse,
)
FILE_SET_MODE = _method(
    "FileService/SetMode",
    _file_service.FileServiceSetModeRequest,
    _file_service.FileServiceSetModeResponse,
)
FILE_UPLOAD = _method(
    "FileService/Upload",
    _file_service.FileServiceUploadRequest,
    _file_service.FileServiceUploadResponse,
)
FILE_DOWNLOAD = _method(
    "FileService/Download",
    _file_service.FileServiceDownloadRequest,
    _file_service.FileServiceDownloadResponse,
)
FILE_WATCH = _method(
    "FileService/Watch",
    _file_service.FileServiceWatchRequest,
    _file_service.FileServiceWatchResponse,
)

_approval = approval_service_pb2
CREATE_APPROVAL = _method(
    "ApprovalService/Create",
    _approval.ApprovalServiceCreateRequest,
    _approval.ApprovalServiceCreateResponse,
)
GET_APPROVAL = _method(
    "ApprovalService/Get",
    _approval.ApprovalServiceGetRequest,
    _approval.ApprovalServiceGetResponse,
)
LIST_APPROVALS = _method(
    "ApprovalService/List",
    _approval.ApprovalServiceListRequest,
    _approval.ApprovalServiceListResponse,
)
APPROVE = _method("ApprovalService/Approve", _approval.ApproveRequest, _approval.ApproveResponse)
DENY = _method("ApprovalService/Deny", _approval.DenyRequest, _approval.DenyResponse)
CANCEL_APPROVAL = _method(
    "ApprovalService/Cancel",
    _approval.ApprovalServiceCancelRequest,
    _approval.ApprovalServiceCancelResponse,
)
WATCH_APPROVALS = _method(
    "ApprovalService/Watch",
    _approval.ApprovalServiceWatchRequest,
    _approval.ApprovalServiceWatchResponse,
)

_policy = policy_service_pb2
EXPLAIN = _method("PolicyService/Explain", _policy.ExplainRequest, _policy.ExplainResponse)
SHOW_POLICY = _method(
    "PolicyService/Show",
    _policy.PolicyServiceShowRequest,
    _policy.PolicyServiceShowResponse,
)
LIST_SETS = _method("PolicyService/ListSets", _policy.ListSetsRequest, _policy.ListSetsResponse)
RELOAD_POLICY = _method(
    "PolicyService/Reload",
    _policy.PolicyServiceReloadRequest,
    _policy.PolicyServiceReloadResponse,
)
DIFF_POLICY = _method(
    "PolicyService/Diff",
    _policy.PolicyServiceDiffRequest,
    _policy.PolicyServiceDiffResponse,
)

_audit = audit_service_pb2
LIST_AUDIT = _method(
    "AuditService/List",
    _audit.AuditServiceListRequest,
    _audit.AuditServiceListResponse,
)
WATCH_AUDIT = _method(
    "AuditService/Watch",
    _audit.AuditServiceWatchRequest,
    _audit.AuditServiceWatchResponse,
)
GET_PROOF = _method("AuditService/GetProof", _audit.GetProofRequest, _audit.GetProofResponse)

_access = access_service_pb2
CREATE_KEY = _method(
    "KeyService/Create",
    _access.KeyServiceCreateRequest,
    _access.KeyServiceCreateResponse,
)
LIST_KEYS = _method(
    "KeyService/List",
    _access.KeyServiceListRequest,
    _access.KeyServiceListResponse,
)
REVOKE_KEY = _method(
    "KeyService/Revoke",
    _access.KeyServiceRevokeRequest,
    _access.KeyServiceRevokeResponse,
)
MINT = _method("TokenService/Mint", _access.MintRequest, _access.MintResponse)
EXCHANGE = _method("TokenService/Exchange", _access.ExchangeRequest, _access.ExchangeResponse)
REVOKE_TOKEN = _method(
    "TokenService/Revoke",
    _access.TokenServiceRevokeRequest,
    _access.TokenServiceRevokeResponse,
)
LIST_SIGNING_KEYS = _method(
    "TokenService/ListSigningKeys",
    _access.ListSigningKeysRequest,
    _access.ListSigningKeysResponse,
)
ROTATE_SIGNING_KEY = _method(
    "TokenService/RotateSigningKey",
    _access.RotateSigningKeyRequest,
    _access.RotateSigningKeyResponse,
)
BACKUP = _method("AdminService/Backup", _access.BackupRequest, _access.BackupResponse)
GET_AUDIT_KEY = _method(
    "AdminService/GetAuditKey",
    _access.GetAuditKeyRequest,
    _access.GetAuditKeyResponse,
)
ROTATE_AUDIT_KEY = _method(
    "AdminService/RotateAuditKey",
    _access.RotateAuditKeyRequest,
    _access.RotateAuditKeyResponse,
)
GET_ENCRYPTION = _method(
    "AdminService/GetEncryption",
    _access.GetEncryptionRequest,
    _access.GetEncryptionResponse,
)
ROTATE_MASTER_KEY = _method(
    "AdminService/RotateMasterKey",
    _access.RotateMasterKeyRequest,
    _access.RotateMasterKeyResponse,
)
FORGET_DATA_KEY = _method(
    "AdminService/ForgetDataKey",
    _access.ForgetDataKeyRequest,
    _access.ForgetDataKeyResponse,
)
