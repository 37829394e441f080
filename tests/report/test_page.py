"""The page: what it says, what it never lets out, and what it does without."""

import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from evenhand.core.errors import EvenhandError
from evenhand.experiments.comparison import ComparisonResult
from evenhand.metrics.predictions import Predictions, load_predictions
from evenhand.report import _embed_figures as drawing
from evenhand.report import figures
from evenhand.report._embed_figures import draw_figures
from evenhand.report._gallery import most_confident_errors
from evenhand.report._report_data import ReportData, read_report_data
from evenhand.report._tables import class_table, confusion_table, pair_table, precision_table
from evenhand.report.figures import PAGE
from evenhand.report.figures.page_figure import Hover, PageFigure, Shown
from evenhand.report.page import render, write_report
from evenhand.runs.run import Run
from evenhand.runs.schemas import Thumbnails
from tests.fabricated import HOSTILE, write_comparison_folder, write_pictured_run

ANIMALS = ("cat", "dog", "owl", "lynx")


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def every(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page(*folders: Path, embedding: bool = False) -> Parsed:
    return Parsed(render(read_report_data(folders), embedding=embedding))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    return write_comparison_folder(folder, names=HOSTILE, source=HOSTILE[0])


@pytest.fixture(scope="module")
def compared(hostile: Path) -> str:
    return render(read_report_data([hostile]), embedding=False)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the time of drawing where only words matter."""
    monkeypatch.setattr(drawing, "figure_bytes", lambda *_: b"<svg></svg>")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_pictured_run(tmp_path / "run", names=ANIMALS)


def test_a_comparison_begins_with_its_model_and_the_conclusion(hostile: Path, compared: str) -> None:
    verdicts = json.loads((hostile / "comparison.json").read_text())["verdicts"]
    found = Parsed(compared)
    text = found.text.replace(" ", "")  # options are elements of their own
    places = [text.index(verdict.replace(" ", "")) for verdict in (verdicts[-1], *verdicts[:-1])]
    assert places == sorted(places)
    assert places[-1] < text.index("Meansoverseeds")
    assert [each["id"] for each in found.every("section")] == [
        "weakest", "photograph", "use", "results", "data", "recall", "classes", "confusion", "calibration", "training",
        "errors", "reproduce",
    ]  # fmt: skip


def test_sections_have_the_titles_that_a_user_searches_for(compared: str) -> None:
    titles = [
        "Weakest classes", "Classes to photograph more", "Use the model", "Results", "Data", "Recall by class",
        "Table of classes", "Confusion matrix", "Calibration", "Training curves", "Errors", "Reproduce",
    ]  # fmt: skip
    assert re.findall("<h2>(.*)</h2>", compared) == titles
    links = re.findall('<li><a href="#([^"]*)">([^<]*)</a></li>', compared)
    assert [title for _, title in links] == titles
    assert [place for place, _ in links] == [each["id"] for each in Parsed(compared).every("section")]


@pytest.mark.usefixtures("undrawn")
def test_a_run_begins_with_its_balanced_accuracy(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    low, high = summary["balanced_accuracy_interval"]
    worst = summary["worst_class"]
    text = page(run).text
    assert f"ce: {summary['balanced_accuracy']:.1%} balanced accuracy" in text
    assert f"{summary['balanced_accuracy']:.1%} [{100 * low:.1f}, {100 * high:.1f}] mean recall of all classes" in text
    assert re.search(rf"lowest recall {worst['recall']:.1%} \[[\d., ]+\] of class {worst['name']}", text)
    assert "evenhand compare 'photos' --out somewhere" in text
    assert "objective: ce" in text
    assert "python: 3.11" in text


def test_names_of_strangers_stay_text(compared: str) -> None:
    found = Parsed(compared)
    assert len(found.every("script")) == 1
    assert not found.every("b")
    assert not [key for _, attributes in found.elements for key in attributes if key.startswith("on")]
    assert all(image["src"].startswith("data:image/") for image in found.every("img") if "src" in image)
    for name in HOSTILE:
        assert " ".join(name.split()) in found.text
    assert "49" not in re.findall(r"<th scope=\"row\"[^>]*>([^<]*)", compared)


def test_nothing_is_asked_for_elsewhere(compared: str) -> None:
    found = Parsed(compared)
    addresses = [
        attributes[key]
        for _, attributes in found.elements
        for key in ("src", "href", "xlink:href")
        if key in attributes
    ]
    assert addresses
    assert all(address.startswith(("data:image/", "#")) for address in addresses)
    assert "@import" not in compared
    assert not re.search(r"url\((?!#)", compared)
    [policy] = [each["content"] for each in found.every("meta") if "http-equiv" in each]
    script = re.search(r"<script>(.*)</script>", compared, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert f"script-src 'sha256-{digest}'" in policy


def test_every_picture_has_words_and_every_id_is_there_once(compared: str) -> None:
    found = Parsed(compared)
    shown = [each for each in found.every("img") if "src" in each]
    assert shown
    assert all(each["alt"] for each in shown)
    assert all(each["aria-label"] for each in found.every("svg"))
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_bars_and_points_tell_their_values(hostile: Path, compared: str) -> None:
    predictions = load_predictions(hostile / "ce-0" / "predictions.npz")
    titles = [
        re.sub(r"&lt;|&gt;|&amp;|&#3[49];", lambda m: {"&lt;": "<", "&gt;": ">", "&amp;": "&"}.get(m[0], '"'), each)
        for each in re.findall(r"<title>([^<]*)</title>", compared)
    ]
    assert len(titles) == 1 + len(HOSTILE) * (1 + 2 + 1)  # of the page, of bars, of points of two objectives, of bars
    assert f"{{{{ 7 * 7 }}}}: {predictions.train_counts[-1]:,} training images" in titles


def test_values_are_told_by_the_bars_and_points_that_show_them(monkeypatch: pytest.MonkeyPatch, hostile: Path) -> None:
    told: dict[str, Hover] = {}

    def keep(_figure: Figure, _alt: str, prefix: str, hover: Hover) -> Markup:
        told[prefix] = hover
        return Markup()

    monkeypatch.setattr(drawing, "inline", keep)
    drawn = draw_figures(PAGE, read_report_data([hostile]))
    assert not [panel.problem for section in drawn.values() for panels in section for panel in panels if panel.problem]
    for bar, [text] in told["distribution-0"]:
        assert isinstance(bar, Rectangle)
        assert text.endswith(f": {max(bar.get_width(), bar.get_height()):,.0f} training images")
    for bar, [text] in told["difference-0"]:
        assert isinstance(bar, Rectangle)
        assert text.endswith(f": {bar.get_width():+.1f} pp")
    for cloud, texts in told["recall-0"]:
        assert isinstance(cloud, PathCollection)
        points = np.asarray(cloud.get_offsets())
        assert len(points) == len(texts) == len(HOSTILE)
        assert all(f": {x:.1f}%, " in text for (x, _), text in zip(points, texts, strict=True))


@pytest.mark.usefixtures("undrawn")
def test_an_entry_is_all_that_a_new_figure_needs(monkeypatch: pytest.MonkeyPatch, hostile: Path) -> None:
    def draw(_material: ReportData, panel: str) -> Shown:
        if panel == "cce":
            raise EvenhandError("There is nothing to draw of cce.")
        return Shown(Figure(), f"A figure of {panel}.")

    entry = PageFigure("new", "results", draw, caption="What is new.", panels=lambda data: data.finished)
    never = PageFigure("never", "results", draw, condition=lambda _: False)
    monkeypatch.setattr("evenhand.report.page.PAGE", (*PAGE, entry, never))
    found = page(hostile)
    assert [each["alt"] for each in found.every("img") if "new" in each["alt"] or "figure of" in each["alt"]] == [
        "A figure of ce."
    ]
    assert "What is new." in found.text
    assert "There is nothing to draw of cce." in found.text


def test_every_figure_of_the_page_has_a_name_of_its_own() -> None:
    names = [figure.name for figure in PAGE]
    assert len(names) == len(set(names))


def test_the_same_folders_give_the_same_page(hostile: Path, compared: str) -> None:
    assert render(read_report_data([hostile]), embedding=False) == compared


@settings(derandomize=True, deadline=None, max_examples=30)
@given(data=st.data(), num_classes=st.integers(2, 6))
def test_tables_agree_with_scikit_learn(data: st.DataObject, num_classes: int) -> None:
    classes = st.integers(0, num_classes - 1)
    pairs = data.draw(st.lists(st.tuples(classes, classes), min_size=1, max_size=30))
    targets, predicted = np.array(pairs, np.int64).T
    names = tuple(f"class {k}" for k in range(num_classes))
    made = Predictions(
        np.eye(num_classes, dtype=np.float32)[predicted],
        targets,
        np.array([str(k) for k in range(len(pairs))]),
        names,
        np.arange(num_classes, 0, -1, dtype=np.int64),
    )
    precision, recall, f1, support = precision_recall_fscore_support(
        targets, predicted, labels=range(num_classes), zero_division=0
    )
    for k, row in enumerate(class_table({"ce": [made]}, None).rows):
        assert (row[0].text, row[3].value) == (names[k], support[k])
        assert row[4].text == (f"{100 * recall[k]:.1f}" if support[k] else "")
    for k, row in enumerate(precision_table({"ce": [made]}).rows):
        expected = [f"{100 * value:.1f}" for value in (precision[k], f1[k])] if support[k] else [""] * 2
        if support[k] and k not in predicted:
            expected[0] = "-"
        assert [cell.text for cell in row[1:]] == expected
    counts = confusion_matrix(targets, predicted, labels=range(num_classes))
    for k, row in enumerate(confusion_table([made, made]).rows):
        shares = 100 * counts[k] / max(counts[k].sum(), 1)
        assert [cell.value for cell in row[1:]] == [round(share, 1) for share in shares]


def test_differences_are_to_the_baseline_and_averaged_over_seeds(hostile: Path) -> None:
    data = read_report_data([hostile])
    table = class_table(data.predictions(), "ce")
    assert [column.name for column in table.columns[4:]] == ["ce", "cce", "cce"]
    kept = json.loads((hostile / "comparison.json").read_text())["per_class"]
    for row, expected in zip(table.rows, kept, strict=True):
        assert row[0].text == expected["name"]
        assert row[6].value == pytest.approx(100 * expected["difference"]["cce"], abs=0.051)


def test_the_largest_confusions_are_named_where_there_are_too_many_classes() -> None:
    predicted = np.array([1, 1, 0, 1, 2, 2])
    made = Predictions(
        np.eye(3, dtype=np.float32)[predicted],
        np.array([0, 0, 0, 1, 2, 1]),
        np.array(list("abcdef")),
        ("cat", "dog", "owl"),
        np.array([9, 5, 3]),
    )
    cells = [[cell.text for cell in row] for row in pair_table([made]).rows]
    assert cells == [["cat", "dog", "66.7", "2 of 3"], ["dog", "owl", "50.0", "1 of 2"]]


@pytest.mark.parametrize(
    ("objectives", "most"),
    [(("ce", "cce"), 3e6), pytest.param(("ce", "focal", "cot", "cce"), 5e6, marks=pytest.mark.slow)],
    ids=["two", "four"],
)
def test_ten_classes_with_large_pictures_stay_small(tmp_path: Path, objectives: tuple[str, ...], most: float) -> None:
    names = [f"class {k}" for k in range(10)]
    folder = write_comparison_folder(tmp_path, names=names, seeds=1, objectives=objectives, size=96, per_class=20)
    written = write_report([folder])
    assert written == folder / "report.html"
    assert written.stat().st_size < most


@pytest.mark.slow
def test_a_thousand_classes_make_a_page(tmp_path: Path) -> None:
    names = [f"class {k}" for k in range(1000)]
    folder = write_comparison_folder(tmp_path, names=names, seeds=1, per_class=2)
    text = render(read_report_data([folder]), embedding=False)
    found = Parsed(text)
    assert len(text) < 5e6
    assert all(f">{name}</th>" in text for name in names)
    assert 'class="scroll classes tall"' in text
    assert text.count('<td style="--share') == 2 * 16 * 16  # of the most confused classes
    assert len(found.every("li")) < 200


@pytest.mark.usefixtures("undrawn")
def test_features_are_drawn_or_said_to_be_missing(run: Path) -> None:
    drawn = page(run, embedding=True)
    assert any(
        image.get("alt", "").startswith("t-SNE of the features of 48 test images") for image in drawn.every("img")
    )
    (run / "features.npz").unlink()
    assert f"features.npz is missing in {run}." in page(run, embedding=True).text
    (run / "features.npz").write_bytes(b"PK\x03\x04 no archive")
    assert f"Cannot read {run / 'features.npz'}: it is damaged" in page(run, embedding=True).text
    assert "features.npz" not in page(run).text  # not asked for


@pytest.mark.usefixtures("undrawn")
def test_pictures_are_left_out_where_they_are_missing_damaged_or_of_another_run(tmp_path: Path, run: Path) -> None:
    other = write_pictured_run(tmp_path / "other", names=ANIMALS, ids_from=100)
    shutil.copy(other / "thumbnails.npz", run)
    (run / "checksums.json").unlink()
    assert f"{run / 'thumbnails.npz'}: it does not belong to the predictions." in page(run).text
    (run / "thumbnails.npz").write_bytes(b"")
    assert f"Cannot read {run / 'thumbnails.npz'}: it is damaged" in page(run).text
    (run / "thumbnails.npz").unlink()
    assert f"thumbnails.npz is missing in {run}." in page(run).text


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_an_error_has_an_empty_gallery(tmp_path: Path) -> None:
    run = write_pictured_run(tmp_path / "run", names=ANIMALS, gain=50)
    assert "No errors." in page(run).text


@pytest.mark.usefixtures("undrawn")
def test_an_adjustment_that_the_page_does_not_show_is_told(run: Path) -> None:
    assert "adjust the logits" not in page(run).text
    added = [0.0] * len(ANIMALS)
    done = {"kind": "post-hoc", "chosen": "given", "tau": 1.0, "added_to_logits": added, "balanced_accuracy": 0.625}
    Run(run).write_adjustment(done)
    note = f"adjust the logits of {run.name} (post-hoc, tau 1; balanced accuracy 62.5%); this page shows the unadjusted"
    assert note in page(run).text
    (run / "adjustment.json").write_text("{")
    assert "adjustment.json" in page(run).text
    Run(run).write_adjustment(done)
    Run(run).write_predictions(replace(Run(run).predictions, adjustment=np.array(added)))
    assert "adjust the logits" not in page(run).text


@pytest.mark.usefixtures("undrawn")
def test_an_unfinished_run_shows_its_curves_and_how_to_continue(tmp_path: Path) -> None:
    run = write_pictured_run(tmp_path / "a run", names=ANIMALS, finished=False)
    found = page(run)
    assert f"a run is not finished: 1 of 3 epochs are done. Resume with evenhand train --resume '{run}'" in found.text
    assert [each["id"] for each in found.every("section")] == ["training", "reproduce"]
    assert any("Training loss" in image["alt"] for image in found.every("img"))
    (run / "history.csv").unlink()
    assert "No epoch is finished in 'a run'." in page(run).text


@pytest.mark.usefixtures("undrawn")
def test_finished_and_unfinished_runs_share_a_page(tmp_path: Path, run: Path) -> None:
    text = page(run, write_pictured_run(tmp_path / "late", names=ANIMALS, objective="cce", finished=False)).text
    assert "ce: balanced accuracy" in text
    assert "late is not finished" in text


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_validation_has_no_curves_but_its_loss(run: Path) -> None:
    (run / "history.csv").write_text("epoch,train_loss,seconds\n1,2.0,1.0\n2,1.5,1.0\n")
    assert [image["alt"] for image in page(run).every("img") if "epoch" in image["alt"]] == [
        "Training loss after each epoch, for ce."
    ]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["predictions.npz", "summary.json", "history.csv", "config.yaml"])
def test_a_damaged_file_is_named_in_a_sentence(run: Path, name: str) -> None:
    content = (run / name).read_bytes()
    (run / name).write_bytes(b"\x00" + content[: len(content) // 2])
    with pytest.raises(EvenhandError, match=re.escape(str(run / name))):
        page(run)


@pytest.mark.usefixtures("undrawn")
def test_a_summary_that_lacks_something_is_named(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    del summary["balanced_accuracy"]
    (run / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(EvenhandError, match=r"summary\.json: balanced_accuracy: field required"):
        page(run)


@pytest.mark.usefixtures("undrawn")
def test_several_runs_stand_side_by_side_without_statistics(tmp_path: Path, run: Path) -> None:
    other = write_pictured_run(tmp_path / "other", names=ANIMALS, objective="cce", seed=1)
    found = page(run, other)
    assert "2 runs, tested on the same images. Differences between them are not tested here" in found.text
    assert "cce: balanced accuracy" in found.text
    assert "from the baseline" not in found.text
    elsewhere = write_pictured_run(tmp_path / "elsewhere", names=ANIMALS, seed=1, ids_from=100)
    assert "2 runs, tested on different images." in page(run, elsewhere).text
    assert "ce, seed 1: balanced accuracy" in page(run, elsewhere).text


@pytest.mark.usefixtures("undrawn")
def test_runs_of_other_classes_share_only_a_table(tmp_path: Path, run: Path) -> None:
    found = page(run, write_pictured_run(tmp_path / "other", names=("bus", "tram"), objective="cce"))
    assert "The runs have different classes" in found.text
    assert [each["id"] for each in found.every("section")] == ["results", "recall", "training", "errors", "reproduce"]


@pytest.mark.usefixtures("undrawn")
def test_what_was_not_picked_is_shown_as_such(tmp_path: Path) -> None:
    objectives = ("ce", "cce:gamma=-1", "cce:gamma=-2")
    folder = write_comparison_folder(tmp_path, names=ANIMALS, seeds=1, objectives=objectives, tune=True)
    text = page(folder).text
    assert "not picked" in text
    assert "was picked among 2 settings of cce" in text
    assert "1 of 2 tried" in text


@pytest.mark.usefixtures("undrawn")
def test_where_the_page_is_written(tmp_path: Path, run: Path) -> None:
    assert write_report([run], embedding=False) == run / "report.html"
    assert write_report([run], tmp_path, embedding=False) == tmp_path / "report.html"
    assert write_report([run], tmp_path / "new" / "a.html", embedding=False).read_text().startswith("<!doctype html>")
    other = write_pictured_run(tmp_path / "other", names=ANIMALS, objective="cce")
    with pytest.raises(EvenhandError, match="choose a file with --out"):
        write_report([run, other])


@pytest.mark.usefixtures("undrawn")
def test_what_is_no_run_is_refused(tmp_path: Path, run: Path) -> None:
    with pytest.raises(EvenhandError, match=r"has no config and no comparison"):
        write_report([tmp_path])
    with pytest.raises(EvenhandError, match="is not a folder"):
        write_report([tmp_path / "nowhere"])
    with pytest.raises(EvenhandError, match="nothing to report on"):
        write_report([])
    with pytest.raises(EvenhandError, match="is given twice"):
        write_report([run, run / ".." / "run"], tmp_path / "a.html")


def test_a_comparison_stands_alone_and_whole(tmp_path: Path, run: Path) -> None:
    folder = write_comparison_folder(tmp_path / "comparison", names=ANIMALS, seeds=1)
    with pytest.raises(EvenhandError, match="is a comparison; give it alone"):
        read_report_data([folder, run])
    assert read_report_data([folder / "comparison.json"]).comparison is not None
    shutil.move(folder / "cce-0", folder / "moved")
    with pytest.raises(EvenhandError, match=r"cce-0 of the comparison in .* is missing"):
        read_report_data([folder])
    (folder / "cce-0").mkdir()
    with pytest.raises(EvenhandError, match="is neither a run nor a comparison"):
        read_report_data([folder])
    (folder / "comparison.json").write_text('{"source": "photos"}')
    with pytest.raises(EvenhandError, match=r"comparison\.json: imbalance: field required; compare the runs again"):
        read_report_data([folder])


@pytest.mark.parametrize(("number", "ranked"), [(30, False), (31, True), (43, True), (100, True)])
def test_classes_that_figures_number_have_their_rank_in_the_table(number: int, ranked: bool) -> None:
    counts = np.random.default_rng(0).permutation(number) + 5
    names = tuple(f"class {k}" for k in range(number))
    logits = np.eye(number, dtype=np.float32)
    made = Predictions(logits, np.arange(number), np.array([str(k) for k in range(number)]), names, counts)
    table = class_table({"ce": [made]}, None)
    assert ("rank" in [column.name for column in table.columns]) == ranked
    if ranked:
        for row in table.rows:
            place = int(np.flatnonzero(np.argsort(-counts, kind="stable") == names.index(row[0].text))[0])
            assert row[1].value == place + 1
    assert all(len(row) == len(table.columns) for row in table.rows)


@pytest.mark.parametrize("tracks", [1, 3, 12])
def test_one_error_of_each_group_is_shown(tracks: int) -> None:
    number = 36
    logits = np.random.default_rng(1).normal(size=(number, 4)).astype(np.float32)
    wrong = (logits.argmax(axis=1) + 1) % 4
    groups = np.array([f"track {k % tracks}" for k in range(number)])
    ids = np.array([f"{k:02}" for k in range(number)])
    predictions = Predictions(logits, wrong, ids, ANIMALS, np.array([9, 5, 3, 2]), groups)
    pictures = Thumbnails(np.zeros((number, 4, 4, 3), np.uint8), np.arange(number), ids)
    found = most_confident_errors(SimpleNamespace(predictions=predictions, thumbnails=pictures), 60)
    assert len(found) == tracks
    sure = predictions.log_probabilities().max(axis=1)
    best = {max(np.flatnonzero(groups == group), key=lambda row: sure[row]) for group in set(groups)}
    assert {each.text.splitlines()[-1] for each in found} == {ids[row] for row in best}
    assert [each.confidence for each in found] == sorted((each.confidence for each in found), reverse=True)


def test_figures_and_comparisons_show_themselves_in_notebooks() -> None:
    logits, ids = np.eye(2, dtype=np.float32), np.array(["a", "b"])
    made = Predictions(logits, np.array([0, 1]), ids, ("cat", "dog"), np.array([9, 5]))
    for figure in (
        figures.class_distribution([3, 1], ["a", "b"], ["many", "few"]),
        figures.confusion_matrices({"ce": [made]}),
        figures.recall_by_count({"ce": [made]}),
        figures.reliability({"ce": [made]}),
    ):
        assert figure._repr_png_().startswith(b"\x89PNG")
    assert callable(ComparisonResult._repr_markdown_)
