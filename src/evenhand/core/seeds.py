"""Named randomness: one seed, a separate stream for each purpose, so that changing one never disturbs another."""

import zlib

import numpy as np


def stream(seed: int, name: str, *steps: int) -> np.random.Generator:
    """Return the random stream of this name under this seed.

    Args:
        seed: the run's seed, 0 or more.
        name: what the numbers are for, such as `"subset"`, `"validation"`, `"order"` or `"augmentation"`.
        steps: where in the work this is, an epoch for instance; each has a stream of its own.

    Example:
        >>> from evenhand.core.seeds import stream
        >>> bool((stream(7, "subset").permutation(9) == stream(7, "subset").permutation(9)).all())
        True
        >>> bool((stream(7, "subset").permutation(9) == stream(7, "order").permutation(9)).all())
        False
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()), *steps)))
