"""An operator's entry lets out what it names, and nothing beside it."""

from ipaddress import ip_address

import pytest

from foundation.egress.allowing import Allowed, parse_allowed
from foundation.egress.errors import EgressError, Reason
from foundation.egress.policy import Policy
from foundation.egress.targets import parse, target_of

WRONG = (
    *("mcp.internal", "mcp.internal:", ":8080", "mcp.internal:http", "mcp.internal:0"),
    *("mcp.internal:65536", "mcp.internal:-1", "*.internal:80", "*", "*:*", "http://mcp:80"),
    *("mcp internal:80", "user@mcp:80", "10.0.0.1", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/"),
    *("0.0.0.0/0", "::/0", "0.0.0.0/4", "2000::/3", "::1:80", "[::1]", "[::1]:", "[mcp]:80"),
    *("[fe80::1%eth0]:80", "127.1:80", "0x7f000001:80", "2130706433:80", "mcp.:80", "bücher.de:80"),
    *("10.0.0.0/8,", ",", "a:1,,b:2", "a:1;b:2", "/", "fe80::1%eth0/128"),
)
RIGHT = {
    "": "",
    "  ": "",
    "MCP.internal:8080": "mcp.internal:8080",
    " a:1 , 10.0.0.0/8,[::1]:80, b:2,10.0.0.0/8 ": "[::1]:80,a:1,b:2,10.0.0.0/8",
    "127.0.0.1:3000,fc00::/7,[0:0::1]:80": "127.0.0.1:3000,[::1]:80,fc00::/7",
    "169.254.169.254/32": "169.254.169.254/32",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_entry_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"^entry '"):
        parse_allowed(text)


@pytest.mark.parametrize(("text", "normal"), RIGHT.items())
def test_entries_have_one_normal_form(text: str, normal: str) -> None:
    assert str(parse_allowed(text)) == normal
    assert str(parse_allowed(normal)) == normal


LETS = (
    # the list, the URL, what its name resolves to
    ("mcp.internal:8080", "http://mcp.internal:8080/", "10.1.2.3"),
    ("mcp.internal:8080", "http://mcp.internal:8080/", "127.0.0.1"),
    ("mcp.internal:9", "http://mcp.internal:9/", "93.184.216.34"),
    ("localhost:3000", "http://localhost:3000/", "127.0.0.1"),
    ("127.0.0.1:3000", "http://127.0.0.1:3000/", ""),
    ("[::1]:3000", "http://[::1]:3000/", ""),
    ("10.0.0.0/8", "http://10.9.8.7:5432/", ""),
    ("10.0.0.0/8", "http://any.example:5432/", "10.9.8.7"),
    ("fc00::/7", "https://any.example/", "fd00::7"),
    ("169.254.169.254/32", "http://169.254.169.254/", ""),
    ("169.254.169.254:80", "http://169.254.169.254/", ""),
)
STILL_REFUSES = (
    ("mcp.internal:8080", "http://mcp.internal/", "10.1.2.3", Reason.ADDRESS),
    ("mcp.internal:8080", "http://a.mcp.internal:8080/", "10.1.2.3", Reason.ADDRESS),
    ("mcp.internal:8080", "http://mcp.internal:8080/", "169.254.169.254", Reason.ADDRESS),
    ("mcp.internal:8080", "http://mcp.internal:8080/", "fd00:ec2::254", Reason.ADDRESS),
    ("mcp.internal:8080", "http://mcp.internal:8080/", "169.254.7.7", Reason.ADDRESS),
    ("mcp.internal:8080", "http://mcp.internal:8080/", "::ffff:10.0.0.1", Reason.ADDRESS),
    ("mcp.internal:8080", "http://mcp.internal:8080/", "224.0.0.1", Reason.ADDRESS),
    ("mcp.internal:8080", "http://10.1.2.3:8080/", "", Reason.ADDRESS),
    ("localhost:3000", "http://localhost/", "127.0.0.1", Reason.ADDRESS),
    ("localhost:3000", "http://127.0.0.1:3000/", "", Reason.ADDRESS),
    ("127.0.0.1:3000", "http://127.0.0.1:3001/", "", Reason.ADDRESS),
    ("127.0.0.1:8080", "http://any.example:8080/", "127.0.0.1", Reason.ADDRESS),
    ("10.0.0.0/8", "http://any.example/", "192.168.1.1", Reason.ADDRESS),
    ("10.0.0.0/8", "http://any.example:5432/", "93.184.216.34", Reason.PORT),
    ("169.254.0.0/16", "http://169.254.169.254/", "", Reason.ADDRESS),
    ("100.64.0.0/10", "http://any.example/", "100.100.100.200", Reason.ADDRESS),
    ("fc00::/7", "http://any.example/", "fd00:ec2::254", Reason.ADDRESS),
    ("64:ff9b::/96", "http://any.example/", "64:ff9b::a9fe:a9fe", Reason.ADDRESS),
)


def connect(allowed: Allowed, url: str, *answers: str) -> None:
    policy = Policy(allowed)
    target = target_of(parse(url))
    policy.admit(target)
    if target.address is None:
        policy.judge(target, [ip_address(answer) for answer in answers])


@pytest.mark.parametrize(("text", "url", "answer"), LETS)
def test_an_entry_lets_out_what_it_names(text: str, url: str, answer: str) -> None:
    connect(parse_allowed(text), url, answer)
    if "93." not in answer:
        with pytest.raises(EgressError):
            connect(Allowed(), url, answer)


@pytest.mark.parametrize(("text", "url", "answer", "reason"), STILL_REFUSES)
def test_an_entry_lets_out_nothing_else(text: str, url: str, answer: str, reason: Reason) -> None:
    with pytest.raises(EgressError) as caught:
        connect(parse_allowed(text), url, answer)
    assert caught.value.reason is reason
    assert "COUNTERFOIL_EGRESS_ALLOW" in str(caught.value)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_forbidden_answer_among_public_ones_is_enough(place: int) -> None:
    answers = ["93.184.216.34", "2606:4700:4700::1111"]
    answers.insert(place, "10.0.0.1")
    with pytest.raises(EgressError) as caught:
        connect(Allowed(), "https://any.example/", *answers)
    assert caught.value.reason is Reason.ADDRESS


def test_a_name_without_addresses_is_not_dialled() -> None:
    with pytest.raises(EgressError) as caught:
        connect(Allowed(), "https://any.example/")
    assert caught.value.reason is Reason.UNRESOLVED
