"""How much an endpoint may send, held at the one place through which every byte of it comes: the HTTP client.

Nothing compressed is asked for, and none is taken: no bound on what arrives would bound what it becomes. Of what is
no reply only the beginning is read.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

LARGEST_RESPONSE = 256 * 1024 * 1024  # bytes: a reply of four million characters, a token at a time
LARGEST_ERROR = 64 * 1024  # bytes of a response that is no reply; the rest is left out
UNCOMPRESSED = {"Accept-Encoding": "identity"}


class TooLarge(Exception):
    """More came than any model says."""


class Compressed(Exception):
    """The response is compressed, in spite of what was asked for."""


async def bound_response(response: "httpx2.Response") -> None:
    """Hold a response, whose body has yet to be read, to its bounds: an event hook of the HTTP client."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise Compressed(encoding[:40])
    response.stream = _bounded(response.stream, whole=response.is_success)


def _bounded(stream: Any, *, whole: bool) -> "httpx2.AsyncByteStream":
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = LARGEST_RESPONSE if whole else LARGEST_ERROR
            async for piece in stream:
                yield piece[:left]
                left -= len(piece)
                if left <= 0 and not whole:
                    return
                if left < 0:
                    raise TooLarge

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
