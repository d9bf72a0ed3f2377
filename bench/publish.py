"""The page of `tokenmill publish` in Chromium: `python -m bench.publish`.

For models with random weights, of the default size, 10 million parameters, and GPT-2 Small, each
architecture: the size of the page with its weights, the seconds until it can answer, the
milliseconds until the first token of an answer, and the tokens a second of one answer, counted from
its first token. Logits are compared with PyTorch's in float32. `--run` measures the run of this
project instead, with its report and all epochs, and counts the fixed prompts whose greedy answers
are those of the report.
"""

import argparse
import functools
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch
from playwright.sync_api import Page, expect, sync_playwright

from bench.generate import SIZES, TINY, with_random_weights
from bench.harness import section
from bench.program import RowFile, command_line
from tokenmill.core import paths
from tokenmill.core.files import sha256_of, write_json, write_text
from tokenmill.core.params import PARAMS_FILE, read_yaml
from tokenmill.evaluation.results import EpochResult, Evaluation
from tokenmill.evaluation.sampling import Sampling
from tokenmill.formats.records import read_record
from tokenmill.formats.tokenizer import SPECIAL_TOKENS, read_tokenizer
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import load_model, save_weights
from tokenmill.model.manifest import MANIFEST, WEIGHTS
from tokenmill.publish.site import publish
from tokenmill.publish.talk import BODY_END, TALK
from tokenmill.publish.weights import KNOWN, PRECISIONS, Precision
from tokenmill.stage import report_errors

TEN_MILLION = {"n_layer": 8, "n_head": 5, "n_embd": 320, "context_length": 256, "vocab_size": 1024}
MODELS: dict[str, dict[str, int]] = {
    "default": SIZES["default"],
    "10M": TEN_MILLION,
    "GPT-2 Small": SIZES["GPT-2 Small"],
}
REPORT = f"""<!doctype html><html><head>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
</head><body>%s{TALK}{BODY_END}</html>
"""
"""Names the hash of the weights."""
OPTIONS = ["--disable-gpu", "--no-first-run", "--no-sandbox", "--disable-background-networking"]
PATIENCE = 540_000
"""Milliseconds; GPT-2 Small takes minutes."""
FIRST = 0x20000
"""The code point of the first character of the tokenizer."""
PROMPT = 16
"""Tokens whose logits are compared."""

LOGITS = """async ([code, ids]) => {
    const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
    const answer = new Promise((resolve) => { worker.onmessage = (event) => resolve(event.data); });
    const last = epochs.at(-1);
    await last.describe();
    for await (const { bytes, at } of last.weights()) worker.postMessage({ bytes, at }, [bytes]);
    worker.postMessage({ ids, about: last.about });
    return answer;
}"""
"""Compute logits in a worker, from the weights of the last epoch as the page reads them."""

TO_LOGITS = """
const parts = [];
onmessage = ({ data: { bytes, at, ids, about } }) => {
    if (bytes) return void parts.push({ bytes, at });
    const room = new Uint8Array(about.bytes);
    for (const part of parts) room.set(new Uint8Array(part.bytes), part.at);
    const rows = [];
    buildModel(about, room.buffer).read(ids, (_, logits) => rows.push(Array.from(logits)));
    postMessage(rows);
};
"""


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__, tiny="next to nothing")
    parser.add_argument("--size", choices=MODELS, nargs="+", default=list(MODELS))
    parser.add_argument("--architecture", choices=KNOWN, nargs="+", default=KNOWN)
    parser.add_argument("--weights", choices=PRECISIONS, default="int8")
    parser.add_argument("--tokens", type=int, default=256, help="of an answer (default 256)")
    parser.add_argument("--run", action="store_true", help="the run of this project")
    options = parser.parse_args()
    work = functools.partial(measure_run if options.run else measure_models, options)
    report_errors(lambda: work(RowFile(options.json)))


def measure_models(options: argparse.Namespace, file: RowFile) -> None:
    """A line for each model."""
    sizes = {"tiny": TINY} if options.tiny else {name: MODELS[name] for name in options.size}
    for name, changes in sizes.items():
        for architecture in options.architecture:
            values = section("model", architecture=architecture, **changes)
            model = with_random_weights(ModelConfig.model_validate(values))
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder)
                write_project(root, model)
                row = {"model": f"{architecture}, {name}"} | in_chromium(
                    root, model, options.weights, tokens=options.tokens
                )
            file.add(row)
            print(json.dumps(row), flush=True)


def measure_run(options: argparse.Namespace, file: RowFile) -> None:
    """A line for the run of this project, and how many answers of each epoch are the report's."""
    evaluation = read_record(paths.EVALUATION, Evaluation)
    models = [load_model(paths.MODEL / f"epoch-{n + 1}") for n in range(len(evaluation.epochs))]
    row = in_chromium(Path(), models[-1], options.weights, tokens=options.tokens)
    row["same"] = same_answers(evaluation, options.weights)
    file.add({"model": "this run"} | row)
    print(json.dumps(file.rows[-1]))


