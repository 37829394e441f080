"""The claims of the paper's text, checked against its own tables and against our runs."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from evenhand.paper._finding import Finding, overall
from evenhand.paper._findings import find_findings
from evenhand.paper._provenance import provenance_lines
from evenhand.paper._published import NETWORKS, PublishedColumn, best_of_others, published_tables
from evenhand.paper._run_store import RunStore
from evenhand.paper.studies import METHODS
from evenhand.runs.comparison import Comparison
from evenhand.runs.record import RunRecord

State = Literal["holds", "contradicted", "no number printed"]


@dataclass(frozen=True)
class Printed:
    """A claim of the text against the paper's tables."""

    state: State
    detail: str
    cells: tuple[str, ...] = ()
    """Where the tables contradict the claim."""
    ties: tuple[str, ...] = ()
    """Where methods tie."""


@dataclass(frozen=True)
class Claim:
    """One claim of the text, in our words."""

    id: str
    text: str
    printed: Callable[[], Printed]
    command: str
    """The command, without `evenhand`, whose runs test it."""
    exceptions: int = 0
    """The number of columns where it may fail: the text says almost all."""


def method_columns() -> list[PublishedColumn]:
    """Return every column that compares the four methods."""
    columns = (column for table in published_tables().values() for column in table.columns)
    return [column for column in columns if set(column.values) == set(METHODS)]


def _cce_best() -> Printed:
    beaten, ties = [], []
    for column in method_columns():
        if "CCE" not in column.best:
            beaten.append(f"{column} ({column.best[0]} {_more(column, column.best[0], 'CCE')})")
        elif len(column.best) > 1:
            ties.append(f"{column} ({', '.join(method for method in column.best if method != 'CCE')})")
    total = len(method_columns())
    detail = f"best alone in {total - len(beaten) - len(ties)} of {total} columns"
    return Printed("contradicted" if beaten else "holds", detail, tuple(beaten), tuple(ties))


def _cot_over_erm() -> Printed:
    worse, ties = [], []
    for column in method_columns():
        if column.values["COT"] < column.values["ERM"]:
            worse.append(f"{column} ({_more(column, 'ERM', 'COT')} less)".replace("(+", "("))
        elif column.values["COT"] == column.values["ERM"]:
            ties.append(str(column))
    total = len(method_columns())
    detail = f"COT is ahead of ERM in {total - len(worse) - len(ties)} of {total} columns"
    return Printed("contradicted" if worse else "holds", detail, tuple(worse), tuple(ties))


def _resnet101() -> Printed:
    table = published_tables()["table-road"]
    cce, erm = (table.value("resnet101", "none", method) or 0.0 for method in ("CCE", "ERM"))
    holds = round(cce - erm, 2) == 11.02
    return Printed("holds" if holds else "contradicted", f"{cce:.2f} - {erm:.2f} = {cce - erm:.2f} points")


def _road_best() -> Printed:
    """Compare EfficientNet b0 with other papers, and with every cell of the paper's own table."""
    tables = published_tables()
    value = tables["table-road-sota"].value("efficientnet_b0", "none", "CCE") or 0.0
    paper, best = best_of_others(tables["table-road-sota"])
    own = {
        f"Road Marking {NETWORKS[column.row]}, {method} ({number:.2f})": number
        for column in tables["table-road"].columns
        for method, number in column.values.items()
        if (column.row, method) != ("efficientnet_b0", "CCE")
    }
    above = tuple(name for name, number in own.items() if number > value)
    ties = tuple(name for name, number in own.items() if number == value)
    state: State = "holds" if value > best and not above else "contradicted"
    return Printed(state, f"{value:.2f} against {best:.2f} of the best other paper, {paper}", above, ties)


def _gamma_best() -> Printed:
    columns = published_tables()["table-gamma"].columns
    beaten = [f"{column} ({column.best[0]} {_more(column, column.best[0], 'gamma=-1')})" for column in columns
              if column.best != ("gamma=-1",)]  # fmt: skip
    # The text says almost all, so one exception does not contradict it.
    state: State = "holds" if len(beaten) <= 1 else "contradicted"
    return Printed(state, f"best in {len(columns) - len(beaten)} of {len(columns)} columns", tuple(beaten))


def _gamma_falls() -> Printed:
    rises = []
    steps = 0
    for column in published_tables()["table-gamma"].columns:
        for (smaller, before), (larger, after) in pairwise(column.values.items()):
            steps += 1
            if after > before:
                rises.append(f"{column}, {smaller} to {larger.partition('=')[2]} (+{after - before:.2f})")
    detail = f"accuracy falls in {steps - len(rises)} of {steps} steps to the next larger |gamma|"
    return Printed("contradicted" if rises else "holds", detail, tuple(rises))


def _not_printed(what: str) -> Callable[[], Printed]:
    return lambda: Printed("no number printed", what)


def _more(column: PublishedColumn, one: str, other: str) -> str:
    return f"+{column.values[one] - column.values[other]:.2f}"


