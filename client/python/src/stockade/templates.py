# SPDX-License-Identifier: Apache-2.0
"""Templates: kinds of sandboxes, for threads and asyncio alike (``both``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stockade import filing, methods, requests
from stockade.fields import made
from stockade.v1 import template_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stockade.calls import Caller, Stream
    from stockade.filing import Contents
    from stockade.requests import TemplateInfo


async def templates(client: Caller) -> AsyncIterator[TemplateInfo]:
    """Yield the templates of the host, then the caller's."""
    request = template_service_pb2.TemplateServiceListRequest()
    async for page in client._pages(methods.LIST_TEMPLATES, request):
        for message in page.templates:
            yield requests.template_info(message)


async def push(client: Caller, name: str) -> AsyncIterator[bytes]:
    """Yield the archive of a template."""
    request = made(template_service_pb2.TemplateServicePushRequest, name=name)
    stream: Stream[Any] = await client._stream(methods.PUSH_TEMPLATE, request)
    try:
        while (part := await stream._get(None)) is not None:
            yield part.data
    finally:
        stream.cancel()


async def load(client: Caller, archive: Contents, name: str, replace: bool) -> TemplateInfo:
    """Make a template of an archive."""
    request = made(template_service_pb2.TemplateServiceLoadRequest, name=name, replace=replace)
    data = filing.archive_pieces(archive)
    last = await filing.transfer(client, methods.LOAD_TEMPLATE, request, data)
    return requests.template_info(last.template)
