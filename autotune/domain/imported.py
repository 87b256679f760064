"""How somebody starts vLLM today, as it was read from a file: shell script, unit, compose file ..."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autotune.domain.space import Json


class Form(StrEnum):
    """What kind of file a command stands in."""

    SHELL = "shell"
    SYSTEMD = "systemd"
    DOCKER_RUN = "docker-run"
    COMPOSE = "compose"
    VLLM_CONFIG = "vllm-config"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFlag:
    """A flag of the command that is commented out: what somebody once tried. `name` has its dashes.

    `remark` is what they wrote beside it; `line` counts from 1.
    """

    name: str
    value: Json
    line: int
    remark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUnderstood:
    """A part of the file that the import leaves out, and why, as one sentence. `text` holds no secret."""

    line: int
    text: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCommand:
    """The server that a file starts.

    `flags` has long names with dashes, without `no-`, and values as vLLM reads them: true for a bare flag,
    false for `--no-x`, an object for JSON, 32000 for `32k`. The last of several counts. Where the server
    listens (`host`, `port`) is not among them: it is the deployment's affair, not the search's.
    """

    form: Form
    source: str
    """The file as it was given."""
    model: str
    flags: Mapping[str, Json] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that reach vLLM, without secrets."""
    secrets: tuple[str, ...] = ()
    """Names of variables left out because their values are secret."""
    candidates: tuple[CandidateFlag, ...] = ()
    not_understood: tuple[NotUnderstood, ...] = ()
    host: str | None = None
    port: int | None = None
    not_serving: Mapping[str, Json] = field(default_factory=dict)
    """Flags that say how the server is reached or what it tells (host, TLS, API keys without their values,
    logging): no affair of the search, but of an export in this form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a study keeps of the file it was begun from: enough to write such a file again."""

    command: ImportedCommand
    text: str
    """The file itself, with the values of secrets blotted out."""
