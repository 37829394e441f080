"""Random streams: one seed, a separate stream per purpose, so that they do not affect each other."""

import zlib

import numpy as np


def stream(seed: int, name: str, *steps: int) -> np.random.Generator:
    """Return the random stream of a name and a seed.

    Args:
        seed: the run's seed, 0 or more.
        name: the purpose, such as `"subset"`, `"validation"`, `"order"` or `"augmentation"`.
        steps: such as the epoch; each has a stream of its own.

    Example:
        >>> from evenhand.core.seeds import stream
        >>> bool((stream(7, "subset").permutation(9) == stream(7, "subset").permutation(9)).all())
        True
        >>> bool((stream(7, "subset").permutation(9) == stream(7, "order").permutation(9)).all())
        False
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()), *steps)))
