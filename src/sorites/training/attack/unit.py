"""The attacked pictures of a unit of work: found against one model, shown to it as they are, and kept as rows of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model, Outputs, Sample, Setting
from sorites.errors import SoritesError
from sorites.pipeline.pictures import Shot, captured, reason
from sorites.pipeline.plan import Columns, Plan, Unit
from sorites.rng import rng_for
from sorites.torch_tools import one_thread
from sorites.training.attack.apgd import apgd
from sorites.training.attack.balls import start
from sorites.training.attack.settings import Settings
from sorites.training.inside import device_of, logits_of

Inputs = NDArray[np.float32]
"""Pictures at a model's input, N x H x W x 3 in 0..1."""


@dataclass(frozen=True)
class Target:
    """A picture to attack: its sample, itself at the model's input, and which of the model's classes are right."""

    sample: Sample
    x: Inputs
    right: NDArray[np.bool_]


def seen_by(plan: Plan, name: str, how: Settings) -> Plan:
    """Return the plan for one model alone, which takes attacked pictures as they are, and is held in the ids of its images."""
    model = plan.models[name]
    known = f"{name} {model.version}"
    shifts = {shift: how.shift(shift, known) for shift in plan.shifts}
    return replace(plan, models={name: _unrounded(model)}, shifts=shifts)


def _unrounded(model: Model) -> Model:
    """Return the model with a pass by torch over pictures in 0..255 that stand at its input and are not rounded."""

    def forward(pictures: list[NDArray[Any]]) -> Outputs:
        import torch

        with torch.inference_mode(), one_thread():
            together = torch.from_numpy(np.stack(pictures).astype(np.float32)).to(device_of(model.module))
            return Outputs(logits_of(model.module, together).float().cpu().numpy())

    return replace(model, forward=forward, prepare=lambda picture, framed: picture)


def attacked(plan: Plan, unit: Unit, name: str, how: Settings) -> Iterator[Shot]:
    """Yield the attacked images of a unit; what cannot be attacked is an image with an error."""
    shots = [captured(plan, sample) for sample in plan.groups[unit.shift][unit.start : unit.stop]]
    ready = [_target(plan, name, shot) for shot in shots]
    targets = [target for target in ready if isinstance(target, Target)]
    for eps in how.eps:
        found = iter(_points(plan, unit.shift, name, how, eps, targets))
        for shot, target in zip(shots, ready, strict=True):
            point: Any = next(found) if isinstance(target, Target) else target
            image = replace(shot, shift=unit.shift, setting=Setting(eps))
            if isinstance(point, str):
                yield replace(image, picture=None, error=point)
            else:
                yield replace(image, picture=point * np.float32(255))


def _target(plan: Plan, name: str, shot: Shot) -> Target | str:
    """Return a picture as it is attacked, or why it cannot be."""
    if shot.picture is None:
        return shot.error or "no picture"
    right = right_columns(plan.columns[name], plan.width_of(name), shot.sample)
    if not right.any() or right.all():
        return f"nothing to attack: {name} has no output for its label, or no other output"
    try:
        prepared = plan.models[name].prepare(np.array(shot.picture), plan.is_framed(shot.sample))
    except Exception as error:
        return reason(error, f"model {name}")
    return Target(shot.sample, np.asarray(prepared, np.float32) / np.float32(255), right)


def right_columns(columns: Columns, width: int, sample: Sample) -> NDArray[np.bool_]:
    """Return which of a model's logits stand for a right label of the sample."""
    right = np.zeros(width, bool)
    right[columns.places[np.isin(columns.labels, sorted(sample.right))]] = True
    return right


def _points(plan: Plan, shift: str, name: str, how: Settings, eps: float, targets: Sequence[Target]) -> list[Inputs | str]:
    """Return an attacked picture per target, or why there is none; a picture that fails spoils no other."""
    if not targets:
        return []
    try:
        return list(_together(plan, shift, name, how, eps, targets))
    except Exception as error:  # a module raises whatever it likes
        if len(targets) == 1:
            return [reason(error, shift)]
        return [point for target in targets for point in _points(plan, shift, name, how, eps, [target])]


def _together(plan: Plan, shift: str, name: str, how: Settings, eps: float, targets: Sequence[Target]) -> Inputs:
    """Attack pictures that are right when clean, and again from other starts those that stay right."""
    import torch

    module = plan.models[name].module
    device = device_of(module)

    def logits(at: torch.Tensor) -> torch.Tensor:
        given = logits_of(module, at * 255)
        if not given.isfinite().all():
            raise SoritesError(f"model {name} gave logits that are not finite")
        return given

    with one_thread():
        x = torch.from_numpy(np.stack([target.x for target in targets])).to(device)
        right = torch.from_numpy(np.stack([target.right for target in targets])).to(device)
        with torch.no_grad():
            left = right.gather(1, logits(x).argmax(1, keepdim=True)).squeeze(1)
        found = x.clone()
        for restart in range(how.restarts):
            places = left.nonzero().squeeze(1)
            if not len(places):
                break
            starts = [_start(plan, shift, restart, targets[int(i)], eps, how) for i in places.cpu()]
            begin = torch.from_numpy(np.stack(starts)).to(device)
            point, wrong = apgd(logits, x[places], right[places], begin, eps, how.norm, how.shifts[shift], how.steps)
            taken = wrong if restart else torch.ones_like(wrong)
            found[places[taken]] = point[taken]
            left[places[wrong]] = False
        return np.asarray(found.cpu().numpy())


def _start(plan: Plan, shift: str, restart: int, target: Target, eps: float, how: Settings) -> Inputs:
    """Return where the attack of a picture starts: it follows from the seed, the sample and the restart, not from the batch."""
    again = f" restart {restart}" if restart else ""
    return start(target.x, eps, how.norm, rng_for(plan.suite.seed, target.sample.id, f"{shift}{again}"))
