"""The names of the files of a run."""

CONFIG = "config.yaml"
"""All settings of the run, with the command on top."""
ENVIRONMENT = "environment.json"
"""Versions, commit, machine and seed."""
SPLITS = "splits.json"
"""The ids of the training, validation and test images."""
HISTORY = "history.csv"
"""One row per epoch."""
BEST_WEIGHTS = "weights/best.safetensors"
LAST_WEIGHTS = "weights/last.safetensors"
REFIT_WEIGHTS = "weights/refit.safetensors"
"""Those trained again on training and validation images together; most runs have none."""
WEIGHTS = (BEST_WEIGHTS, LAST_WEIGHTS, REFIT_WEIGHTS)
STATE = "state/state.pt"
"""Optimizer, schedule and random streams, for resuming."""
PREDICTIONS = "predictions.npz"
"""Predictions of the test images."""
VALIDATION = "validation.npz"
"""Predictions of the validation images, if there are any."""
CALIBRATION = "calibration.npz"
"""Predictions of the calibration images, if there are any."""
FEATURES = "features.npz"
"""The layer before the classifier, of some test images."""
THUMBNAILS = "thumbnails.npz"
"""Thumbnails of the most confident errors and of a few correct images."""
SUMMARY = "summary.json"
"""Results; written last."""
ADJUSTMENT = "adjustment.json"
"""The adjustment of the logits after training, with its results; most runs have none."""
CHECKSUMS = "checksums.json"
"""The SHA-256 of weights, state and predictions."""
TENSORBOARD = "tensorboard"
"""A folder of logs."""

FILES = (
    CONFIG,
    ENVIRONMENT,
    SPLITS,
    HISTORY,
    *WEIGHTS,
    STATE,
    PREDICTIONS,
    VALIDATION,
    CALIBRATION,
    FEATURES,
    THUMBNAILS,
    SUMMARY,
    ADJUSTMENT,
    CHECKSUMS,
)
"""All files of a run."""
CHECKED = (*WEIGHTS, STATE, PREDICTIONS, VALIDATION, CALIBRATION, FEATURES, THUMBNAILS)
FOLDERS = ("weights", "state", TENSORBOARD)
"""Subfolders of a run, which contain no runs."""

MODEL_WEIGHTS, MODEL_CONFIG, DECISIONS = "model.safetensors", "config.json", "decisions.json"
"""Files of a model folder: all weights, the network and its classes, and how it decides."""

COMPARISON = "comparison.json"
EXPLORATORY = "exploratory.json"
"""An exploratory comparison next to one that is not."""
INTERIM_ANALYSES = "looks.json"
"""The analyses of a comparison; the name is that of earlier versions."""
