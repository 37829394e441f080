"""`evenhand train`: train a model and evaluate it."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.options import Quiet, RunOptions, with_train_options
from evenhand.cli.output import NO_SOURCE, begin, named, remark
from evenhand.objectives.spec import stage_names

STAGES = " or ".join(stage_names())


@with_train_options
def train(
    options: RunOptions,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default: under runs/.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue this run; takes no other options.")] = None,
    first: Annotated[Path | None, typer.Option("--from", help="Finished run for a second stage.")] = None,
    stage: Annotated[str | None, typer.Option(help=f"Second stage of --from: {STAGES}.")] = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per epoch, then the summary.")] = False,
) -> None:
    """Train and test one classifier.

    The best epoch is selected on validation, then evaluated on the test set.

    Without --recipe, the recipe that suits the images is used.
    """
    from evenhand.core.errors import EvenhandError
    from evenhand.training.recipe_choice import make_run_config

    flags = options.flags
    others = [name for name in options.given() if name != "epochs"]
    if resume is not None and (others or flags["epochs"] is not None or out is not None):
        raise EvenhandError(
            f"--resume takes all settings from {resume}; give no source and no option but --quiet and --json."
        )
    why = ""
    if first is None and stage is None:
        config, why = make_run_config(options.recipe, options.config, options.settings, **flags)
    else:
        if first is None or stage is None or resume is not None or others:
            raise EvenhandError(
                f"A second stage is --from RUN --stage {STAGES}; SOURCE and all but --epochs are those of RUN."
            )
        from evenhand.training.second_stage import second_stage

        config = second_stage(first, stage, epochs=flags["epochs"])
    if not (quiet or as_json):
        source = NO_SOURCE if first is None and options.default_source else config.data.source
        what = f"training {named(config.objective)} on {named(source)}{': ' * bool(why)}{why}"
        begin(what if resume is None else f"continuing {named(resume)}")
    from evenhand.cli.progress import show_summary, watching
    from evenhand.report.page import write_report
    from evenhand.runs.run import Run
    from evenhand.training.api import default_folder
    from evenhand.training.run import begin_run, holding, is_first_process, resume_run

    if resume is not None:
        if Run(resume).finished and not quiet:
            remark(f"{resume} is already finished; these are its results")
        with watching(Run(resume).config, resume, quiet=quiet, as_json=as_json) as callback:
            run = resume_run(resume, callback=callback)
    else:
        command = shlex.join(["evenhand", *sys.argv[1:]])
        with (
            holding(out or default_folder(config), number=out is None) as folder,
            watching(config, folder, quiet=quiet, as_json=as_json) as callback,
        ):
            run = begin_run(config, folder, command=command, callback=callback)
    if is_first_process():
        page = write_report([run.path], embedding=False)
        if not quiet:
            show_summary(run.path, page, run.summary.model_dump(mode="json", exclude_unset=True), as_json=as_json)
