"""Which mechanism it is, told by its name: those that a question does not use are not loaded."""

from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from noisegate.mechanisms.keys.key_selection import KeySelection, Thresholded
    from noisegate.mechanisms.quantiles.brackets import Brackets
    from noisegate.mechanisms.quantiles.quantiles import Quantiles


def is_brackets(noise: object) -> "TypeGuard[Brackets]":
    """Whether it chooses quantiles with how far each may be off."""
    return _name(noise) in ("brackets/1", "brackets/2")


def is_quantiles(noise: object) -> "TypeGuard[Quantiles]":
    """Whether it chooses many quantiles at once."""
    return _name(noise) == "quantiles/1"


def is_key_selection(noise: object) -> "TypeGuard[KeySelection]":
    """Whether it shows large groups for certain."""
    return _name(noise) == "key-selection/1"


def is_thresholded(noise: object) -> "TypeGuard[Thresholded]":
    """Whether it finds groups by their noisy counts."""
    return _name(noise) in ("thresholded-geometric/1", "thresholded-gaussian/1")


def _name(noise: object) -> str:
    return str(getattr(noise, "name", ""))
