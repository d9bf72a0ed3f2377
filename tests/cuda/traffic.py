"""What a compiled step of GPT-2 moves through the memory of an H100, and how much it holds, as
Inductor plans it.

    python -m tests.cuda.traffic FOLDER [--nanogpt CHECKOUT [--no-bias]] [--chats] [--layers 2]
        [--largest COUNT]

Inductor fuses the forward and the backward pass of a model of 64 x 512 tokens and counts what each
kernel reads and writes; no kernel is made.
"""

# Imports follow statements here, for the device must be there before torch is imported.

import argparse
import sys
from pathlib import Path

from tests.cuda import fake

if __name__ == "__main__":
    fake.load(Path(sys.argv[1]))

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import torch
import torch._functorch.config
import torch._inductor.config
import torch._inductor.memory
from torch import Tensor, nn
from torch._dynamo.device_interface import CudaInterface
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._ordered_set import OrderedSet

from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import empty_model, is_hidden_matrix
from tokenmill.training.compile import Compilation
from tokenmill.training.optimizer import Muon

BATCH = 64
CONTEXT = 512
VOCABULARY = 50_257
H100 = SimpleNamespace(
    name="NVIDIA H100",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 * 2**30,
    regs_per_multiprocessor=65_536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    shared_memory_per_block=49_152,
    shared_memory_per_block_optin=232_448,
    warp_size=32,
    L2_cache_size=50 * 2**20,
)
"""What Inductor asks about a card, as `torch.cuda.get_device_properties` says it there."""


@dataclass(frozen=True)
class Plan:
    """A graph as Inductor plans it."""

    moved: int
    """Bytes that its kernels read and write."""
    peak: int
    """The most bytes that its buffers take at a time, without weights."""
    kernels: list[tuple[float, str, str]]
    """GB, kind and origin of each kernel."""


class Planned(Exception):  # noqa: N818 (not an error)
    """Raised where the compiled code would run."""


def plan(graph: GraphLowering) -> list[Plan]:
    """Fuse a graph as for code, and count."""
    graph.init_wrapper_code()
    graph._update_scheduler()
    scheduler = graph.scheduler
    names = OrderedSet(graph.get_output_names())
    inputs: OrderedSet[str] = OrderedSet(graph.graph_inputs)
    peak, _ = torch._inductor.memory.prepare_planning_info(
        scheduler.nodes, scheduler.name_to_buf, scheduler.name_to_fused_node, inputs, names
    )
    kernels = [(size / 1e9, type(node).__name__, _origin(node)) for node, size in _sizes(graph)]
    return [Plan(graph.count_bytes()[0], peak, sorted(kernels, reverse=True))]


def _sizes(graph: GraphLowering) -> list[tuple[Any, int]]:
    return [(node, node.get_read_write_buffers_sizes()) for node in graph.scheduler.nodes]


def _origin(node: Any) -> str:
    return " ".join(
        sorted(
            {str(origin) for part in node.get_nodes() if part.node for origin in part.node.origins}
        )
    )


Found = TypeVar("Found")


@contextlib.contextmanager
def planning(
    read: Callable[[GraphLowering], list[Found]], card: SimpleNamespace = H100
) -> Iterator[list[Found]]:
    """Inside, compiled models are planned for a card instead of run; what `read` finds in their
    graphs is collected."""
    found: list[Found] = []

    def collect(graph: GraphLowering) -> SimpleNamespace:
        found.extend(read(graph))
        graph.cache_key = ""
        graph.cache_path = ""
        graph.cache_linemap = []
        return SimpleNamespace(call=_stop, runner=None)

    here = {
        "is_available": True,
        "current_device": 0,
        "get_compute_capability": 10 * card.major + card.minor,
        "is_bf16_supported": True,
        "get_device_properties": card,
        "raise_if_triton_unavailable": None,
    }
    with contextlib.ExitStack() as stack:
        for name, value in here.items():
            stack.enter_context(
                mock.patch.object(CudaInterface, name, mock.Mock(return_value=value))
            )
        worker = mock.Mock(return_value=card)
        stack.enter_context(
            mock.patch.object(CudaInterface.Worker, "get_device_properties", worker)
        )
        if torch.version.cuda:  # built for CUDA, it asks the driver, which is not there
            stack.enter_context(mock.patch("torch.cuda.current_device", return_value=0))
        for name, value in {
            "torch._inductor.scheduler.has_triton": True,
            "torch.cuda.amp.common.amp_definitely_not_available": False,
            "torch.cuda.is_bf16_supported": True,
            "torch.cuda.get_device_properties": card,
        }.items():
            stack.enter_context(mock.patch(name, return_value=value))
        stack.enter_context(mock.patch.object(GraphLowering, "compile_to_module", collect))
        stack.enter_context(
            torch._inductor.config.patch(
                compile_threads=1, force_disable_caches=True, joint_graph_constant_folding=False
            )
        )
        stack.enter_context(torch._functorch.config.patch(force_non_lazy_backward_lowering=True))
        stack.enter_context(_flash_attention())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield found


def _stop(_: Any) -> None:
    raise Planned


