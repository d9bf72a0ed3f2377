"""A model cut over the devices of a group: each holds its part of every matrix, of its gradient and of the optimizer.

FSDP2 (Zhao et al. 2023): a block's weights are gathered when it computes and dropped afterwards. For models whose 16
bytes a parameter do not fit one device. Checkpoints stay those of a whole model.
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from tokenmill.errors import UserError
from tokenmill.model.build import GPT, copy_of
from tokenmill.training.params import TrainParams


def shard(model: GPT, device: torch.device) -> None:
    """Cut a whole model, which may lie in the host's memory, over the devices of all processes, in place."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def whole(tensor: Tensor) -> Tensor:
    """A tensor as it is where nothing was cut; a cut one put together in the leader's host memory, by all processes.

    The others get an empty one, and must call this in the same order.
    """
    if not isinstance(tensor, DTensor):
        return tensor
    full = tensor.full_tensor().detach()
    return full.cpu() if dist.get_rank() == 0 else torch.empty(0)


def whole_model(model: GPT) -> GPT:
    """A model to be saved: itself, or where it was cut a copy that is whole in the leader."""
    if not isinstance(model, FSDPModule):
        return model
    model.reshard()  # without a backward pass its outermost weights stay gathered
    return copy_of(model, whole)


def cut_like(value: Tensor, parameter: Tensor) -> Tensor:
    """This process's part of a whole tensor, cut as the parameter is that it belongs to."""
    if not isinstance(parameter, DTensor) or value.shape != parameter.shape:
        return value
    on_device = value.to(parameter.device_mesh.device_type)
    return distribute_tensor(on_device, parameter.device_mesh, parameter.placements)


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
