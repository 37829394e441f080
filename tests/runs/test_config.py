"""A config is checked before any work, put together in a known order, and written down whole."""

from pathlib import Path

import pytest
import yaml

from evenhand.core.errors import EvenhandError
from evenhand.runs.config import RECIPES, Config, load_config, make_config, read_recipe, save_config
from evenhand.runs.run import Run


def test_paper_recipe_is_the_papers() -> None:
    config = make_config("paper")
    optimizer = {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": False, "layer_decay": 1}
    assert config.optimizer.model_dump() == optimizer
    assert (config.batch_size, config.epochs, config.select) == (128, 200, "last")
    schedule = config.schedule
    assert (schedule.kind, schedule.milestones, schedule.factor) == ("step", (60, 120, 160), 0.5)
    assert schedule.warmup_epochs == 5
    assert (config.augmentation.padding, config.augmentation.flip) == (4, True)


def test_road_marking_recipe_differs_where_the_paper_says() -> None:
    paper, config = make_config("paper"), make_config("road-marking")
    assert (config.optimizer.lr, config.epochs, config.schedule.milestones) == (0.01, 100, (40, 80))
    same = {"model", "epochs", "optimizer", "schedule"}
    assert config.model_dump(exclude=same) == paper.model_dump(exclude=same)
    assert config.optimizer.model_dump(exclude={"lr"}) == paper.optimizer.model_dump(exclude={"lr"})
    assert config.schedule.model_dump(exclude={"milestones"}) == paper.schedule.model_dump(exclude={"milestones"})


def test_small_recipe_is_the_default() -> None:
    config = make_config()
    assert config == make_config("small")
    assert (config.objective, config.model.name, config.select) == ("balanced-softmax", "resnet8", "best")
    assert make_config("paper").objective == "cce"


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_readable_and_partial(name: str) -> None:
    text = read_recipe(name)
    assert text.startswith("# ")
    assert set(yaml.safe_load(text)) < set(Config.model_fields)


def test_order_of_precedence(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("epochs: 7\nbatch_size: 8\nseed: 4\noptimizer: {lr: 0.2}\n")
    assert make_config("paper").epochs == 200
    over_recipe = make_config("paper", path)
    assert (over_recipe.epochs, over_recipe.batch_size, over_recipe.seed, over_recipe.optimizer.lr) == (7, 8, 4, 0.2)
    assert over_recipe.optimizer.momentum == 0.9  # a section is laid over the one below, not in its place
    assert over_recipe.schedule == make_config("paper").schedule
    over_file = make_config("paper", path, epochs=5, seed=3, optimizer__lr=0.3)
    assert (over_file.epochs, over_file.batch_size, over_file.seed, over_file.optimizer.lr) == (5, 8, 3, 0.3)
    over_flags = make_config("paper", path, ["seed=2", "seed=1", "optimizer.lr=1e-3"], epochs=5, seed=3)
    assert (over_flags.epochs, over_flags.batch_size, over_flags.seed, over_flags.optimizer.lr) == (5, 8, 1, 0.001)


def test_flags_that_are_not_given_change_nothing() -> None:
    assert make_config(epochs=None, data__source=None, augmentation__flip=None) == make_config()


def test_settings_are_read_as_yaml() -> None:
    config = make_config(
        settings=["schedule.milestones=[3, 5]", "data.root=null", "track_test=true", "objective=focal:gamma=3"]
    )
    assert config.schedule.milestones == (3, 5)
    assert config.data.root is None
    assert config.track_test is True
    assert config.objective == "focal:gamma=3"


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for config in (
        *(make_config(name) for name in RECIPES),
        make_config(data__source="Fotos/ÄÖ", compute__devices=2, data__imbalance="exp:100", augmentation__flip=False),
    ):
        save_config(config, path, "evenhand train 'Fotos/ÄÖ'")
        assert load_config(path) == config
        assert make_config("paper", path) == config  # it is whole, so that nothing of a recipe shines through
    first = path.read_text("utf-8").splitlines()[0]
    assert first == "# evenhand train 'Fotos/ÄÖ'"


def test_command_with_a_line_break_stays_a_comment(tmp_path: Path) -> None:
    save_config(make_config(), tmp_path / "config.yaml", "evenhand train 'a\nepochs: 1\r\nb'")
    assert load_config(tmp_path / "config.yaml") == make_config()


@pytest.mark.parametrize("command", ["", "evenhand train digits"])
def test_what_was_resolved_is_a_comment_and_no_command(tmp_path: Path, command: str) -> None:
    run = Run(tmp_path)
    run.write_config(make_config(), command, {"image_size": 64, "flip": True, "precision": "a\nb: c"})
    assert "# resolved: image_size 64, flip true, precision a b: c" in run.config_text.splitlines()
    assert run.config == make_config()
    assert run.command == (command or f"evenhand train --config {tmp_path / 'config.yaml'}")


def test_config_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        make_config().epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "seen", "nearest"),
    [
        ("epoch", "epoch", "epochs"),
        ("lr", "lr", "optimizer.lr"),
        ("weight_decay", "weight_decay", "optimizer.weight_decay"),
        ("optimiser.lr", "optimiser", "optimizer"),
        ("schedule.milestone", "schedule.milestone", "schedule.milestones"),
        ("compute.precission", "compute.precission", "compute.precision"),
        ("batchsize", "batchsize", "batch_size"),
        ("data.sorce", "data.sorce", "data.source"),
    ],
)
def test_unknown_key_names_the_nearest(key: str, seen: str, nearest: str) -> None:
    with pytest.raises(EvenhandError) as caught:
        make_config(settings=[f"{key}=1"])
    assert str(caught.value) == f"Unknown setting {seen!r}; the nearest known one is {nearest!r}."


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("epochs=0", "epochs cannot be 0: input should be greater than or equal to 1."),
        ("epochs=many", "epochs cannot be 'many': input should be a valid integer"),
        ("epochs=2.5", "epochs cannot be 2.5: "),
        ("optimizer.lr=-1", "optimizer.lr cannot be -1: input should be greater than 0."),
        ("optimizer.lr=.nan", "optimizer.lr cannot be nan: input should be a finite number."),
        ("optimizer.lr=.inf", "optimizer.lr cannot be inf: "),
        ("optimizer.momentum=1", "optimizer.momentum cannot be 1: "),
        ("optimizer.momentum=0", "optimizer.nesterov needs a momentum above 0"),
        ("optimizer=3", "optimizer cannot be 3: "),
        ("optimizer=", "optimizer cannot be None: "),
        ("select=nonsense", "select cannot be 'nonsense': input should be 'best', 'late' or 'last'."),
        ("schedule.kind=linear", "schedule.kind cannot be 'linear': "),
        ("schedule.milestones=[0]", "schedule.milestones cannot be 0: "),
        ("schedule.milestones=5", "schedule.milestones cannot be 5: "),
        ("compute.devices=some", "compute.devices cannot be 'some': "),
        ("compute.devices=0", "compute.devices cannot be 0: "),
        ("compute.precision=int8", "compute.precision cannot be 'int8': "),
        ("data.imbalance=exp:zero", "'exp:zero'"),
        ("data.test_fraction=1", "data.test_fraction cannot be 1: "),
        ("seed=-1", "seed cannot be -1: "),
        ("model.stem=large", "model.stem cannot be 'large': "),
        ("epochs", "A setting is KEY=VALUE, such as optimizer.lr=0.05, got 'epochs'."),
        ("=3", "A setting is KEY=VALUE"),
    ],
)
def test_bad_values_are_one_sentence(setting: str, told: str) -> None:
    with pytest.raises(EvenhandError) as caught:
        make_config(settings=[setting])
    message = str(caught.value)
    assert told in message
    assert message.endswith(".")
    assert not message.endswith("..")
    assert "\n" not in message


