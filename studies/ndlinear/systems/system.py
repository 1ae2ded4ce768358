"""What a system says of itself."""
from collections.abc import Callable
from dataclasses import dataclass

from .layers import RIVALS


@dataclass(frozen=True, eq=False)
class System:
    "One experiment on several data."
    name: str
    data: tuple                     # names of the data
    task: Callable                  # task(data, seed) -> Task
    metric: str                     # of the test: what `report` gives first
    also: str                       # and second
    larger: bool                    # is a larger metric a better one?
    cap: int = 200                  # most epochs; most runs turn before
    batch: int = 128
    steps: int = 0                  # a fixed number of steps in place of epochs until validation turns
    seconds: float = 0              # processor seconds of the study `time`; 0: it has none
    models: tuple = RIVALS
    only: tuple = ()                # pairs (data, models) that differ from `models`
    start: tuple = (-6, -5, -4)     # steps of the rate grid that a search begins with: 1e-3, 3e-3, 1e-2
    untrained: tuple = ()           # models that are only tested
    needs: tuple = ()               # (system, data, model) that is trained first, with the same seed
    store: dict | None = None       # where that model is put, under (data, seed)

    def kinds(self, data):
        return dict(self.only).get(data, self.models)
