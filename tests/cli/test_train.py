"""`evenhand train` as a person types it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from evenhand.cli import main
from evenhand.cli.options import RUN_SETTINGS, TRAIN_SETTINGS
from evenhand.cli.progress import ShownRun, show_summary, watching
from evenhand.core.locks import claimed
from evenhand.objectives.spec import stage_names
from evenhand.runs.config import RECIPES, make_config
from evenhand.runs.run import Run
from evenhand.runs.settings import find_field
from evenhand.training.checkpoint import load_state
from tests.trained import assert_one_sentence, draw, evenhand

pytestmark = pytest.mark.usefixtures("undrawn")
FAST = ("--imbalance", "exp:20", "--precision", "float32")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs go to runs/ of the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a command."""
    monkeypatch.setattr(sys, "argv", ["evenhand", "train", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), out, err


def test_plain_lines_in_a_pipe(tmp_path: Path) -> None:
    """A process of its own, so that whatever libraries print by themselves is seen too."""
    done = subprocess.run(
        [sys.executable, "-m", "evenhand", "train", "digits", "--objective", "cce", "--epochs", "2", *FAST],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    begun, resolved, told, *lines = done.stderr.splitlines()
    assert begun == "evenhand: training cce on digits ..."
    assert resolved == "evenhand: images of 8 px, grey, never mirrored; computed in float32"
    assert told == "cce: weight of C -0.1111"
    pattern = r"epoch {}/2  loss \d\.\d{{3}}  validation balanced accuracy \d+\.\d%  [\d,]+ images/s  [\d,]+ s left"
    assert len(lines) == 2, done.stderr
    for number, line in enumerate(lines, start=1):
        assert re.fullmatch(pattern.format(number), line), line
    assert "\x1b" not in done.stdout + done.stderr
    folder = Path("runs") / "digits_exp-20_cce_resnet8_seed0"
    *_, use, first_named, second_named, kept = done.stdout.splitlines()
    assert use == f"use it: evenhand predict {folder} IMAGES"
    assert (first_named, second_named) == (f"run: {folder}", f"report: {folder / 'report.html'}")
    assert re.match(r"kept: [\d.]+ (kB|MB)", kept)
    summary = Run(tmp_path / folder).summary
    assert f"cce on digits: balanced accuracy {summary.balanced_accuracy:.1%} [" in done.stdout
    assert "worst class" in done.stdout
    first = (tmp_path / folder / "config.yaml").read_text().splitlines()[0]
    assert first == "# evenhand train digits --objective cce --epochs 2 --imbalance exp:20 --precision float32"


def test_json_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(capsys, monkeypatch, "--epochs", "2", "--json", "--track-test", "--out", "mine", *FAST)
    assert (code, err) == (0, "")

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    first, second, summary = (json.loads(line, parse_constant=refuse) for line in out.splitlines())
    assert (first["epoch"], second["epoch"]) == (1, 2)
    assert {"train_loss", "val_balanced_accuracy", "test_balanced_accuracy"} <= set(first)
    assert summary == json.loads((Path("mine") / "summary.json").read_text("utf-8"))


def test_json_has_null_for_nan(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ShownRun(make_config(), quiet=False, as_json=True)
    shown.epoch({"epoch": 1, "train_loss": 0.5, "images_per_second": 2.0, "val_complement_entropy_wrong": float("nan")})
    assert json.loads(capsys.readouterr().out)["val_complement_entropy_wrong"] is None


def test_flags_over_file_over_recipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own.yaml").write_text("epochs: 9\nseed: 5\nbatch_size: 32\noptimizer: {lr: 0.2}\n")
    options = ["--config", "own.yaml", "--epochs", "1", "--set", "optimizer.lr=0.04", "--set", "seed=6", "--seed", "7"]
    options += [
        "--batch-size",
        "16",
        "--no-flip",
        "--select",
        "last",
        "--model",
        "resnet8",
        "--out",
        "mine",
        "--quiet",
        *FAST,
    ]
    assert run(capsys, monkeypatch, "digits", "--recipe", "paper", *options)[0] == 0
    config = yaml.safe_load(Path("mine/config.yaml").read_text())
    assert (config["epochs"], config["seed"], config["batch_size"], config["optimizer"]["lr"]) == (1, 6, 16, 0.04)
    assert config["schedule"]["milestones"] == [60, 120, 160]
    assert (config["augmentation"]["flip"], config["select"]) == (False, "last")
    assert not Path("mine/weights/best.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--model", "resnet9"], "'resnet9'"),
        (["--objective", "ccee"], "There is no objective 'ccee'; did you mean cce?"),
        (["--objective", "cce:gamma=big"], "The gamma of cce must be a number or released, got 'big'."),
        (["--recipe", "papr"], "There is no recipe 'papr'; there are small, photos, paper, road-marking, cifar-lt."),
        (["--set", "optimizer.lrr=0.1"], "Unknown setting 'optimizer.lrr'; the nearest known one is 'optimizer.lr'."),
        (["--set", "lr"], "A setting is KEY=VALUE, such as optimizer.lr=0.05, got 'lr'."),
        (["--select", "nonsense"], "select cannot be 'nonsense': input should be 'best', 'late' or 'last'."),
        (["--epochs", "0"], "epochs cannot be 0: "),
        (["--imbalance", "exp:lots"], "'exp:lots'"),
        (["--precision", "int4"], "compute.precision cannot be 'int4': "),
        (["--devices", "some"], "compute.devices cannot be 'some': "),
        (["--stem", "big"], "model.stem cannot be 'big': "),
        (["--config", "nowhere.yaml"], "Cannot read the config nowhere.yaml: No such file or directory."),
        (["--resume", "nowhere"], "nowhere is no run: there is no such folder."),
        (["digits", "--resume", "nowhere"], "--resume takes all settings from nowhere; give no source"),
        (["--resume", "nowhere", "--epochs", "5"], "--resume takes all settings from nowhere; give no source"),
        (["--resume", "nowhere", "--set", "epochs=5"], "--resume takes all settings from nowhere; give no source"),
        (["--resume", "nowhere", "--recipe", "paper"], "--resume takes all settings from nowhere; give no source"),
        (["--resume", "nowhere", "--out", "mine"], "--resume takes all settings from nowhere; give no source"),
        (["no-such-place"], "no-such-place"),
    ],
)
def test_mistakes_are_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], told: str
) -> None:
    assert_one_sentence(run(capsys, monkeypatch, *options), told)
    assert not Path("runs").exists()


