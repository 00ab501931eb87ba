"""Which addresses http_get may speak to. Owns the rule; resolves names only through what it is given, sends nothing.

The rule is about the address that is connected to, never about how a host is spelt: `2130706433`, `0x7f.1` and a
name that resolves to 127.0.0.1 all end at the same question.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

Resolve = Callable[[str, int], Sequence[str]]  # host and port -> addresses, as text
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

PORTS = {"http": 80, "https": 443}
LONGEST_URL = 8192
ALLOW = "if http_get may reach it, add it to hosts"
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\Z")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\x9f\\]")

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ENVELOPES = (_NAT64, *map(ipaddress.IPv6Network, ("::ffff:0:0/96", "2001::/32", "2002::/16")))  # of IPv4 addresses
_ISATAP = 0x00005EFE
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "100.64.0.0/10",
            "192.0.0.0/24",
            "192.88.99.0/24",  # 6to4 relays
            "198.18.0.0/15",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "2001:db8::/32",
            "3fff::/20",
        ),
    )
)  # beside what the standard library knows: versions of Python differ


class Forbidden(Exception):
    """An address that may not be reached, and what to do about it. `private`: a setting would allow it."""

    def __init__(self, message: str, hint: str | None = None, *, private: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.private = message, hint, private


@dataclass(frozen=True, slots=True)
class Target:
    """One address of the web, taken apart."""

    scheme: str
    host: str  # lower case, ASCII; an IPv6 address without its brackets
    port: int
    path: str  # with its query; begins with /

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def parse_target(url: str) -> Target:
    """Return a URL taken apart; Forbidden if it is none that may be asked for."""
    if len(url) > LONGEST_URL:
        raise Forbidden(f"the address has more than {LONGEST_URL} characters")
    if _UNPRINTABLE.search(url):
        raise Forbidden("the address holds a space, a control character or a backslash", "escape them: %20")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Forbidden(f"this is not an address: {error}") from None
    if parts.scheme not in PORTS:
        raise Forbidden(f"{parts.scheme or 'no scheme'!r}: only http:// and https:// can be asked", "write http://…")
    if "@" in parts.netloc:
        raise Forbidden("an address with a user or a password is refused", "remove what is before the @")
    if port == 0:
        raise Forbidden("there is no port 0")
    path = quote(parts.path or "/", safe="/%:=&?~#+!$,;'@()*[]") + (f"?{_query(parts.query)}" if parts.query else "")
    return Target(
        parts.scheme, _host(parts.hostname or "", bracketed="[" in parts.netloc), port or PORTS[parts.scheme], path
    )


def _query(query: str) -> str:
    return quote(query, safe="/%:=&?~+!$,;'@()*[]")


def _host(host: str, *, bracketed: bool) -> str:
    """Return a host in the one form that is compared and resolved."""
    if bracketed:
        try:
            return str(ipaddress.IPv6Address(host.replace("%", " ")))  # no zone: it would name an interface of ours
        except ValueError:
            raise Forbidden(f"{host!r} is not an IPv6 address") from None
    try:
        name = (host if host.isascii() else host.encode("idna").decode("ascii")).lower().removesuffix(".")
    except UnicodeError:
        raise Forbidden(f"{host!r} is not a host") from None
    if len(name) > 253 or not _HOST.match(name):
        raise Forbidden(f"{host!r} is not a host")
    return name


def reachable(target: Target, resolve: Resolve, hosts: Iterable[str]) -> list[str]:
    """Return the addresses to connect to, resolved once; Forbidden if one of them may not be reached."""
    found = list(dict.fromkeys(resolve(target.host, target.port)))
    if not found:
        raise Forbidden(f"{target.host} has no address")
    if is_listed(target, hosts):
        return found
    for address in found:
        if why := why_forbidden(address):
            shown = target.host if target.host == address else f"{target.host} is {address}, which"
            raise Forbidden(f"{shown} {why}: http_get reaches public addresses only", private=True)
    return found


def is_listed(target: Target, hosts: Iterable[str]) -> bool:
    """Return whether the settings name this host, or this host and port."""
    for entry in hosts:
        try:
            listed = parse_target(f"http://{entry}")
        except Forbidden:
            continue  # an entry that is no host allows nothing
        if listed.host == target.host and urlsplit(f"http://{entry}").port in (None, target.port):
            return True
    return False


def why_forbidden(address: str) -> str | None:
    """Return what an address is, if it is not a public one; None if it is."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "is no address"
    carried = _embedded_addresses(found)
    for inner in carried:
        if not _is_public(inner):
            return f"carries {inner}, which is not a public address"
    is_envelope = any(found in network for network in _ENVELOPES if network.version == found.version)
    return None if (carried and is_envelope) or _is_public(found) else "is not a public address"


def _is_public(address: Address) -> bool:
    if any(address in network for network in _NEVER if network.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded_addresses(address: Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses an IPv6 one leads to: mapped, NAT64, 6to4, Teredo, ISATAP."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    number = int(address)
    found = [inner for inner in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())) if inner]
    if address in _NAT64 or (number >> 32) & 0xFCFFFFFF == _ISATAP:
        found.append(ipaddress.IPv4Address(number & 0xFFFFFFFF))
    return found
