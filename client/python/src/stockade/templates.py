# SPDX-License-Identifier: Apache-2.0
"""Templates: kinds of sandboxes, for threads and asyncio alike (``both``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stockade import methods, requests
from stockade.v1 import template_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stockade.calls import Caller
    from stockade.requests import TemplateInfo


async def templates(client: Caller) -> AsyncIterator[TemplateInfo]:
    """Yield the templates of the host, then the caller's."""
    request = template_service_pb2.TemplateServiceListRequest()
    async for page in client._pages(methods.LIST_TEMPLATES, request):
        for message in page.templates:
            yield requests.template_info(message)
