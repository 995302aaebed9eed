"""No address that is not of the public Internet is dialled, in whatever range or wrapping."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.egress.addresses import METADATA, Address, carried, special
from foundation.egress.allowing import Allowed
from foundation.egress.errors import EgressError, Reason
from foundation.egress.hosts import Target
from foundation.egress.policy import Policy

FORBIDDEN = {
    "unspecified": ("0.0.0.0", "::"),
    "this-network": ("0.0.0.1", "0.255.255.255"),
    "private": (
        *("10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1"),
        *("192.168.255.255", "fc00::1", "fdff:ffff::1", "fd00:ec2::1"),
    ),
    "shared (carrier-grade NAT)": ("100.64.0.1", "100.127.255.255"),
    "loopback": ("127.0.0.1", "127.0.0.2", "127.255.255.254", "::1"),
    "link-local": ("169.254.0.1", "169.254.255.255", "fe80::1", "febf::1"),
    "site-local": ("fec0::1", "feff::1"),
    "protocol assignment": ("192.0.0.1", "192.0.0.170", "2001:1::1", "2001:1ff::1"),
    "documentation": (
        *("192.0.2.1", "198.51.100.1", "203.0.113.255", "2001:db8::1"),
        *("2001:db8:ffff::1", "3fff::1", "3fff:fff::1"),
    ),
    "6to4 relay": ("192.88.99.1",),
    "benchmarking": ("198.18.0.1", "198.19.255.255", "2001:2::1"),
    "multicast": ("224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"),
    "reserved": ("240.0.0.1", "255.255.255.254", "1::1", "4000::1", "8000::1", "fe00::1"),
    "broadcast": ("255.255.255.255",),
    "IPv4-mapped": ("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::ffff:a9fe:a9fe"),
    "IPv4-translated": ("::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8"),
    "IPv4-compatible": ("::127.0.0.1", "::8.8.8.8", "::2"),
    "NAT64": ("64:ff9b::127.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b::a9fe:a9fe"),
    "local NAT64": ("64:ff9b:1::1", "64:ff9b:1:ffff::a00:1"),
    "6to4": ("2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1"),
    "Teredo": ("2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
    "ORCHID": ("2001:10::1", "2001:20::1"),
    "drone identity": ("2001:30::1",),
    "discard": ("100::1", "100:0:0:1::1"),
    "segment routing": ("5f00::1",),
    "ISATAP": ("2600::5efe:a00:1", "2600::200:5efe:808:808"),
    "cloud metadata": (
        *("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.253"),
        *("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"),
        *("fd00:ec2::23", "fe80::a9fe:a9fe"),
    ),
}
PUBLIC = (
    *("1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0"),
    *("126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255"),
    *("172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255"),
    *("198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e"),
    *("2001:4860:4860::8888", "2001:200::1", "2003::1", "2400:cb00::1", "2620:fe::fe"),
)
ROWS = [(text, what) for what, texts in FORBIDDEN.items() for text in texts]


def admitted(address: Address, allowed: Allowed | None = None) -> bool:
    """Tell whether a name that resolves to the address may be dialled."""
    try:
        Policy(allowed or Allowed()).judge(Target("host.example", 443, None), (address,))
    except EgressError as error:
        return error.reason is not Reason.ADDRESS
    return True


@pytest.mark.parametrize(("text", "what"), ROWS)
def test_addresses_that_are_not_public_are_refused(text: str, what: str) -> None:
    address = ip_address(text)
    found = special(address)
    assert found is not None
    assert found.what == what
    assert not admitted(address)


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_next_to_them_are_not(text: str) -> None:
    assert special(ip_address(text)) is None
    assert admitted(ip_address(text))


def test_the_table_is_long() -> None:
    assert len(ROWS) >= 80


@given(st.ip_addresses())
def test_no_address_passes_that_python_knows_as_special(address: Address) -> None:
    if special(address) is None:
        assert address.is_global
        assert not address.is_multicast


@given(st.sampled_from([ip_address(text) for text, _ in ROWS if "." in text and ":" not in text]))
def test_no_wrapping_makes_a_forbidden_address_pass(inner: Address) -> None:
    """Also not where the operator let the wrapping itself out."""
    assert isinstance(inner, IPv4Address)
    value = int(inner)
    wrapped = [
        IPv6Address(value),
        IPv6Address(0xFFFF << 32 | value),
        IPv6Address(0xFFFF << 48 | value),
        IPv6Address(0x64FF9B << 96 | value),
        IPv6Address(0x64FF9B0001 << 80 | value),
        IPv6Address(0x64FF9B0001 << 80 | value >> 16 << 64 | (value & 0xFFFF) << 40),
        IPv6Address(0x2002 << 112 | value << 80),
        IPv6Address(0x20010000 << 96 | value << 64 | (0x08080808 ^ 0xFFFFFFFF)),
        IPv6Address(0x20010000 << 96 | 0x08080808 << 64 | (value ^ 0xFFFFFFFF)),
    ]
    for address in wrapped:
        assert not admitted(address)
        if int(address) > 1:
            assert inner in carried(address)
            whole = Allowed(networks=tuple(LETTING))
            assert not admitted(address, whole)


LETTING = [
    ip_network(text)
    for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::ffff:0:0/96")
]


def test_a_public_address_behind_translation_passes_where_the_operator_says_so() -> None:
    address = ip_address("64:ff9b::808:808")
    assert not admitted(address)
    assert admitted(address, Allowed(networks=tuple(LETTING)))


def test_addresses_with_credentials_are_in_no_public_range() -> None:
    assert all(special(address) is not None for address in METADATA)
