from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.actors.durations import MAX_S, seconds, signed_seconds


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, 0.0),
        (90, 90.0),
        (0.25, 0.25),
        ("90s", 90.0),
        ("1h30m", 5400.0),
        (" 1h 30m ", 5400.0),
        ("1.5h", 5400.0),
        ("3d", 259_200.0),
        ("500ms", 0.5),
        ("1w", 604_800.0),
        ("1w2d3h4m5s6ms", 604_800 + 2 * 86_400 + 3 * 3600 + 4 * 60 + 5.006),
        ("PT1H30M", 5400.0),
        ("P1DT0.5S", 86_400.5),
        ("P2W", 1_209_600.0),
        (timedelta(days=2), 172_800.0),
        ("3650d", 315_360_000.0),
        (10 * 365 * 86_400, 315_360_000.0),
    ],
)
def test_a_span_reads_as_people_write_it(written, expected):
    assert seconds(written) == pytest.approx(expected)


@pytest.mark.parametrize(
    "written",
    [
        -1,
        -0.001,
        timedelta(seconds=-1),
        float("nan"),
        float("inf"),
        True,
        None,
        [],
        b"90s",
        10**400,
        timedelta.max,
        "",
        "P",
        "PT",
        "P1DT",
        "s",
        "10",
        "-5s",
        "1x",
        "30m1h",
        "1h1h",
        "1e3s",
        "٣s",
        "P1Y",
        "P1M",
        "1_000s",
        "9" * 300 + "s",
        "soon",
    ],
)
def test_nonsense_is_a_value_error_of_one_sentence(written):
    with pytest.raises(ValueError, match=r"^a duration ") as caught:
        seconds(written)

    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 200


def test_a_bare_number_as_text_says_which_unit_is_missing():
    with pytest.raises(ValueError, match="needs a unit, such as '10s'"):
        seconds("10")


def test_a_signed_span_may_have_passed():
    assert signed_seconds(timedelta(hours=-1)) == -3600.0


@given(st.one_of(st.text(), st.floats(), st.integers(), st.timedeltas(), st.booleans()))
def test_anything_is_a_bounded_span_or_a_value_error(value):
    try:
        span = seconds(value)
    except ValueError:
        return

    assert 0 <= span <= MAX_S


@given(st.integers(0, 10**6), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_short_and_iso_forms_agree(days, hours, minutes, secs):
    if days > 365_000:
        days %= 365_000

    short = seconds(f"{days}d{hours}h{minutes}m{secs}s")
    iso = seconds(f"P{days}DT{hours}H{minutes}M{secs}S")

    assert short == iso == timedelta(days=days, hours=hours, minutes=minutes, seconds=secs).total_seconds()