CLAIMS = (
    Claim(
        "cce-best", "CCE is the best method in every experiment", _cce_best, "reproduce table-fashion --protocol fair"
    ),
    Claim(
        "rare-classes",
        "rare classes gain most",
        _not_printed("a figure of confusion matrices; the text says that samples of minority classes are helped"),
        "reproduce table-cifar10 --protocol fair",
    ),
    Claim(
        "every-class",
        "CCE recognises every class of long-tailed CIFAR better than ERM",
        _not_printed("a figure of confusion matrices"),
        "reproduce figure-confusion --protocol fair --runs-only",
    ),
    Claim(
        "cot-over-erm",
        "replacing ERM by COT improves accuracy",
        _cot_over_erm,
        "reproduce table-fashion --protocol fair",
    ),
    Claim(
        "resnet101",
        "CCE gains 11.02 points over ERM with ResNet-101 on Road Marking",
        _resnet101,
        "reproduce table-road --protocol fair",
    ),
    Claim(
        "road-best",
        "CCE with EfficientNet b0 reaches 99.80 on Road Marking, the best of all",
        _road_best,
        "reproduce table-road --protocol paper --only efficientnet_b0,CCE",
    ),
    Claim(
        "gamma-best",
        "gamma = -1 is best on almost all variants of CIFAR-10",
        _gamma_best,
        "reproduce table-gamma --protocol fair",
        exceptions=1,
    ),
    Claim(
        "gamma-falls",
        "the larger |gamma|, the lower the accuracy",
        _gamma_falls,
        "reproduce table-gamma --protocol fair",
    ),
    Claim(
        "clusters",
        "five classes of long-tailed Fashion-MNIST (T-shirt/top, Pullover, Dress, Coat, Shirt) lie farther apart with "
        "CCE than with ERM",
        _not_printed("a figure of t-SNE"),
        "reproduce figure-tsne --protocol fair --runs-only",
    ),
    Claim(
        "fewer-epochs",
        "with CCE the test error on Road Marking falls in fewer epochs than with ERM",
        _not_printed("a figure of test error"),
        "reproduce figure-convergence --protocol fair --runs-only",
    ),
    Claim(
        "twice",
        "COT takes approximately twice as long, because it propagates back twice",
        _not_printed("in a table; the next claim has the factor"),
        "reproduce speed",
    ),
    Claim("faster", "a step with CCE is 1.7 times as fast as with COT", _not_printed("the factor"), "reproduce speed"),
)


@dataclass(frozen=True)
class CheckedClaim:
    """A claim with its results."""

    claim: Claim
    printed: Printed
    findings: tuple[Finding, ...]
    """Of our runs."""

    @property
    def measured(self) -> str:
        """The result of all our runs."""
        return overall(self.findings, self.claim.exceptions)

    def lines(self) -> list[str]:
        """Return it in words: the tables, then each finding, or the command for one."""
        tables = f"published: {self.printed.state} ({self.printed.detail})"
        if self.printed.cells:
            tables += f"; not at {', '.join(self.printed.cells)}"
        if self.printed.ties:
            tables += f"; ties at {', '.join(self.printed.ties)}"
        ours = [f"ours, {each.where}: {each.state}; {each.detail}" for each in self.findings]
        return [tables, *(ours or [f"ours: not run yet; evenhand {self.claim.command}"])]


def check_claims(
    out: Path, *, records: Iterable[RunRecord] = (), comparisons: Iterable[Comparison] = (), speed: Path | None = None
) -> list[CheckedClaim]:
    """Check every claim against the published tables, the finished runs of all studies, and kept comparisons.

    Args:
        out: the folder of `evenhand reproduce`: runs in `runs/`, the result of `speed` in `speed/`.
        records: of further runs.
        comparisons: of objectives with `ce`, whose runs may be gone.
        speed: the result of `speed`, if it is elsewhere.
    """
    store, times = RunStore(out / "runs", records), speed or out / "speed" / "table.json"
    findings = find_findings(store, times, comparisons)
    return [CheckedClaim(claim, claim.printed(), tuple(findings[claim.id])) for claim in CLAIMS]


def claims_json(checked: list[CheckedClaim], command: str, provenance: dict[str, Any]) -> dict[str, Any]:
    """Return all claims as plain text and numbers."""
    claims = [
        {
            "id": each.claim.id,
            "text": each.claim.text,
            "published": asdict(each.printed),
            "measured": each.measured,
            "findings": [asdict(finding) for finding in each.findings],
            "command": f"evenhand {each.claim.command}",
        }
        for each in checked
    ]
    return {"study": "claims", "command": command, "provenance": provenance, "claims": claims}


def claims_rows(checked: list[CheckedClaim]) -> list[dict[str, Any]]:
    """Return one row per finding, and one for a claim without any."""
    rows = []
    for each in checked:
        known = {"claim": each.claim.id, "published": each.printed.state, "measured": each.measured}
        rows += [known | asdict(finding) for finding in each.findings] or [
            known | dict.fromkeys(field.name for field in fields(Finding))
        ]
    return rows


def claims_markdown(checked: list[CheckedClaim], command: str, provenance: dict[str, Any]) -> str:
    """Return the page in Markdown."""
    lines = ["# Claims of the text", "", "```", command, "```", "", *provenance_lines(provenance), ""]
    lines += [*claims_explained(), ""]
    return "\n".join([*lines, *claims_sections(checked)]).rstrip() + "\n"


def claims_explained() -> list[str]:
    """Return what the words of the page mean."""
    return [
        "*published*: the paper's own tables; *ours*: our finished runs, with the paired difference over seeds, its",
        "95% interval (not corrected) and n. A difference counts beyond noise: p < 0.05 in a paired t-test, corrected",
        "by Holm for all pairs of its page; the evidence against a claim is corrected once more over all its findings.",
        "A comparison has the intervals at its own alpha, which include the sampling of test images. A claim holds,",
        "does not hold, or is not decided; where runs differ from the paper's training in network, data or recipe,",
        "*at this scale*. Objectives that learned nothing are left out.",
    ]


def claims_sections(checked: list[CheckedClaim]) -> list[str]:
    """Return a section in Markdown for each claim."""
    lines = []
    for each in checked:
        lines += [f"## {each.claim.text[0].upper()}{each.claim.text[1:]}", ""]
        lines += [f"Published: **{each.printed.state}**. Ours, on the data named below: **{each.measured}**.", ""]
        lines += [f"- {line}" for line in each.lines()] + [""]
    return lines
