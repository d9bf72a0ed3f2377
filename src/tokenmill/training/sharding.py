"""A model cut over the devices of a group: each holds its part of every matrix, of its gradient and of the optimizer.

FSDP2 (Zhao et al. 2023): a block's weights are gathered when it computes and dropped afterwards. For models whose 16
bytes a parameter do not fit one device. Checkpoints stay those of a whole model.

PyTorch's part for it takes a second to load, so only what is about to cut loads it; elsewhere a cut tensor is known by
what it can do.
"""

from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor

from tokenmill.errors import UserError
from tokenmill.model.build import GPT, copy_of
from tokenmill.training.params import TrainParams

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def shard(model: GPT, device: torch.device) -> None:
    """Cut a whole model, which may lie in the host's memory, over the devices of all processes, in place."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def whole(tensor: Tensor) -> Tensor:
    """A tensor as it is where nothing was cut; a cut one put together in the leader's host memory, by all processes.

    The others get an empty one, and must call this in the same order.
    """
    if not _is_cut(tensor):
        return tensor
    full = gathered(tensor).detach()
    return full.cpu() if dist.get_rank() == 0 else torch.empty(0)


def gathered(tensor: Tensor) -> Tensor:
    """A tensor as it is where nothing was cut; a cut one put together in every process, on its device."""
    return tensor.full_tensor() if _is_cut(tensor) else tensor


def whole_model(model: GPT) -> GPT:
    """A model to be saved: itself, or where it was cut a copy that is whole in the leader."""
    reshard = getattr(model, "reshard", None)  # what FSDP adds
    if reshard is None:
        return model
    reshard()  # without a backward pass its outermost weights stay gathered
    return copy_of(model, whole)


def cut_like(value: Tensor, parameter: Tensor) -> Tensor:
    """This process's part of a whole tensor, cut as the parameter is that it belongs to."""
    if not _is_cut(parameter) or value.shape != parameter.shape:
        return value
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415

    on_device = value.to(parameter.device_mesh.device_type)
    return distribute_tensor(on_device, parameter.device_mesh, parameter.placements)


def _is_cut(tensor: Tensor) -> "TypeGuard[DTensor]":
    return hasattr(tensor, "full_tensor")


def refuse_shards(train: TrainParams) -> None:
    """Say what a model that is cut cannot have.

    Raises:
        UserError: an optimizer that needs whole matrices, or a loss scaler, which each process would set for itself.
    """
    if train.optimizer == "muon":
        raise UserError(
            "train.optimizer (muon) needs whole matrices, which runtime.parallel (fsdp) cuts; set train.optimizer to "
            "adamw, or runtime.parallel to ddp."
        )
    if train.precision == "float16":
        raise UserError(
            "train.precision (float16) does not go with runtime.parallel (fsdp); set it to bfloat16, or "
            "runtime.parallel to ddp."
        )
