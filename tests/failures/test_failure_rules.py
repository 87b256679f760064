"""Each rule has a fixture that it names and that is told otherwise without it; a faulty file is refused."""

import re
from pathlib import Path

import pytest
from failure_logs import Snippet, labelled, render, snippets

from autotune.decide.failures.classify import classify
from autotune.decide.failures.logscan import lines_of, scan
from autotune.decide.failures.rulebook import Rules
from autotune.decide.failures.signatures import RuleIndex, Versions, Weight
from autotune.domain.failure import Failure
from autotune.errors import FileError
from autotune.files.rules import VLLM_RULES, read_rules

RULES = read_rules(VLLM_RULES)
SNIPPETS = snippets()


def said(snippet: Snippet, rules: Rules) -> tuple[Failure | None, set[str]]:
    """The failure of a snippet's log and the rules of its notices."""
    log = render(snippet)
    if snippet.evidence:
        return classify(snippet.evidence.with_log(log), rules), set()
    finding = scan(lines_of(log), rules)
    return finding.failure, {notice.rule for notice in finding.notices}


def fixtures() -> dict[str, str]:
    """For each rule without a snippet, a recorded log that it names or gives a notice on."""
    found = {}
    for log in labelled():
        finding = scan(lines_of(log.text), RULES)
        rules = [finding.failure.rule] if finding.failure else [notice.rule for notice in finding.notices]
        found.update({rule: log.name for rule in rules if rule})
    return found


RECORDED = fixtures()


def test_every_rule_has_a_fixture_and_every_fixture_a_rule() -> None:
    ids = {rule.id for rule in RULES.index.rules}
    assert ids - SNIPPETS.keys() - RECORDED.keys() == set()
    assert SNIPPETS.keys() - ids == set()
    assert len(ids) >= 100


@pytest.mark.parametrize("rule_id", SNIPPETS)
def test_a_rule_names_its_snippet(rule_id: str) -> None:
    snippet = SNIPPETS[rule_id]
    rule = next(rule for rule in RULES.index.rules if rule.id == rule_id)
    failure, notices = said(snippet, RULES)
    if rule.weight is Weight.NOTICE:
        assert failure is None
        assert rule_id in notices
        return
    assert failure is not None
    assert failure.rule == rule_id
    assert {name: failure.numbers.get(name) for name in snippet.numbers} == snippet.numbers
    if failure.root_line is not None:
        heard = snippet.evidence.client_error if snippet.evidence else None
        assert any(failure.root_line in line for line in (*snippet.lines, heard or ""))


@pytest.mark.parametrize("rule_id", SNIPPETS)
def test_without_the_rule_its_snippet_is_told_otherwise(rule_id: str) -> None:
    fewer = _without(rule_id)
    before, notices_before = said(SNIPPETS[rule_id], RULES)
    after, notices_after = said(SNIPPETS[rule_id], fewer)
    words = [(f.why, f.cure) if f else None for f in (before, after)]
    assert words[0] != words[1] or notices_before != notices_after


@pytest.mark.parametrize("rule_id", sorted(RECORDED.keys() - SNIPPETS.keys()))
def test_without_the_rule_its_recorded_log_is_told_otherwise(rule_id: str) -> None:
    log = next(log for log in labelled() if log.name == RECORDED[rule_id])
    finding = scan(lines_of(log.text), _without(rule_id))
    assert finding.failure is None or finding.failure.rule != rule_id
    assert rule_id not in {notice.rule for notice in finding.notices}
    before = scan(lines_of(log.text), RULES)
    assert (before.failure, before.notices) != (finding.failure, finding.notices)


def test_the_index_of_words_misses_no_rule() -> None:
    lines = {line for log in labelled() for line in log.text.split("\n") if "rror" in line}
    lines |= {line for snippet in SNIPPETS.values() for line in snippet.lines}
    lines |= {f"X: {literal} x" for rule in RULES.index.rules for literal in rule.contains}
    whole = {
        rule.id: re.compile("|".join(rf"(?<!\w){re.escape(literal)}(?!\w)" for literal in rule.contains))
        for rule in RULES.index.rules
        if rule.contains
    }
    for line in lines:
        candidates = {rule.id for rule in RULES.index.candidates(line)}
        assert {rule for rule, literals in whole.items() if literals.search(line)} <= candidates, line


def _without(rule_id: str) -> Rules:
    index = RuleIndex(rule for rule in RULES.index.rules if rule.id != rule_id)
    return Rules(index=index, phases=RULES.phases, facts=RULES.facts, signs=RULES.signs)


