"""Strategies for records of all scopes, with any names and values that fit the format."""

from hypothesis import strategies as st

from metrics_reporter import Record

NAMES = st.one_of(
    st.sampled_from(["bytes_in", "bytes_out", "size", "cpu"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
)
METRICS = st.dictionaries(NAMES, st.floats(allow_nan=False, allow_infinity=False), max_size=6)
TIMES = st.integers(-(2**63), 2**63 - 1)
IDS = st.integers(0, 2**31 - 1)
TOPICS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
RECORDS = st.one_of(
    st.builds(Record, TIMES, IDS, METRICS, st.none(), st.just(-1), st.just(False)),
    st.builds(Record, TIMES, IDS, METRICS, TOPICS, st.integers(-1, 2**31 - 1), st.just(False)),
)
