"""Requests over HTTP as payloads: bodies by their media type, and the headers that are kept."""

import base64
import json
from urllib.parse import urlencode

import pytest

from fencepost.actors.errors import InvalidInput
from fencepost.actors.payloads import kept, text_of

FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("raw", "content_type", "payload"),
    [
        (b'{"ok": true}', "application/json", {"ok": True}),
        (b'\xef\xbb\xbf{"ok": true}', "Application/JSON; charset=utf-8", {"ok": True}),
        (b"[1]", "application/cloudevents+json", [1]),
        (b"ok=yes&tag=a&tag=b&note=", FORM, {"ok": "yes", "tag": ["a", "b"], "note": ""}),
        (urlencode({"who": "Zoë & co"}).encode(), f"{FORM};charset=UTF-8", {"who": "Zoë & co"}),
        ("schön".encode(), "text/plain", "schön"),
        ("schön".encode("latin-1"), 'text/plain; charset="ISO-8859-1"', "schön"),
        (b"<a/>", "application/xml", "<a/>"),
        (b"hello", "", "hello"),
        (b"", "", None),
        (b"", "text/plain", None),
        (b"", FORM, None),
    ],
)
def test_a_body_is_read_by_its_media_type(raw, content_type, payload):
    assert json.loads(text_of(raw, content_type)) == payload


@pytest.mark.parametrize("content_type", ["", "application/json", FORM, "text/plain", "image/png"])
def test_a_model_of_bytes_gets_the_body_as_it_is(content_type):
    raw = b"\x00\xff{"

    assert base64.urlsafe_b64decode(json.loads(text_of(raw, content_type, takes_bytes=True))) == raw


@pytest.mark.parametrize(
    ("raw", "content_type", "why"),
    [
        (b"\xff\x00", "image/png", "no text in utf-8; a hook whose model is bytes takes any"),
        (b"a", "text/plain; charset=punycode", "in charset 'punycode': send it in utf-8"),
        (b"a=%ff", FORM, "a field of the form is no text in utf-8"),
        (b"a=1&" * 1001, FORM, "the form has more than 1,000 fields"),
    ],
)
def test_a_body_that_is_no_text_is_refused(raw, content_type, why):
    with pytest.raises(InvalidInput, match=why):
        text_of(raw, content_type)


def test_headers_are_kept_without_what_is_secret_or_cannot_be_shown():
    given = {
        "X-Hub-Signature": "sha1=2",
        "Authorization": "Bearer secret",
        "COOKIE": "session",
        "X-API-Key": "k",
        "x-odd": "a\x00b",
        "User-Agent": "curl",
    }

    assert kept(given) == {"x-hub-signature": "sha1=2", "user-agent": "curl"}


def test_no_more_headers_are_kept_than_the_bounds_allow():
    assert len(kept({f"h{n}": "v" for n in range(100)})) == 64
    assert kept({"big": "x" * 8192, "small": "y"}) == {"small": "y"}
    assert len(kept({f"h{n}": "x" * 1022 for n in range(9)})) == 8


@pytest.mark.parametrize("content_type", ["", "application/json", "text/plain"])
def test_an_empty_body_is_null_and_no_bytes_for_a_model_of_bytes(content_type):
    assert text_of(b"", content_type) == b"null"
    assert text_of(b"", content_type, takes_bytes=True) == b'""'
