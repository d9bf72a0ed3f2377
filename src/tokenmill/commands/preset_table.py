"""`tokenmill preset` without a name: a line for each, as the calculator of `plan` has it."""

from pathlib import Path

from tokenmill.commands.plan_table import step_seconds
from tokenmill.core.params import PARAMS_FILE, validate
from tokenmill.core.units import duration
from tokenmill.model.build import parameter_count
from tokenmill.model.config import ModelConfig
from tokenmill.planning.hardware import HARDWARE, UTILISATION
from tokenmill.planning.presets import Preset, names, put_into, read
from tokenmill.schema import AllParams
from tokenmill.training.schedule import Workload

GPU = next(entry for entry in HARDWARE if entry.name == "A100")


MORE = "which small models do not reach; `tokenmill plan --preset NAME` has more"


def workload(root: Path, preset: Preset) -> Workload:
    """What a preset would train in the project `root`.

    Raises:
        UserError: something in params.yaml stays wrong with it.
    """
    path = root / PARAMS_FILE
    params = validate(AllParams, put_into(path, preset).content, path)
    return Workload(ModelConfig.of(params.model, preset.vocab_size), params.train, int(preset.tokens))


def render(root: Path) -> str:
    """All presets."""
    head = f"{'preset':<14}{'parameters':>12}{'tokens x epochs':>18}{'on an A100':>12}  about"
    rows = [head, *(_row(root, read(name)) for name in names())]
    return "\n".join([*rows, f"hours at {UTILISATION:.0%} of the peak, {MORE}"])


def _row(root: Path, preset: Preset) -> str:
    work = workload(root, preset)
    seconds = step_seconds(work, GPU, devices=1, utilisation=UTILISATION) * work.steps
    text = f"{preset.tokens:.3g} x {work.train.epochs}".replace("e+0", "e")
    return f"{preset.name:<14}{parameter_count(work.config):>12,}{text:>18}{duration(seconds):>12}  {preset.about}"
