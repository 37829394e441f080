"""The default of each setting for run names and for old configs that lack the setting."""

from collections.abc import Mapping
from typing import Any

FROZEN: dict[str, Any] = {
    "data.source": "digits",
    "data.imbalance": "none",
    "data.class_order": "identity",
    "data.fraction": 1.0,
    "data.image_size": None,
    "data.test_fraction": 0.2,
    "data.val_fraction": 0.1,
    "data.split_seed": 0,
    "data.rotate": False,
    "data.drop_small": False,
    "data.skip_bad": False,
    "model.name": "resnet8",
    "model.stem": "auto",
    "model.pretrained": False,
    "objective": "cce",
    "epochs": 30,
    "batch_size": 64,
    "select": "best",
    "optimizer.lr": 0.1,
    "optimizer.momentum": 0.9,
    "optimizer.weight_decay": 5e-4,
    "optimizer.nesterov": False,
    "optimizer.layer_decay": 1.0,
    "schedule.kind": "step",
    "schedule.milestones": [],
    "schedule.factor": 0.5,
    "schedule.warmup_epochs": 5,
    "augmentation.padding": None,
    "augmentation.flip": None,
    "start.weights": None,
    "start.sha256": None,
    "start.load": "all",
    "start.train": "all",
    "compute.precision": "auto",
    "seed": 0,
    "track_test": False,
}
"""Never change an entry: finished runs would get another name and be trained again. Change `config.py` instead.

A new setting needs no entry while its default means what runs did before the setting existed; when that default
changes, the former value is entered here.
"""


def with_frozen(content: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the settings that a run's config lacks because it was written before they existed.

    Example:
        >>> from evenhand.runs.name_defaults import with_frozen
        >>> with_frozen({"data": {"source": "cifar10"}})["data"]["source"], with_frozen({})["data"]["source"]
        ('cifar10', 'digits')
    """
    filled: dict[str, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in content.items()}
    for name, value in FROZEN.items():
        section, _, key = name.rpartition(".")
        into = filled.setdefault(section, {}) if section else filled
        if isinstance(into, dict):  # otherwise reported by the validation
            into.setdefault(key, value)
    return filled
