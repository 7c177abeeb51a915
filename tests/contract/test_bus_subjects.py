"""What may stand in a subject, and to whom a node may answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.bus import Bell, Offering
from fencepost.bus.subjects import Subjects, matches, may_be_answered, name_checked, token_ok

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", fullmatch=True)
tokens = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters=".*>"), min_size=1, max_size=20)


@given(names, names, st.integers(0, 9999), tokens, tokens)
def test_a_bell_survives_its_subject(namespace, app, partition, kind, key):
    subjects = Subjects(namespace)
    bell = Bell(kind=kind, id=key, partition=partition, app=app)

    subject = subjects.wake(bell)

    assert subjects.bell_of(subject) == bell
    assert matches(subjects.wakes(app, partition), subject)
    assert not matches(subjects.wakes(app, partition + 1), subject)


@given(names, names, names, tokens, st.lists(tokens, min_size=1, max_size=6))
def test_an_offering_survives_its_subject(namespace, queue, app, run_id, path):
    subjects = Subjects(namespace)
    offering = Offering(queue, run_id, ".".join(path), app)

    subject = subjects.offered(offering)

    assert subjects.offering_of(subject) == offering
    assert matches(subjects.every_offering(queue), subject)
    assert matches(subjects.offerings(queue, app), subject)
    assert not matches(subjects.offerings(queue, "y" if app.startswith("x") else "x"), subject)


@pytest.mark.parametrize(
    "rest",
    ["", "q", "q.a.r", "q.a.r.", "q.a..0", "q.a.r.0..1", "q.a.r.0.", "-q.a.r.0", "q.a.r.*", "q.a.r.0" + "x" * 512],
)
def test_a_subject_that_is_no_offering_is_none(rest):
    assert Subjects("ns").offering_of(f"fp.ns.step.{rest}") is None
    assert Subjects("ns").offering_of("fp.other.step.q.a.r.0") is None


@given(names, st.lists(tokens, min_size=1, max_size=4))
def test_a_workflow_survives_its_subject(namespace, parts):
    subjects = Subjects(namespace)

    subject = subjects.start(".".join(parts))

    assert subjects.workflow_of(subject) == ".".join(parts)
    assert matches(subjects.every_start, subject)


@given(st.text(max_size=60))
def test_no_subject_of_strangers_is_an_error(subject):
    subjects = Subjects("ns")

    for text in (subject, f"fp.ns.wake.{subject}", f"fp.ns.start.{subject}", f"fp.ns.step.{subject}"):
        offering = subjects.offering_of(text)
        assert offering is None or subjects.offered(offering) == text
        bell = subjects.bell_of(text)
        assert bell is None or subjects.wake(bell) == text
        assert subjects.workflow_of(text) in {None, text.removeprefix("fp.ns.start.")}


def test_a_bell_too_long_to_be_ours_is_none():
    assert Subjects("ns").bell_of("fp.ns.wake.default.00.run." + "x" * 600) is None


@given(st.text(max_size=80))
def test_what_may_be_answered_is_an_inbox_in_plain_characters(address):
    for text in (address, f"_INBOX{address}", f"_INBOX.{address}", f"fp.ns.reply.{address}"):
        if may_be_answered("ns", text):
            assert text.startswith(("_INBOX.", "_INBOX_", "fp.ns.reply."))
            assert not set(text) & set("*>$ \t\r\n")
            assert all(text.split("."))


@pytest.mark.parametrize(
    "address",
    [
        "_INBOX.abc",
        "_INBOX.NUID22.token-1",
        "_INBOX_client.abc.def",
        "fp.ns.reply.mine",
        "fp.ns.reply.mine.too",
    ],
)
def test_inboxes_are_answered(address):
    assert may_be_answered("ns", address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "_INBOX",
        "_INBOX.",
        "_INBOX.*",
        "_INBOX.a.>",
        "_INBOX.a b",
        "_INBOX.a\r\nPUB x 0",
        "_INBOXES.a",
        "$JS.API.STREAM.DELETE.X",
        "$SYS.REQ.SERVER.PING",
        "_INBOX.$JS.API",
        "$JS.ACK.S.C.1.1.1.1.0",
        "fp.ns.start.checkout",
        "fp.ns.reply",
        "fp.ns.reply.",
        "fp.ns.reply.*",
        "fp.other.reply.x",
        "fp.ns.wake.default.00.run.x",
        "_INBOX." + "a" * 600,
    ],
)
def test_nothing_else_is_answered(address):
    assert not may_be_answered("ns", address)


@pytest.mark.parametrize("name", ["", ".", "a.b", "a b", "*", ">", "-a", "_a", "ä", "a" * 33, "a/b", "a\n"])
def test_a_name_that_is_no_token_is_refused_with_the_rule(name):
    with pytest.raises(ValueError, match="letters, digits"):
        name_checked("namespace", name)


@pytest.mark.parametrize("workflow", ["", ".", "a..b", "a.", "a b", "a.*", ">", "a\x00", "a\n", "\ud800", "a" * 600])
def test_a_workflow_that_cannot_be_sent_is_refused(workflow):
    with pytest.raises(ValueError, match=r"cannot be sent|longer than"):
        Subjects("ns").start(workflow)


@pytest.mark.parametrize("topic", ["", "event", "event.", "other.x", "event..x", ">", "*.x", "event.a b", "start.x"])
def test_a_topic_is_event_dead_or_reply(topic):
    with pytest.raises(ValueError, match="topic"):
        Subjects("ns").followed(topic)


@given(st.text(max_size=20))
def test_a_token_has_bytes_and_no_borders(text):
    if token_ok(text):
        assert text.encode()
        assert not set(text) & set(".*> \t\r\n\x00")


@pytest.mark.parametrize(
    ("pattern", "subject", "meant"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("*.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a", "a.b", False),
    ],
)
def test_patterns_mean_what_the_server_means(pattern, subject, meant):
    assert matches(pattern, subject) is meant