@contextlib.contextmanager
def _flash_attention() -> Iterator[None]:
    """Attention in one kernel, as on an H100; a PyTorch without CUDA knows no choice."""
    library = torch.library.Library("aten", "IMPL")

    def attention(  # noqa: PLR0917 (the operator's own order)
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **_: Any,
    ) -> Tensor:
        if mask is None:
            return torch.ops.aten._scaled_dot_product_flash_attention(
                q, k, v, dropout_p, is_causal
            )[0]
        hidden = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -torch.inf)
        bias = hidden.expand(-1, q.shape[1], -1, -1)
        return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, True)[0]

    for key in ("AutogradCUDA", "CUDA"):
        library.impl("scaled_dot_product_attention", attention, key)
    yield
    library._destroy()


def planned(make: Callable[[], nn.Module], call: Callable[[Any, Tensor], Any]) -> dict[str, Any]:
    """Bytes of a step and the peak of its passes, of a model that `make` makes."""
    with planning(plan) as plans:
        passes(make, call, torch.bfloat16)
    assert len(plans) == 2, "forward and backward"
    return {
        "moved": sum(each.moved for each in plans),
        "peak": max(each.peak for each in plans),
        "kernels": [kernel for each in plans for kernel in each.kernels],
    }


def passes(
    make: Callable[[], nn.Module], call: Callable[[Any, Tensor], Any], precision: torch.dtype
) -> None:
    """Compile the forward and the backward pass of a model that `make` makes. What cannot be one
    graph is an error."""
    with contextlib.suppress(Planned), torch.autocast("cuda", dtype=precision):
        with torch.device("cuda"):
            model = make()
            ids = torch.zeros(BATCH, CONTEXT, dtype=torch.long)
        call(torch.compile(model, dynamic=False, fullgraph=True), ids)


def planned_update(architecture: str, layers: int) -> int:
    """Bytes of Muon's update of the matrices in the blocks."""
    with planning(plan) as plans:
        update(architecture, layers, torch.bfloat16)
    return sum(each.moved for each in plans)


def update(architecture: str, layers: int, precision: torch.dtype) -> None:
    """Compile Muon's update of the matrices in the blocks, part by part."""
    compiler = Compilation(on=True, why="").for_update(torch.device("cuda", 0))
    assert compiler

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **more: Any) -> Any:
            with contextlib.suppress(Planned):
                compiler(function)(*arguments, **more)
            return function(*arguments, **more)  # the next part needs what this one returns

        return run

    with torch.device("cuda", 0):
        hidden: list[Tensor] = [
            p
            for name, p in ours(architecture, layers).named_parameters()
            if is_hidden_matrix(name, p)
        ]
        kept = {p: {"momentum_buffer": torch.zeros_like(p)} for p in hidden}
        for parameter in hidden:
            parameter.grad = torch.zeros_like(parameter)
        muon = Muon(precision, decay=0.1, compiler=compiled)
        rates = {"lr": torch.zeros(()), "momentum": torch.zeros(())}
        muon.update(hidden, kept, rates, torch.ones(()), torch.ones(()))


def ours(architecture: str, layers: int) -> nn.Module:
    """TokenMill's model of GPT-2's width."""
    sizes = {
        "n_layer": layers,
        "n_head": 12,
        "n_embd": 768,
        "vocab_size": VOCABULARY,
        "context_length": CONTEXT,
    }
    config = ModelConfig.model_validate({"architecture": architecture, "dropout": 0.0} | sizes)
    return empty_model(config, "cuda")


def loss_of_ours(model: Any, ids: Tensor) -> Tensor:
    """The loss on these ids, of TokenMill's model."""
    return model(ids, targets_BT=ids)


def loss_of_chats(model: Any, ids: Tensor) -> Tensor:
    """The loss on sequences of several texts, as fine-tuning has them."""
    return model(ids, targets_BT=ids, starts_BT=ids)


def theirs(checkout: Path, layers: int, *, bias: bool) -> nn.Module:
    """nanoGPT's, with its padded vocabulary; its train.py has no biases, the published GPT-2 has
    them."""
    sys.path.insert(0, str(checkout))
    from model import GPT, GPTConfig  # type: ignore[import-not-found]  # noqa: PLC0415

    sizes = {
        "n_layer": layers,
        "n_head": 12,
        "n_embd": 768,
        "vocab_size": 50_304,
        "block_size": CONTEXT,
    }
    return GPT(GPTConfig(**sizes, dropout=0.0, bias=bias))


def main(arguments: list[str] | None = None) -> None:
    """Plan, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nanogpt", type=Path)
    parser.add_argument("--no-bias", action="store_true", help="nanoGPT's as its train.py makes it")
    parser.add_argument("--architecture", default="gpt2")
    parser.add_argument("--chats", action="store_true", help="a step of fine-tuning")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--update", action="store_true", help="Muon's update, too")
    parser.add_argument("--largest", type=int, default=0, help="kernels to print")
    options = parser.parse_args(arguments)
    if options.nanogpt:
        found = planned(
            lambda: theirs(options.nanogpt, options.layers, bias=not options.no_bias),
            lambda model, ids: model(ids, ids),
        )
    else:
        loss_of = loss_of_chats if options.chats else loss_of_ours
        found = planned(lambda: ours(options.architecture, options.layers), loss_of)
    for kernel in sorted(found.pop("kernels"), reverse=True)[: options.largest]:
        print(*kernel, file=sys.stderr)
    if options.update:
        found["update"] = planned_update(options.architecture, options.layers)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