def test_existing_folder_and_finished_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("digits", "--epochs", "1", "--out", "mine", *FAST)
    _, first, _ = run(capsys, monkeypatch, *options)
    code, out, err = run(capsys, monkeypatch, *options)
    assert (code, out) == (2, "")
    told = "evenhand: mine has a run; continue it with --resume mine, or choose another folder with --out"
    assert err.splitlines()[1:] == [f"{told} (in Python, evenhand.training.resume_run or out=)."]
    code, again, err = run(capsys, monkeypatch, "--resume", "mine")
    assert code == 0
    assert err.splitlines()[1:] == ["evenhand: mine is already finished; these are its results"]
    assert again == first  # a finished run is only shown


def signalled(number: int, folder: Path, recipe: str = "small") -> None:
    """A run that only waits for a signal."""
    with watching(make_config(recipe), folder, quiet=True, as_json=False):
        os.kill(os.getpid(), number)
        time.sleep(10)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_before_training_began(capsys: pytest.CaptureFixture[str], number: int, code: int) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    with pytest.raises(SystemExit) as ended:
        signalled(number, Path("a run"))
    assert ended.value.code == code
    assert capsys.readouterr().err == "evenhand: stopped before training; nothing is kept\n"
    assert {each: signal.getsignal(each) for each in before} == before
    with pytest.raises(SystemExit):
        signalled(number, Path("a run"), "photos")
    assert "the same command reuses the features computed so far" in capsys.readouterr().err


def test_resume_command_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my run"
    folder.mkdir()
    (folder / "config.yaml").write_text("")
    with pytest.raises(SystemExit):
        signalled(signal.SIGINT, folder)
    assert capsys.readouterr().err == f"evenhand: stopped; continue with evenhand train --resume '{folder}'\n"


def test_stopped_by_signals_and_resumed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        (("--epochs", "1000", "--out", "long", *FAST), signal.SIGTERM, 143),
        (("--resume", "long"), signal.SIGINT, 130),
    ]
    epochs: list[float] = []

    def interrupt(_: ShownRun, row: dict[str, float]) -> None:
        epochs.append(row["epoch"])
        os.kill(os.getpid(), steps[len(epochs) - 1][1])

    monkeypatch.setattr(ShownRun, "epoch", interrupt)
    for number, (command, _, ended) in enumerate(steps, start=1):
        code, _, err = run(capsys, monkeypatch, *command)
        assert code == ended
        assert err.splitlines()[-1] == "evenhand: stopped; continue with evenhand train --resume long"
        assert load_state(Path("long/state/state.pt"))["epoch"] == number
    assert epochs == [1, 2]


@pytest.mark.slow
def test_terminated_from_outside(tmp_path: Path) -> None:
    """A process of its own, at whatever it does when the signal comes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "evenhand", "train", "--epochs", "1000", "--out", "long", *FAST],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert any(line.startswith("epoch 1/1000") for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143
    assert err.splitlines()[-1] == "evenhand: stopped; continue with evenhand train --resume long"
    assert "Traceback" not in err
    assert 1 <= load_state(tmp_path / "long" / "state" / "state.pt")["epoch"] < 1000


def test_names_of_folders_and_one_that_another_training_holds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The default name gets a number, and the same --out is refused."""
    options = ("--objective", "focal:gamma=1", "--epochs", "1", "--quiet", *FAST)
    name = "digits_exp-20_focal-gamma1_resnet8_seed0"
    with claimed(Path("runs") / name):
        assert run(capsys, monkeypatch, *options) == (0, "", "")  # quiet: nothing at all
        refused = run(capsys, monkeypatch, *options, "--out", f"runs/{name}")
    assert_one_sentence(refused, f"Another process is at work in runs/{name}")
    assert [path.name for path in Path("runs").iterdir()] == [f"{name}_2"]
    assert Run(tmp_path / "runs" / f"{name}_2").finished
    assert not list(tmp_path.rglob(".lock"))


