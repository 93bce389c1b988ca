# SPDX-License-Identifier: Apache-2.0
"""Stubs made at run time from descriptors: for methods that this package has no wrapper for.

>>> schema = client.schema()                                                       # doctest: +SKIP
>>> system = schema.service("stockade.v1.SystemService", client)                   # doctest: +SKIP
>>> system.Info().version                                                          # doctest: +SKIP
'0.1.0'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Protocol

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from stockade.errors import ProtocolError
from stockade.methods import Method, from_descriptor

if TYPE_CHECKING:
    from collections.abc import Callable


class Caller(Protocol):
    """What a stub needs of a client; the clients with threads and with asyncio both are one."""

    def call(
        self, method: Method[Any, Any], request: Any, *, timeout: Optional[float] = None
    ) -> Any:
        """Make a unary call."""

    def stream(
        self, method: Method[Any, Any], request: Any, *, timeout: Optional[float] = None
    ) -> Any:
        """Make a streaming call."""


class Schema:
    """The descriptors of a broker: its services, methods and messages.

    Takes a serialized ``FileDescriptorSet``; raises ``ProtocolError`` for anything else.
    """

    def __init__(self, file_descriptor_set: bytes) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        self._services: list[str] = []
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(file_descriptor_set)
            for file in files.file:
                self._pool.AddSerializedFile(file.SerializeToString())
                self._services += [f"{file.package}.{service.name}" for service in file.service]
            for service in self._services:
                self._pool.FindServiceByName(service)
        except (DecodeError, TypeError, KeyError, ValueError) as e:
            raise ProtocolError(f"the broker's descriptors cannot be used: {e}") from None

    def services(self) -> list[str]:
        """Return the full names of all services, such as ``stockade.v1.ProcessService``."""
        return sorted(self._services)

    def message(self, name: str) -> type[Message]:
        """Return the class of a message by its full name. ``KeyError``: it does not exist."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))

    def methods(self, service: str) -> dict[str, Method[Any, Any]]:
        """Return a service's methods by name. ``KeyError``: the service does not exist."""
        descriptor = self._pool.FindServiceByName(service)
        return {
            method.name: from_descriptor(
                method,
                message_factory.GetMessageClass(method.input_type),
                message_factory.GetMessageClass(method.output_type),
            )
            for method in descriptor.methods
        }

    def service(self, name: str, client: Caller) -> Stub:
        """Return a stub of a service by its full name. ``KeyError``: it does not exist."""
        return Stub(client, name, self.methods(name))


class Stub:
    """A service whose methods are attributes: ``stub.Method(field=value, ...)``.

    A method takes a request, or the request's fields as keywords. It returns the response or the
    stream; with an asyncio client, an awaitable of it. ``timeout_`` is the deadline of the call in
    seconds.
    """

    def __init__(self, client: Caller, name: str, methods: dict[str, Method[Any, Any]]) -> None:
        self._client = client
        self._name = name
        self._methods = methods

    def __dir__(self) -> list[str]:
        return sorted(self._methods)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = self._methods.get(name)
        if method is None:
            raise AttributeError(f"{self._name} has no method {name}")

        def invoke(
            request: Message | None = None, *, timeout_: float | None = None, **fields: Any
        ) -> Any:
            message = method.request(**fields) if request is None else request
            make = self._client.stream if method.streaming else self._client.call
            return make(method, message, timeout=timeout_)

        return invoke
