"""A study as it is seen from Python."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from os import PathLike, fspath

import pandas as pd

from autotune.api import frames
from autotune.api.answers import Best, Fitting, html_paragraph
from autotune.api.plots import standing_alone
from autotune.decide.ranking import candidates, pareto
from autotune.decide.verdict import verdict
from autotune.decide.what_if import what_if
from autotune.domain.metric_limit import MetricLimit, instead
from autotune.domain.objective import Objective, check_slos
from autotune.errors import UserError
from autotune.report import figures, words
from autotune.report.figures.plotly_edge import Figure
from autotune.report.limits import nothing_to_deploy
from autotune.report.view import StudyView
from autotune.units import format_duration
from autotune.wiring.open import look_into
from autotune.wiring.view import read_quickly, with_importance


def open(path: str | PathLike[str]) -> "Study":  # noqa: A001 - reads as `autotune.open`, its public name
    """The study in the file at `path` (or at an SQLAlchemy URL), as it is now.

    Raises StoreError when the file is missing, no study file, or of an older or newer schema than this
    autotune's, and UserError when no study has begun in it. Nothing in it is ever changed.
    """
    return Study(fspath(path))


class Study:
    """A study as it was when it was read: all its frames, figures and answers are of that moment.

    `refresh` reads it again. The columns of the frames are in docs/api.md; objectives are written as for the
    command line, `out_tok_s@8`.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._view = self._read()

    def _read(self) -> StudyView:
        with look_into(self._database) as store:
            return read_quickly(store)

    def refresh(self) -> "Study":
        """The same study as it is now."""
        return Study(self._database)

    @property
    def name(self) -> str:
        """Of the study."""
        return self._view.info.name

    @property
    def model(self) -> str:
        """The model that is served."""
        return self._view.info.model

    @property
    def vllm_version(self) -> str:
        """The vLLM that serves it."""
        return self._view.info.environment.vllm.version

    @property
    def machine(self) -> str:
        """What it runs on: the GPUs, else the processor."""
        return frames.device(self._view.info.environment.machine)

    @property
    def objectives(self) -> tuple[str, ...]:
        """What the search maximises or minimises."""
        return tuple(map(str, self._view.info.objectives))

    @property
    def limits(self) -> tuple[str, ...]:
        """What a configuration must keep to be chosen; empty where anything may be."""
        return tuple(map(str, self._view.info.metric_limits))

    @property
    def streams(self) -> tuple[int, ...]:
        """The stream counts that were measured."""
        return self._view.info.workload.streams

    @cached_property
    def about(self) -> pd.Series:
        """What the study is about and how it went, to be laid beside that of another study."""
        return frames.about(self._view)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row for each trial, with its outcome, its settings and the objectives' values."""
        return frames.trials(self._view)

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row for each point, a trial at one stream count, with every number that was measured."""
        return frames.points(self._view)

    @cached_property
    def failures(self) -> pd.DataFrame:
        """One row for each trial that failed: why, the line of the log that is the cause, the cure."""
        return frames.failures(self._view)

    @cached_property
    def lessons(self) -> pd.DataFrame:
        """One row for each lesson: what the failures forbid."""
        return frames.lessons(self._view)

    def requests(
        self, trial: int | None = None, streams: int | None = None, *, gaps: bool = False
    ) -> pd.DataFrame:
        """One row for each raw request: of all trials and stream counts, or of one.

        Read from the file at each call. `gaps` adds when each chunk of output came, which can be much. Raises
        UserError when there is no such trial, or no trial was measured at so many streams.
        """
        if trial is not None and trial not in {record.number for record in self._view.records}:
            raise UserError(f"there is no trial {trial}; {self.name} has {len(self._view.records)}, from 0")
        if streams is not None:
            self._check_streams(streams, "requests")
        with look_into(self._database) as store:
            return frames.requests(store.request_columns(trial, streams, gaps=gaps), gaps=gaps)

    def pareto(self, objectives: Sequence[str] | None = None) -> pd.DataFrame:
        """The configurations that no other beats in all `objectives`, by default in those of the study.

        Only those that keep the study's limits count. A configuration stands there under its first measured
        trial, with the geometric means of its launches; of one that was in finals, those of the limits are
        over its launches there. Raises UserError for an objective that was not measured.
        """
        wanted = self._objectives(objectives)
        limits = self._view.info.metric_limits
        known = candidates(self._view.records, wanted, limits)
        return frames.configurations(pareto(known, wanted), wanted, limits)

    def best(self, prefer: str | None = None) -> Best | None:
        """What to deploy, by the study's objectives or by `prefer` alone.

        None where nothing was measured that keeps the study's limits.
        The same as `autotune best`. Raises UserError for an objective that was not measured.
        """
        wanted = self._objectives([prefer] if prefer else None)
        info = self._view.info
        found = verdict(
            self._view.records, info.objectives, wanted[0] if prefer else None, info.metric_limits
        )
        return Best.of(found, wanted) if found else None

    def what_if(
        self,
        limits: Mapping[str, float] | None = None,
        *,
        context_tokens: int | None = None,
        prefer: str | Sequence[str] | None = None,
    ) -> Fitting:
        """The configurations that fit: `study.what_if({"ttft_p95@4": 2.0}, context_tokens=65536)`.

        Each of `limits` is in the unit of its metric (seconds for a latency): at most so much where less is
        better, else at least so much. It goes before the study's own limit of the same metric; the others
        hold. Those that fit are ranked by `prefer`, by default by the study's objectives. Raises UserError
        for a metric that was not measured, and for a limit that says nothing.
        """
        asked = _limits(self._objectives(list(limits or {})), list((limits or {}).values()))
        chosen_by = self._objectives([prefer] if isinstance(prefer, str) else prefer)
        all_limits = instead(self._view.info.metric_limits, asked)
        return Fitting.of(what_if(self._view.records, all_limits, chosen_by, context_tokens))

    def plot_front(self, *, dark: bool = False) -> Figure:
        """What can be had: every configuration by the objectives, and the front."""
        return self._plot(figures.front, dark=dark)

    def plot_interactivity(self, *, dark: bool = False) -> Figure:
        """Throughput of the machine against the speed for each user, at every stream count."""
        return self._plot(figures.interactivity, dark=dark)

    def plot_ladders(self, *, dark: bool = False) -> Figure:
        """Rates and latencies by concurrent streams, of the defaults and of what is best."""
        return self._plot(figures.ladders, dark=dark)

    def plot_timeline(self, *, dark: bool = False) -> Figure:
        """Where the time went."""
        return self._plot(figures.timeline, dark=dark)

    def plot_failures(self, *, dark: bool = False) -> Figure:
        """The causes of failures, and what they cost."""
        return self._plot(figures.failures, dark=dark)

    def plot_importance(self, *, dark: bool = False) -> Figure:
        """How much each parameter mattered."""
        return standing_alone(figures.importance(self._view_with_importance), dark=dark)

    def plot_slices(self, *, dark: bool = False) -> Figure:
        """What each value of each parameter gave."""
        return self._plot(figures.slices, dark=dark)

    def plot_hypervolume(self, *, dark: bool = False) -> Figure:
        """How the front grew over time."""
        return self._plot(figures.hypervolume, dark=dark)

    @cached_property
    def _view_with_importance(self) -> StudyView:
        return with_importance(self._view)

    def _plot(self, make: Callable[[StudyView], figures.Plot | figures.Nothing], *, dark: bool) -> Figure:
        return standing_alone(make(self._view), dark=dark)

    def _objectives(self, texts: Sequence[str] | None) -> tuple[Objective, ...]:
        if texts is None:
            return self._view.info.objectives
        objectives = tuple(map(Objective.parse, texts))
        for objective in objectives:
            self._check_streams(objective.streams, f"objective {objective}")
        check_slos(objectives, self._view.info.workload.slos)
        return objectives

    def _check_streams(self, streams: int, what: str) -> None:
        if streams not in self.streams:
            counts = ", ".join(map(str, self.streams))
            raise UserError(f"{what}: {self.name} has no point at {streams} streams; it has them at {counts}")

    def __repr__(self) -> str:
        return f"<autotune study {self.name}: {self._counts()}>"

    def _counts(self) -> str:
        states = Counter(words.state(record) for record in self._view.records)
        told = ", ".join(f"{count} {state}" for state, count in states.items())
        return words.counted(len(self._view.records), "trial") + (f" ({told})" if told else "")

    def _nothing(self) -> str:
        info = self._view.info
        return nothing_to_deploy(self._view.records, info.objectives, info.metric_limits)

    def _repr_html_(self) -> str:
        info = self._view.info
        found = Best.of(self._view.verdict, info.objectives) if self._view.verdict else None
        lines = [
            f"{self.name}: {self.model}, vLLM {self.vllm_version} on {self.machine}",
            f"{self._counts()} in {format_duration(info.spent_s)}; objectives {', '.join(self.objectives)}",
            found.says if found else self._nothing(),
        ]
        return "".join(map(html_paragraph, lines))


def _limits(measured: Sequence[Objective], bounds: Sequence[float]) -> list[MetricLimit]:
    try:
        return [MetricLimit(measured=of, bound=bound) for of, bound in zip(measured, bounds, strict=True)]
    except ValueError as error:
        raise UserError(f"what_if: {error}") from None