def test_no_text_has_a_hole() -> None:
    hole = re.compile(r"\{\w+\}|\[|\]| \(\)| [.,:;]|: ?\.$")
    recorded = [scan(lines_of(log.text), RULES).failure for log in labelled()]
    for failure in filter(None, [*(said(snippet, RULES)[0] for snippet in SNIPPETS.values()), *recorded]):
        for text in (failure.why, failure.cure):
            quoted = [failure.numbers.get(name) for name in ("problem", "reason")]
            told = text.replace(str(quoted[0]), "X").replace(str(quoted[1]), "X")
            assert not hole.search(told), (failure.rule, text)


def test_texts_are_sentences_of_their_own() -> None:
    for rule in RULES.index.rules:
        assert rule.why[-1] in ".]}", rule.id
        assert rule.cure == "" or rule.cure.endswith("."), rule.id
        assert rule.cure or rule.weight is Weight.NOTICE, rule.id
        # A reason in our words, not the line it explains.
        assert not any(literal in rule.why for literal in rule.contains if len(literal) > 25), rule.id


def test_a_rule_can_be_for_some_versions_only() -> None:
    versions = Versions(since=(0, 23), before=(0, 29))
    inside, outside = ("0.23.0", "0.28.1rc2.dev3+g12", "v0.24"), ("0.22.9", "0.29.0", "1.0")
    assert all(versions.hold(version) for version in inside)
    assert not any(versions.hold(version) for version in outside)
    assert versions.hold(None)
    assert versions.hold("unknown")


MINIMAL = """
schema = 1
[log]
run_starts = ["start"]
stops = ["stop"]
fatal = ["fatal"]
survived = ["survived"]
chained = ["chained"]
no_failures = ["SystemExit"]
settings = ["max_num_seqs"]
[[rule]]
id = "one"
kind = "bad_flag"
blame = "configuration"
contains = ["some text"]
why = "Because."
cure = "Do."
source = "here"
"""


def read(tmp_path: Path, text: str) -> Rules:
    file = tmp_path / "some.toml"
    file.write_text(text)
    return read_rules(file)


def test_a_small_rule_file_is_read(tmp_path: Path) -> None:
    assert [rule.id for rule in read(tmp_path, MINIMAL).index.rules] == ["one"]


@pytest.mark.parametrize(
    ("line", "replacement", "key", "problem"),
    [
        ('kind = "bad_flag"', 'kind = "bad_luck"', "kind", "must be one of"),
        ('blame = "configuration"', "", "blame", "is missing"),
        ('why = "Because."', 'why = "Because of {it}."', "why", "may have no value"),
        ('why = "Because."', 'why = "Because[ of {it}]."', "why", "nothing gives {it} a value"),
        ('contains = ["some text"]', "", None, "needs `contains`"),
        ('contains = ["some text"]', 'contains = ["..."]', "contains", "holds no word"),
        ('source = "here"', 'source = "here"\npatterns = ["a.*b"]', "patterns", "can take very long"),
        ('source = "here"', 'source = "here"\npatterns = ["(a+)+b"]', "patterns", "can take very long"),
        ('source = "here"', 'source = "here"\npatterns = ["(a"]', "patterns", "is no regular expression"),
        ('source = "here"', 'source = "here"\nwhen = "a >"', "when", "cannot be read"),
        ('source = "here"', 'source = "here"\nwhen = "a > 1"', "when", "nothing gives a a value"),
        ('source = "here"', 'source = "here"\nlike = "two"', "like", "there is no rule 'two'"),
        ('source = "here"', 'source = "here"\nconfidence = 2', "confidence", "above 0 and at most 1"),
        ('source = "here"', 'source = "here"\nsince = "new"', "since", "must be a release"),
        ('source = "here"', 'source = "here"\nmin_level = "LOUD"', "min_level", "must be one of"),
        ('source = "here"', 'source = "here"\ncolour = "red"', "colour", "there is no such key"),
        ('settings = ["max_num_seqs"]', "settings = [7]", "settings", "list of texts"),
    ],
)
def test_a_fault_in_a_rule_file_is_named(
    tmp_path: Path, line: str, replacement: str, key: str | None, problem: str
) -> None:
    with pytest.raises(FileError) as error:
        read(tmp_path, MINIMAL.replace(line, replacement))
    assert problem in str(error.value)
    assert "some.toml" in str(error.value)
    assert error.value.key is not None
    assert key is None or error.value.key.endswith(key)


def test_two_rules_of_one_name_are_refused(tmp_path: Path) -> None:
    rule = MINIMAL[MINIMAL.index("[[rule]]") :]
    with pytest.raises(FileError, match="'one' is there twice"):
        read(tmp_path, MINIMAL + rule)