@pytest.mark.slow
def test_two_trainings_at_once_get_a_folder_each_or_the_second_is_refused(tmp_path: Path) -> None:
    """Real processes that begin together, with the same default name and with the same --out."""
    command = [sys.executable, "-m", "evenhand", "train", "digits", "--imbalance", "exp:20", "--epochs", "3", "--quiet"]

    def both(*more: str) -> list[tuple[int, str]]:
        running = [
            subprocess.Popen(
                [*command, "--objective", objective, *more], cwd=tmp_path, stderr=subprocess.PIPE, text=True
            )
            for objective in (("cce", "cce") if not more else ("ce", "cce"))
        ]
        said = [process.communicate(timeout=300)[1] for process in running]
        return sorted((process.returncode, text) for process, text in zip(running, said, strict=True))

    assert both() == [(0, ""), (0, "")]
    name = "digits_exp-20_cce_resnet8_seed0"
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [name, f"{name}_2"]
    assert all((path / "summary.json").is_file() for path in (tmp_path / "runs").iterdir())

    (first, _), (second, sentence) = both("--out", "mine")
    assert (first, second) == (0, 2)
    assert sentence.startswith("evenhand: ")
    assert "mine" in sentence
    assert sentence.count("\n") == 1
    assert len((tmp_path / "mine" / "history.csv").read_text().splitlines()) == 4
    assert not list(tmp_path.rglob(".lock"))


def test_what_was_left_open_is_said_and_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    photos = draw(tmp_path / "photos", {"dog": 10, "cat": 10})
    settings = ("--epochs", "1", "--set", "compute.precision=float32", "--out", tmp_path / "run")
    code, _, err = evenhand(capsys, monkeypatch, "train", photos, *settings)
    assert code == 0
    first, second, *_ = err.splitlines()
    assert first == f"evenhand: training balanced-softmax on {photos} ..."
    assert second == "evenhand: images of 64 px, colour, mirrored at random; computed in float32"
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())["resolved"]
    assert kept == {
        "image_size": 64, "crop_size": 64, "channels": 3, "flip": True, "padding": 4, "precision": "float32",
    }  # fmt: skip
    top = (tmp_path / "run" / "config.yaml").read_text().splitlines()[:2]
    assert top[0].startswith("# evenhand train ")
    assert top[1] == "# resolved: image_size 64, crop_size 64, channels 3, flip true, padding 4, precision float32"
    run = Run(tmp_path / "run")
    assert (run.config.data.image_size, run.config.augmentation.flip) == (None, None)  # as it was asked for
    assert run.command == top[0].removeprefix("# ")


def test_a_first_line_comes_before_anything_slow() -> None:
    code = (
        "import sys, evenhand.cli.output as output\n"
        "output.begin.__globals__['remark'] = lambda text: (print(text, 'torch' in sys.modules), sys.exit(0))\n"
        "sys.argv = ['evenhand', *{arguments!r}]\n"
        "import evenhand.cli; evenhand.cli.main()"
    )
    for arguments in (["train", "nowhere/"], ["inspect", "nowhere/"], ["evaluate", "nowhere/"]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments=arguments)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip().endswith("... False")


def test_options_are_made_from_the_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has the help of its setting, on one line of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, monkeypatch, "--help")
    for name, key in {**RUN_SETTINGS, **TRAIN_SETTINGS}.items():
        text = (find_field(key).description or "").partition("\n")[0]
        option = f"--{name.replace('_', '-')} "
        (line,) = (line for line in out.splitlines() if line.strip().startswith(option))
        assert line.endswith(text), line
    assert f"Second stage of --from: {' or '.join(stage_names())}." in out
    assert all(recipe in out for recipe in RECIPES)


def test_a_score_after_an_adjustment_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = {
        "objective": "ce+post-hoc:tau=1",
        "source": "photos",
        "epochs": 3,
        "images": 8,
        "balanced_accuracy": 0.9,
        "balanced_accuracy_interval": None,
        "accuracy": 0.9,
        "selected": {"epoch": 3, "rule": "late", "val_balanced_accuracy": 0.982},
        "groups": {"many": None, "medium": None, "few": None},
        "worst_class": {"name": "cat", "recall": 0.5},
        "notes": [],
    }
    after = "with balanced accuracy 98.2% after the post-hoc adjustment, which the lines of epochs are without\n"
    show_summary(tmp_path, tmp_path / "report.html", summary, as_json=False)
    assert after not in capsys.readouterr().out
    show_summary(tmp_path, tmp_path / "report.html", {**summary, "adjustment": {"tau": 1.0}}, as_json=False)
    assert after in capsys.readouterr().out