def write_project(root: Path, model: GPT) -> None:
    """As much of a project as `publish` reads: a page with nothing but the place to talk, and one
    epoch."""
    losses = dict.fromkeys(("train_loss", "val_loss", "perplexity", "bits_per_byte"), 1.0)
    result = EpochResult(epoch=1, answers=[], **losses)
    evaluation = Evaluation(questions=[], epochs=[result])
    write_json(root / paths.EVALUATION, evaluation.model_dump())
    write_text(root / paths.TOKENIZER, character_table(model.config.vocab_size))
    save_weights(model, root / paths.MODEL / "epoch-1")
    weights = sha256_of(root / paths.MODEL / "epoch-1" / WEIGHTS)
    write_text(root / paths.RUN_REPORT, REPORT % weights)
    manifest = {
        "format_version": 1,
        "fingerprint": "0" * 16,
        "model": model.config.model_dump(),
        "train": section("train", batch_size=1),
        "parameters": 1,
        "epochs": 1,
        "weights": [weights],
        "tokenizer_sha256": read_tokenizer(root / paths.TOKENIZER).sha256,
    }
    write_json(root / paths.MODEL / MANIFEST, manifest)


def character_table(size: int) -> str:
    """A tokenizer.json with one token for each of so many characters."""
    tokens = [*SPECIAL_TOKENS, *(chr(FIRST + n) for n in range(size - len(SPECIAL_TOKENS)))]
    special = [
        {"id": number, "content": token, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for number, token in enumerate(SPECIAL_TOKENS)
    ]
    parts = ("normalizer", "pre_tokenizer", "post_processor", "truncation", "padding")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    content = {"version": "1.0", "added_tokens": special, "model": model}
    return json.dumps(dict.fromkeys(parts) | {"decoder": {"type": "Fuse"}} | content)


@contextmanager
def opened(root: Path, precision: Precision, sampling: Sampling) -> Iterator[tuple[Page, str, int]]:
    """A browser's page, the address of the published one, and its size with its weights."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        site = Path(folder) / "site"
        publish(root, site, sampling, precision=precision)
        files = [site / "index.html", *site.glob("weights/*.js")]
        browser = playwright.chromium.launch(executable_path=chromium, args=OPTIONS)
        page = browser.new_context(bypass_csp=True).new_page()
        page.set_default_timeout(PATIENCE)
        yield page, files[0].as_uri(), sum(file.stat().st_size for file in files)
        browser.close()


def in_chromium(root: Path, model: GPT, precision: Precision, *, tokens: int) -> dict[str, Any]:
    """The figures of one model: of an answer to a page just opened, and of the next."""
    sampling = Sampling(max_new_tokens=tokens, temperature=1.0)
    with opened(root, precision, sampling) as (page, address, size):
        page.goto(f"{address}?{urlencode({'text': chr(FIRST)})}")
        first = answered(page, 0)
        page.locator("#talk-prompt").fill(chr(FIRST + 1) * 8)
        page.locator("#talk-prompt").press("Enter")
        second = answered(page, 1)
        return {
            "weights": precision,
            "megabytes": round(size / 1e6, 2),
            "first_ms": [round(first["first"]), round(second["first"])],
            "tokens_per_s": [round(one["rate"], 1) for one in (first, second)],
            "logits": round(logits_difference(page, model), 4),
        }


def answered(page: Page, number: int) -> dict[str, float]:
    """The figures of an answer, once it is complete."""
    expect(page.locator(".talk-turn")).to_have_count(number + 1, timeout=PATIENCE)
    expect(page.locator("#talk-write")).to_be_enabled(timeout=PATIENCE)
    shown = page.locator(".talk-speed").nth(number)
    tokens, first, seconds = (
        float(shown.get_attribute(f"data-{name}") or 0) for name in ("tokens", "first", "seconds")
    )
    return {"first": first, "rate": (tokens - 1) / seconds if seconds else 0.0}


def logits_difference(page: Page, model: GPT) -> float:
    """The largest difference between the logits in the browser and those of PyTorch, in standard
    deviations of the latter."""
    ids = torch.randint(model.config.vocab_size, (1, PROMPT), generator=torch.Generator())
    with torch.inference_mode():
        expected = model(ids)[0]
    code = page.locator("#talk-worker").text_content() or ""
    found = torch.tensor(page.evaluate(LOGITS, [code + TO_LOGITS, ids[0].tolist()]))
    return float((found - expected).abs().max() / expected.std())


def same_answers(evaluation: Evaluation, precision: Precision) -> dict[str, str]:
    """For each epoch, how many of the fixed prompts' greedy answers are those of the report."""
    found = {}
    most = read_yaml(PARAMS_FILE)["evaluate"]["max_new_tokens"]  # of the run, not of this checkout
    with opened(Path(), precision, Sampling(max_new_tokens=most)) as (page, address, _):
        for result in evaluation.epochs:
            same = 0
            for question in evaluation.questions:
                kind = "ask" if question.kind == "user" else "text"
                asked = {"epoch": result.epoch, "temperature": 0, kind: question.prompt}
                page.goto(f"{address}?{urlencode(asked)}")
                expect(page.locator(".talk-panel table")).to_be_visible(timeout=PATIENCE)
                same += page.get_by_text("The same as in the report below.").count()
            found[f"epoch {result.epoch}"] = f"{same} of {len(evaluation.questions)}"
    return found


if __name__ == "__main__":
    main()