def test_unknown_recipe_names_the_known() -> None:
    with pytest.raises(EvenhandError, match="no recipe 'papr'; there are small, photos, paper, road-marking"):
        make_config("papr")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"epochs: [1, 2", "Cannot read the config .*own.yaml: "),
        (b"\xff\xfe\x00", "Cannot read the config .*own.yaml: "),
        (b"just words", "expected KEY: VALUE lines, got str"),
        (b"", "expected KEY: VALUE lines, got NoneType"),
        (b"1: 2\n", "1 cannot be 1: keys should be strings"),
        (b"!!python/object/apply:os.system ['true']", "Cannot read the config"),
        (None, "Cannot read the config .*own.yaml: No such file"),
    ],
)
def test_damaged_files_are_one_sentence(tmp_path: Path, content: bytes | None, told: str) -> None:
    path = tmp_path / "own.yaml"
    if content is not None:
        path.write_bytes(content)
    for read in (lambda: make_config(config=path), lambda: load_config(path)):
        with pytest.raises(EvenhandError, match=told) as caught:
            read()
        assert "\n" not in str(caught.value)


def test_wrong_content_of_a_run_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("epochs: -1\n")
    with pytest.raises(EvenhandError, match=r"^Cannot use the config .*config.yaml: epochs cannot be -1"):
        load_config(path)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["start.load=body"], "give start.weights"),
        (["start.train=head"], "needs a trained body"),
        (["start.weights=run", "start.sha256=abc"], "start.sha256 cannot be 'abc'"),
    ],
)
def test_a_second_stage_needs_a_first_one(settings: list[str], told: str) -> None:
    with pytest.raises(EvenhandError, match=told):
        make_config(settings=settings)
    assert make_config(settings=["start.train=head", "model.pretrained=true"]).start.train == "head"
