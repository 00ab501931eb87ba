"""What hides the values of secrets in whatever is written down or shown: what others need to know of it."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from agentfs.core.records import Record

R = TypeVar("R", bound="Record")


class Mask(Protocol):
    """Hides the values of secrets in what is foreign."""

    def text(self, text: str) -> str: ...

    def data(self, data: bytes) -> bytes: ...

    def value(self, value: Any, *, keys: bool = False, ours: Collection[str] = ()) -> Any: ...

    def record(self, record: R) -> R: ...

    def stream(self) -> "Stream": ...

    def also(self, named: Iterable[str]) -> "Mask": ...  # counts these variables, too


class Stream(Protocol):
    """Bytes as they come, masked."""

    def feed(self, chunk: bytes) -> bytes: ...

    def end(self) -> bytes: ...
