"""Data: any source becomes one table of samples, honest splits of it, and fast batches."""

from typing import TYPE_CHECKING

from evenhand.core.lazy import lazy_exports

if TYPE_CHECKING:
    from evenhand.data._arrays import load_npz as load_npz
    from evenhand.data._manifest import load_csv as load_csv
    from evenhand.data.audit import Audit as Audit
    from evenhand.data.batches import Batches as Batches
    from evenhand.data.batches import Preprocessing as Preprocessing
    from evenhand.data.batches import make_preprocessing as make_preprocessing
    from evenhand.data.folders import load_folder as load_folder
    from evenhand.data.images import Images as Images
    from evenhand.data.images import open_images as open_images
    from evenhand.data.imbalance import Imbalance as Imbalance
    from evenhand.data.imbalance import effective_number as effective_number
    from evenhand.data.imbalance import imbalance_ratio as imbalance_ratio
    from evenhand.data.inspection import inspect_source as inspect_source
    from evenhand.data.pixels import to_pixels as to_pixels
    from evenhand.data.sources import find_data_root as find_data_root
    from evenhand.data.sources import list_datasets as list_datasets
    from evenhand.data.sources import load_source as load_source
    from evenhand.data.splits import Splits as Splits
    from evenhand.data.splits import drop_small_classes as drop_small_classes
    from evenhand.data.splits import make_splits as make_splits
    from evenhand.data.table import DatasetInfo as DatasetInfo
    from evenhand.data.table import SampleTable as SampleTable
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
