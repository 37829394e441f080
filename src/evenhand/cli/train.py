"""`evenhand train`: from a source to a judged model in a folder."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from evenhand.cli.options import Quiet, RunOptions, with_run_options
from evenhand.cli.output import begin, remark


@with_run_options
def train(
    options: RunOptions,
    objective: Annotated[
        str | None,
        typer.Option(
            help="A loss and parts joined by +: cce, balanced-softmax+cce:share=0.3; see evenhand objectives."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of subset, validation, initial weights, order, augmentation.")
    ] = None,
    select: Annotated[
        str | None, typer.Option(help="best or late (on validation), or last (train on everything).")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 or float16.")] = None,
    devices: Annotated[str | None, typer.Option(help="How many devices.")] = None,
    nodes: Annotated[int | None, typer.Option(help="How many machines.")] = None,
    sync_batchnorm: Annotated[bool | None, typer.Option("--sync-batchnorm", help="On several GPUs.")] = None,
    compile_model: Annotated[bool | None, typer.Option("--compile", help="Use torch.compile.")] = None,
    track_test: Annotated[
        bool | None, typer.Option("--track-test", help="Note test accuracy each epoch; selection never sees it.")
    ] = None,
    tensorboard: Annotated[bool | None, typer.Option("--tensorboard", help="Write the history for it too.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; under runs/ if not given.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue this run; no other option is taken.")] = None,
    first: Annotated[Path | None, typer.Option("--from", help="A finished run to begin a second stage from.")] = None,
    stage: Annotated[str | None, typer.Option(help="The second stage of --from: crt or lws.")] = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line an epoch, then the summary.")] = False,
) -> None:
    """Train a classifier, choose its best epoch on validation, and judge it on the test set."""
    from evenhand.core.errors import EvenhandError
    from evenhand.training.recipe_choice import make_run_config

    flags: dict[str, Any] = {
        **options.flags,
        "objective": objective,
        "seed": seed,
        "select": select,
        "track_test": track_test,
        "compute__precision": precision,
        "compute__devices": devices,
        "compute__nodes": nodes,
        "compute__compile": compile_model,
        "compute__sync_batchnorm": sync_batchnorm,
        "compute__tensorboard": tensorboard,
    }
    others = [name for name in options.given() if name != "epochs"]
    others += [name for name, value in flags.items() if value is not None and name not in options.flags]
    if resume is not None and (others or flags["epochs"] is not None or out is not None):
        raise EvenhandError(
            f"--resume takes everything from {resume}; give no source and no other option but --quiet and --json."
        )
    told = ""
    if first is None and stage is None:
        wanted, told = make_run_config(options.recipe, options.config, options.settings, **flags)
    else:
        if first is None or stage is None or resume is not None or others:
            raise EvenhandError("A second stage is --from RUN --stage crt or lws; it takes all but --epochs from RUN.")
        from evenhand.training.second_stage import second_stage

        wanted = second_stage(first, stage, epochs=flags["epochs"])
    if not (quiet or as_json):
        what = f"training {wanted.objective} on {wanted.data.source}{': ' * bool(told)}{told}"
        begin(what if resume is None else f"continuing {resume}")
    from evenhand.cli.progress import show_summary, watching
    from evenhand.report.page import write_report
    from evenhand.runs.run import Run
    from evenhand.training.api import default_folder
    from evenhand.training.run import begin_run, holding, is_first_process, resume_run

    if resume is not None:
        if Run(resume).finished and not quiet:
            remark(f"{resume} is finished already; this is what it reached")
        with watching(Run(resume).config, resume, quiet=quiet, as_json=as_json) as callback:
            run = resume_run(resume, callback=callback)
    else:
        command = shlex.join(["evenhand", *sys.argv[1:]])
        with (
            holding(out or default_folder(wanted), number=out is None) as folder,
            watching(wanted, folder, quiet=quiet, as_json=as_json) as callback,
        ):
            run = begin_run(wanted, folder, command=command, callback=callback)
    if is_first_process():
        page = write_report([run.path], embedding=False)
        if not quiet:
            show_summary(run.path, page, run.summary.model_dump(mode="json", exclude_unset=True), as_json=as_json)
