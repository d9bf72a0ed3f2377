"""What a training is about to do, in a few lines: so that nobody wonders hours later what a batch was."""

from tokenmill.model.manifest import Manifest
from tokenmill.training.trainer import TrainingSetup


def plan(job: TrainingSetup, manifest: Manifest, place: str) -> list[tuple[str, str]]:
    """Names and sentences; `place` is where the tokens lie."""
    train, model, compute, order = job.train, manifest.model, job.compute, job.order
    context = model.context_length
    seen = job.train_sequences.count * context * train.epochs
    precision = str(compute.precision).removeprefix("torch.")
    shape = f"{model.n_layer} layers, {model.n_head} heads, {model.n_embd} wide, context {context}"
    batch = f"{train.batch_size} sequences x {train.gradient_accumulation_steps} x {context} tokens"
    together = f"{job.group.size} x " if job.group.size > 1 else ""
    steps = f"{order.steps_per_epoch:,} steps x {train.epochs} epochs = {job.total_steps:,} steps"
    return [
        (
            "model",
            f"{model.architecture}, {manifest.parameters:,} parameters: {shape}, vocabulary {model.vocab_size:,}",
        ),
        ("device", f"{together}{compute.name}, {precision}, tokens in {place}"),
        ("compile", str(job.compilation)),
        ("step", f"{batch} = {job.per_step * context:,} tokens"),
        ("run", f"{steps}, {seen:,} tokens ({seen / manifest.parameters:.1f} per parameter)"),
        ("optimizer", f"{train.optimizer}, learning rate {train.peak:g}, {train.schedule.type} schedule"),
    ]
