"""A URL is read in one way only, or refused before anything is resolved."""

import pytest

from foundation.egress.allowing import Allowed
from foundation.egress.errors import EgressError, Reason
from foundation.egress.policy import Policy
from foundation.egress.targets import URL_CHARS_MAX, parse, target_of

REFUSED = {
    Reason.SCHEME: (
        *("", "example.com", "//example.com/", "/path", "ftp://example.com/", "file:///etc/passwd"),
        *("gopher://example.com:70/_x", "data:text/plain,x", "javascript:alert(1)", "http:/a.com"),
        *("http:example.com", "ws://example.com/", "jar:http://example.com!/", "unix:///run/x"),
        *("http+unix://%2Frun%2Fx/", "dict://example.com:11211/"),
    ),
    Reason.USERINFO: (
        *("http://user@example.com/", "http://user:secret@example.com/", "http://@example.com/"),
        *("http://example.com@127.0.0.1/", "http://127.0.0.1:80@example.com/", "http://a@b@c.com/"),
        *("http://example.com:443@10.0.0.1/", "http://:@example.com/"),
    ),
    Reason.URL: (
        *("http://example.com\\@evil.example/", "http:\\\\example.com/", "http://exa mple.com/"),
        *("http://example.com/a b", " http://example.com/", "http://example.com/\n"),
        *("http://example.com\t/", "http://example.com\r\nHost: evil/", "http://example.com\x00/"),
        *("http://example.com:+80/", "http://example.com:0x50/", "http://example.com:80:80/"),
        *(
            "http://example.com:-1/",
            "http://example.com:\uff18\uff10/",
            "http://[::1/",
            "http://::1/",
        ),
        *("http://::1]:80/", "http://[127.0.0.1]/", "http://[example.com]/", "http://[v1.x]/"),
        *("http://127.0.0.256/", "http://1.2.3.999/", "http://0177.0.0.1/", "http://127.0.0.01/"),
        *(
            "http://\uff11\uff12\uff17.0.0.1/",
            "http://①②⑦.⓪.⓪.①/",
            "http://ⓛocalhost/",
            "http://a\u200bb.com/",
        ),
        *("http://example.com:999999/", "http://[::ffff:1.2.3.400]/", "http://-\u00e9.com/"),
        "http://example.com/" + "a" * URL_CHARS_MAX,
    ),
    Reason.HOST: (
        *("http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/", "http://017700000001/"),
        *(
            "http://127.1/",
            "http://127.0.1/",
            "http://10.1/",
            "http://0/",
            "http://0x/",
            "http://1/",
        ),
        *("http://0x7f.1/", "http://1.2.3.4.5/", "http://127.0.0.0x1/", "http://4294967296/"),
        *("http://example.1/", "http://example.0x1f/", "http://2852039166/", "http://0xa9fea9fe/"),
        *(
            "http:///path",
            "http://",
            "https://:443/",
            "http://./",
            "http://a..b/",
            "http://.a.com/",
        ),
        *("http://%31%32%37.0.0.1/", "http://127%2e0%2e0%2e1/", "http://exa%6dple.com/"),
        *("http://exa$mple.com/", "http://example.com,evil.com/", "http://a;b.com/", "http://a|b/"),
        *(
            "http://-a.com/",
            "http://a-.com/",
            "http://" + "a" * 64 + ".com/",
            "http://[fe80::1%25eth0]/",
        ),
        *("http://" + "a." * 130 + "com/", "http://example.com../", "http://example.com:0/"),
        *("http://example.com:65536/", "http://*.example.com/"),
    ),
}
NORMAL = {
    "http://example.com": "http://example.com/",
    "HTTP://EXAMPLE.COM/Path?Q=1": "http://example.com/Path?Q=1",
    "https://example.com:443/": "https://example.com/",
    "http://example.com:/": "http://example.com/",
    "https://example.com./x": "https://example.com/x",
    "https://example.com/#part": "https://example.com/",
    "https://example.com/?next=http://127.0.0.1/@x": "https://example.com/?next=http://127.0.0.1/@x",
    "https://example.com/@user": "https://example.com/@user",
    "https://example.com?@127.0.0.1/": "https://example.com/?@127.0.0.1/",
    "https://bücher.example/": "https://xn--bcher-kva.example/",
    "https://xn--bcher-kva.example/": "https://xn--bcher-kva.example/",
    "https://例え.テスト/": "https://xn--r8jz45g.xn--zckzah/",
    "https://example。com/": "https://example.com/",
    "https://[2606:4700:4700:0:0::1111]:8443/": "https://[2606:4700:4700::1111]:8443/",
    "https://example.com/a%2Fb%20c?d=%26&e=%7B": "https://example.com/a%2Fb%20c?d=%26&e=%7B",
    "https://a_b.example/": "https://a_b.example/",
    "https://1.2.3.4.example/": "https://1.2.3.4.example/",
    "https://0x7f.example/": "https://0x7f.example/",
}
LITERAL = (
    *("http://127.0.0.1/", "http://127.0.0.1./", "http://127。0。0。1/", "http://[::1]/"),
    *("http://[0:0:0:0:0:0:0:1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
    *("http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://169.254.169.254/latest"),
    *("http://10.0.0.1:8080/", "http://[fd00::1]/", "http://0.0.0.0/", "http://[::]/"),
    *("http://localhost/", "http://LOCALHOST/", "http://localhost./", "http://a.localhost/"),
)
ROWS = [(text, reason) for reason, texts in REFUSED.items() for text in texts]


@pytest.mark.parametrize(("text", "reason"), ROWS)
def test_tricks_are_refused(text: str, reason: Reason) -> None:
    with pytest.raises(EgressError) as caught:
        parse(text)
    assert caught.value.reason is reason
    assert not caught.value.is_sent
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("text", "normal"), NORMAL.items())
def test_urls_have_one_normal_form(text: str, normal: str) -> None:
    assert str(parse(text)) == normal
    assert str(parse(normal)) == normal


@pytest.mark.parametrize("text", LITERAL)
def test_hosts_that_are_addresses_are_judged_without_a_resolver(text: str) -> None:
    with pytest.raises(EgressError) as caught:
        Policy(Allowed()).admit(target_of(parse(text)))
    assert caught.value.reason is Reason.ADDRESS


@pytest.mark.parametrize("port", [1, 22, 25, 81, 3306, 6379, 11211, 65535])
def test_ports_that_are_not_of_the_web_are_refused(port: int) -> None:
    with pytest.raises(EgressError) as caught:
        Policy(Allowed()).admit(target_of(parse(f"http://example.com:{port}/")))
    assert caught.value.reason is Reason.PORT
    assert caught.value.host == f"example.com:{port}"
