"""What a run is about to do, in a few lines that training shows at its start."""

from tokenmill.training.trainer import TrainingSetup


def run_summary(setup: TrainingSetup, parameters: int, place: str) -> list[tuple[str, str]]:
    """Pairs of a name and a sentence; `place` says where the tokens are."""
    work, train, model = setup.work, setup.work.train, setup.work.config
    seen = work.tokens_per_epoch * train.epochs
    precision = str(setup.compute.precision).removeprefix("torch.")
    shape = f"{model.n_layer} layers, {model.n_head} heads, {model.n_embd} wide, context {model.context_length}"
    batch = f"{train.batch_size} sequences x {train.gradient_accumulation_steps} x {model.context_length} tokens"
    devices = f"{setup.group.size} x " if setup.group.size > 1 else ""
    steps = f"{work.steps_per_epoch:,} steps x {train.epochs} epochs = {work.steps:,} steps"
    return [
        ("model", f"{model.architecture}, {parameters:,} parameters: {shape}, vocabulary {model.vocab_size:,}"),
        ("device", f"{devices}{setup.compute.name}, {precision}, tokens in {place}"),
        ("compile", str(setup.compilation)),
        ("step", f"{batch} = {work.tokens_per_step:,} tokens"),
        ("run", f"{steps}, {seen:,} tokens ({seen / parameters:.1f} per parameter)"),
        ("optimizer", f"{train.optimizer}, learning rate {train.peak:g}, {train.schedule.type} schedule"),
    ]
