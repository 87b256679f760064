"""Reads and writes the evidence of one study. Each method is one transaction."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime

from sqlalchemy import Connection, Engine, and_, func, insert, select, update

from autotune.domain.effective import Effective
from autotune.domain.fill import Fill
from autotune.domain.invocation import Invocation
from autotune.domain.machine import Environment
from autotune.domain.measurement import MeasuredPoint, Point
from autotune.domain.metric_limit import parse_metric_limits
from autotune.domain.objective import Objective
from autotune.domain.output import Output
from autotune.domain.refusal import Grounds, Refusal
from autotune.domain.server import ServerMark
from autotune.domain.space import Json
from autotune.domain.study import StudyInfo, StudySpec
from autotune.domain.trial import Outcome, Step, TrialRecord
from autotune.domain.workload import Workload
from autotune.errors import StoreError
from autotune.store import codec, points
from autotune.store.connection import insert_row, transaction
from autotune.store.lessons import LessonStore
from autotune.store.rechecks import RecheckStore
from autotune.store.request_columns import Columns, request_columns
from autotune.store.schema import refusal, run, study, trial


class EvidenceStore:
    """One study in one database; the `TrialStore` of the loop, and what reports read from."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.lessons = LessonStore(engine)
        """The lessons of the study."""
        self.rechecks = RecheckStore(engine)
        """What of it was run again."""
        self._run_id: int | None = None

    def _transaction(self) -> AbstractContextManager[Connection]:
        return transaction(self._engine)

    def info(self) -> StudyInfo | None:
        """What the study is about; None in a file that holds none yet."""
        with self._transaction() as connection:
            row = connection.execute(select(study)).mappings().first()
            spent_s = connection.execute(select(func.sum(run.c.spent_s))).scalar() or 0.0
            sums = select(refusal.c.grounds, func.sum(refusal.c.count)).group_by(refusal.c.grounds)
            refused = {Grounds(grounds): int(count) for grounds, count in connection.execute(sums)}
        if row is None:
            return None
        return StudyInfo(
            name=row["name"],
            model=row["model"],
            space=row["space"],
            space_digest=row["space_digest"],
            workload=codec.from_json(row["workload"], Workload),
            objectives=tuple(Objective.parse(text) for text in row["objectives"]),
            seed=row["seed"],
            environment=codec.from_json(row["environment"], Environment),
            spent_s=spent_s,
            architecture=row["architecture"],
            metric_limits=parse_metric_limits(row["metric_limits"]),
            refused=refused,
            imported=codec.imported_of(row),
            allows_drift=row["allows_drift"],
        )

    def create(
        self, spec: StudySpec, space: Mapping[str, Json], environment: Environment, now: datetime
    ) -> None:
        """Keep what a new study is about; `space` is the content of the search space's file."""
        with self._transaction() as connection:
            connection.execute(
                insert(study).values(
                    name=spec.name,
                    model=spec.model,
                    space=dict(space),
                    space_digest=spec.space.digest,
                    workload=codec.to_json(spec.workload),
                    objectives=[str(objective) for objective in spec.objectives],
                    metric_limits=[str(limit) for limit in spec.metric_limits],
                    seed=spec.seed,
                    architecture=spec.architecture,
                    imported=None if spec.imported is None else codec.to_json(spec.imported),
                    allows_drift=spec.allows_drift,
                    environment=codec.environment_json(environment),
                    created_at=codec.utc(now),
                )
            )

    def begin_run(self, budget_s: float, now: datetime) -> None:
        """Keep that an invocation with this budget has begun; its trials are counted to it."""
        with self._transaction() as connection:
            row = {"started_at": codec.utc(now), "budget_s": budget_s}
            self._run_id = insert_row(connection, run, row)

    def end_run(self, spent_s: float, ended: str) -> None:
        """Keep how long the invocation took, and why it ended."""
        with self._transaction() as connection:
            connection.execute(
                update(run).where(run.c.id == self._run_id).values(spent_s=spent_s, ended=ended)
            )

    def count_refused(self, refused: Sequence[Refusal]) -> None:
        """Add to the configurations that came up in this invocation and were not launched."""
        with self._transaction() as connection:
            for each, count in Counter(refused).items():
                key = {"run_id": self._run_id, "grounds": each.grounds.value, "why": each.why}
                known = and_(*(refusal.c[name] == value for name, value in key.items()))
                add = update(refusal).where(known).values(count=refusal.c.count + count)
                if connection.execute(add).rowcount == 0:
                    insert_row(connection, refusal, {**key, "count": count})

    def refusals(self) -> Sequence[tuple[Refusal, int]]:
        """Why configurations were not launched, and how many each time, in all invocations; most first."""
        total = func.sum(refusal.c.count)
        query = select(refusal.c.grounds, refusal.c.why, total).group_by(refusal.c.grounds, refusal.c.why)
        with self._transaction() as connection:
            rows = connection.execute(query.order_by(total.desc(), refusal.c.why)).all()
        return [(Refusal(grounds=Grounds(grounds), why=why), int(count)) for grounds, why, count in rows]

    def budgets_s(self) -> Sequence[float]:
        """The budget of each invocation so far."""
        with self._transaction() as connection:
            return connection.execute(select(run.c.budget_s).order_by(run.c.id)).scalars().all()

    def invocations(self) -> Sequence[Invocation]:
        """All of them, in their order."""
        with self._transaction() as connection:
            rows = connection.execute(select(run).order_by(run.c.id)).mappings().all()
        return [
            Invocation(
                began_at=row["started_at"].replace(tzinfo=UTC),
                budget_s=row["budget_s"],
                spent_s=None if row["ended"] is None else row["spent_s"],
            )
            for row in rows
        ]

    def begin(self, record: TrialRecord, mark: ServerMark | None) -> None:
        """Keep a trial that is about to be launched; without a mark when there is nothing to find again."""
        if self._run_id is None:
            raise StoreError("a trial was begun outside an invocation")
        with self._transaction() as connection:
            connection.execute(
                insert(trial).values(
                    number=record.number,
                    run_id=self._run_id,
                    origin=record.origin.value,
                    configuration=dict(record.configuration.values),
                    argv=list(record.argv),
                    env=dict(record.env),
                    started_at=codec.utc(record.started_at),
                    log_path=record.log_path,
                    mark=None if mark is None else codec.to_json(mark),
                    state=codec.RUNNING,
                    block=record.block,
                )
            )

    def set_mark(self, number: int, mark: ServerMark) -> None:
        """Add the pid of the spawned server."""
        self._update_trial(number, {"mark": codec.to_json(mark)})

    def add_point(self, number: int, measured: MeasuredPoint) -> None:
        """Keep a point and its requests."""
        with self._transaction() as connection:
            points.add_point(connection, number, measured)

    def set_effective(self, number: int, effective: Effective) -> None:
        """Add what vLLM made of the settings."""
        self._update_trial(number, {"effective": codec.to_json(effective)})

    def set_outputs(self, number: int, outputs: Sequence[Output]) -> None:
        """Add its answers to the fixed prompts."""
        self._update_trial(number, {"outputs": codec.to_json(outputs)})

    def set_fills(self, number: int, fills: Sequence[Fill]) -> None:
        """Add what of its context it was seen to serve; what was kept before is replaced."""
        self._update_trial(number, {"fills": codec.to_json(fills)})

    def finish(
        self, number: int, outcome: Outcome, step_s: Mapping[Step, float], finished_at: datetime
    ) -> None:
        """Keep how it ended."""
        columns = {"finished_at": codec.utc(finished_at), "step_s": {s.value: t for s, t in step_s.items()}}
        self._update_trial(number, {**columns, **codec.outcome_columns(outcome)})

    def points(self, number: int) -> tuple[Point, ...]:
        """The points kept of a trial, in rising stream counts."""
        with self._transaction() as connection:
            return points.points_by_trial(connection, number).get(number, ())

    def measured_points(self, number: int) -> tuple[MeasuredPoint, ...]:
        """The points kept of a trial with their raw requests, in rising stream counts."""
        with self._transaction() as connection:
            return points.measured_points(connection, number)

    def request_columns(
        self, trial: int | None = None, streams: int | None = None, *, gaps: bool = False
    ) -> Iterator[Columns]:
        """The raw requests as columns, in parts (`autotune.store.request_columns`)."""
        with self._transaction() as connection:
            yield from request_columns(connection, trial, streams, gaps=gaps)

    def reestimate(self) -> int:
        """Compute the points of older estimators anew from their raw requests; returns how many there were.

        What the search was told of them stays as it was.
        """
        info = self.info()
        with self._transaction() as connection:
            return points.reestimate(connection, info.workload.slos if info else ())

    def records(self) -> Sequence[TrialRecord]:
        """All trials in the order of their numbers."""
        with self._transaction() as connection:
            rows = connection.execute(select(trial).order_by(trial.c.number)).mappings().all()
            by_trial = points.points_by_trial(connection)
        return [codec.trial_record(row, by_trial.get(row["number"], ())) for row in rows]

    def unfinished(self) -> Sequence[tuple[TrialRecord, ServerMark | None]]:
        """Trials without an outcome: those of a run that was killed."""
        with self._transaction() as connection:
            query = select(trial).where(trial.c.state == codec.RUNNING).order_by(trial.c.number)
            rows = connection.execute(query).mappings().all()
        return [(codec.trial_record(row, ()), codec.mark_of(row)) for row in rows]

    def _update_trial(self, number: int, columns: Mapping[str, object]) -> None:
        with self._transaction() as connection:
            result = connection.execute(update(trial).where(trial.c.number == number).values(**columns))
        if result.rowcount != 1:
            raise StoreError(f"trial {number} is not in the study file")
