"""The tables of the evidence, beside Optuna's own in the same file, and the numbered steps that made them.

Every table is named `autotune_*`. A schema newer than this program is refused: reading it would be a guess.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    DateTime,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    inspect,
    select,
)

from autotune.errors import StoreError

metadata = MetaData()

schema = Table(
    "autotune_schema",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("applied_at", DateTime, nullable=False),
)

study = Table(
    "autotune_study",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("model", String, nullable=False),
    Column("space", JSON, nullable=False),
    Column("space_digest", String, nullable=False),
    Column("workload", JSON, nullable=False),
    Column("objectives", JSON, nullable=False),
    Column("metric_limits", JSON, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("architecture", String),
    # The file that the study was begun from, and its form; see `ImportedCommand`.
    Column("imported", JSON),
    # Whether what changes the model's answers may be chosen.
    Column("allows_drift", Boolean, nullable=False, default=False),
    Column("environment", JSON, nullable=False),
    Column("created_at", DateTime, nullable=False),
)

run = Table(
    "autotune_run",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("started_at", DateTime, nullable=False),
    Column("budget_s", Float, nullable=False),
    Column("spent_s", Float, nullable=False, default=0.0),
    Column("ended", String),
)

refusal = Table(
    "autotune_refusal",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("autotune_run.id"), nullable=False, index=True),
    Column("grounds", String, nullable=False),
    Column("why", String, nullable=False),
    Column("count", Integer, nullable=False),
    UniqueConstraint("run_id", "grounds", "why"),
)

trial = Table(
    "autotune_trial",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("run_id", ForeignKey("autotune_run.id"), nullable=False),
    Column("origin", String, nullable=False),
    Column("configuration", JSON, nullable=False),
    Column("argv", JSON, nullable=False),
    Column("env", JSON, nullable=False),
    Column("started_at", DateTime, nullable=False),
    Column("finished_at", DateTime),
    Column("step_s", JSON, nullable=False, default=dict),
    Column("log_path", String),
    Column("mark", JSON),
    Column("state", String, nullable=False),
    Column("failure", JSON),
    Column("interruption", String),
    Column("effective", JSON),
    Column("block", Integer),
    # Why the ladder of one that works was broken off.
    Column("abandoned", String),
    # Greedy answers to fixed prompts, and requests of the whole context.
    Column("outputs", JSON, nullable=False, default=list),
    Column("fills", JSON, nullable=False, default=list),
)

point = Table(
    "autotune_point",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("trial_number", ForeignKey("autotune_trial.number"), nullable=False, index=True),
    Column("streams", Integer, nullable=False),
    Column("window_begin_s", Float, nullable=False),
    Column("window_end_s", Float, nullable=False),
    Column("out_tok_s", Float, nullable=False),
    Column("prompt_tok_s", Float, nullable=False),
    Column("req_s", Float, nullable=False),
    Column("done", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("ttft_s", JSON),
    Column("tpot_s", JSON),
    Column("e2e_s", JSON),
    Column("chunk_gap_s", JSON),
    Column("goodput_req_s", Float),
    Column("slo", JSON),
    Column("errors", JSON, nullable=False),
    # What the server itself counted, and what the client needed.
    Column("server", JSON),
    Column("client", JSON),
    Column("flags", JSON, nullable=False),
    Column("discarded", JSON, nullable=False),
    # Of the definitions it was computed with (`decide/estimators.py`).
    Column("estimator_version", Integer, nullable=False),
)

request = Table(
    "autotune_request",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("point_id", ForeignKey("autotune_point.id"), nullable=False, index=True),
    Column("stream", Integer, nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("prompt_index", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("sent_s", Float, nullable=False),
    Column("ended_s", Float, nullable=False),
    Column("wanted_output_tokens", Integer, nullable=False),
    Column("prompt_tokens", Integer),
    Column("output_tokens", Integer),
    Column("error", String),
    Column("shortened", Boolean, nullable=False, default=False),
    # Gaps before each chunk, the first counted from sent_s: unsigned 32-bit little-endian microseconds.
    Column("gaps_us", LargeBinary, nullable=False),
)


recheck = Table(
    "autotune_recheck",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("trial_number", ForeignKey("autotune_trial.number"), nullable=False, index=True),
    Column("vllm_version", String, nullable=False),
    Column("started_at", DateTime, nullable=False),
    Column("finished_at", DateTime),
    Column("log_path", String),
    Column("mark", JSON, nullable=False),
    # None while it runs, and for one whose autotune was killed.
    Column("verdict", String),
    Column("failure", JSON),
)


lesson = Table(
    "autotune_lesson",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("form", String, nullable=False),
    Column("forbids", String, nullable=False),
    Column("while_unset", JSON, nullable=False),
    Column("why", String, nullable=False),
    Column("kind", String, nullable=False),
    # Of another study where the lesson was taken over from it: no key into this file's trials.
    Column("trial", Integer, nullable=False),
    Column("study", String, nullable=False),
    Column("vllm_version", String, nullable=False),
    Column("model", String, nullable=False),
    Column("architecture", String, nullable=False),
    Column("device", String, nullable=False),
    Column("forgotten", Boolean, nullable=False, default=False),
    UniqueConstraint("study", "trial", "forbids"),
)


def _create_first_tables(connection: Connection) -> None:
    metadata.create_all(connection, tables=[study, run, refusal, trial, point, request, lesson, recheck])


MIGRATIONS: Sequence[Callable[[Connection], None]] = (_create_first_tables,)
"""Step n brings schema n to n + 1. A step is never changed once released; a new one is added."""


def current_version(connection: Connection) -> int:
    """The schema of the open file; 0 for one without autotune's tables."""
    if not inspect(connection).has_table(schema.name):
        return 0
    versions = connection.execute(select(schema.c.version)).scalars().all()
    return max(versions, default=0)


def check_version(connection: Connection, path: str) -> int:
    """The schema of the open file. Raises StoreError when it is newer than this program."""
    version = current_version(connection)
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path}: this study file has schema {version}, but this autotune knows schemas up to "
            f"{len(MIGRATIONS)}; upgrade with: pip install -U vllm-autotune"
        )
    return version
