"""Raw requests for tests of what is computed from them."""

from collections.abc import Sequence

from hypothesis import strategies as st

from autotune.domain.measurement import RequestRecord, RequestState


def request(
    sent_s: float,
    chunk_s: Sequence[float],
    *,
    tokens: int | None = None,
    state: RequestState = RequestState.DONE,
    wanted: int | None = None,
    prompt_tokens: int | None = 100,
    error: str | None = None,
    shortened: bool = False,
) -> RequestRecord:
    count = len(chunk_s) if tokens is None and state is RequestState.DONE else tokens
    return RequestRecord(
        stream=0,
        sequence=1,
        prompt_index=0,
        sent_s=sent_s,
        chunk_s=tuple(chunk_s),
        ended_s=chunk_s[-1] if chunk_s else sent_s,
        wanted_output_tokens=wanted or count or len(chunk_s),
        prompt_tokens=prompt_tokens,
        output_tokens=count,
        state=state,
        error=error,
        shortened=shortened,
    )


def closed_loop(
    streams: int, ttft_s: float, tpot_s: float, tokens: int, until_s: float, offset_s: float = 0.0
) -> list[RequestRecord]:
    """What `streams` clients of a server of constant speed see, each `offset_s` later than the one before."""
    requests = []
    for stream in range(streams):
        sent = stream * offset_s
        while sent < until_s:
            chunks = [sent + ttft_s + k * tpot_s for k in range(tokens)]
            seen = [c for c in chunks if c < until_s]
            cut = len(seen) < tokens
            state = RequestState.CUT if cut else RequestState.DONE
            requests.append(request(sent, seen, state=state, tokens=None if cut else tokens, wanted=tokens))
            sent = chunks[-1]
    return requests


@st.composite
def points(draw: st.DrawFn) -> tuple[list[RequestRecord], tuple[float, float]]:
    """Requests as a point may bring them; times in 1/64 s, so that shifting them is exact."""
    requests = []
    for _ in range(draw(st.integers(0, 12))):
        sent = draw(st.integers(0, 600))
        gaps = draw(st.lists(st.integers(1, 60), max_size=8))
        chunks = [(sent + sum(gaps[: k + 1])) / 64 for k in range(len(gaps))]
        state = draw(st.sampled_from(RequestState if chunks else [RequestState.CUT, RequestState.FAILED]))
        requests.append(
            request(
                sent / 64,
                chunks,
                state=state,
                tokens=draw(st.integers(1, 40)) if state is RequestState.DONE else None,
                wanted=40,
                error="x" if state is RequestState.FAILED else None,
                shortened=draw(st.booleans()),
            )
        )
    begin = draw(st.integers(0, 500))
    return requests, (begin / 64, (begin + draw(st.integers(1, 500))) / 64)
