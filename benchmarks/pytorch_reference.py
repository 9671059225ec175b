#!/usr/bin/env python3
"""Trains the main job's model with PyTorch, as the mark for loss and time.

The settings are the defaults of `dtrain_train`: a byte-level GPT of 4 layers, 4 heads, width 128, context 64; batches
of 12 windows; AdamW (0.9, 0.99) with decay 0.1 on matrices; clipping at 1.0; a learning rate that rises to 1e-3 over
100 steps and falls to 1e-4 along a cosine. The last tenth of the text is held out, and the loss is the mean over every
held-out byte but the first.

    python3 benchmarks/pytorch_reference.py TEXT [--threads 2] [--steps 2000] [--compile]

The last line is JSON: loss, seconds of training (evaluation and compilation of the model not counted), tokens/s.
"""

import argparse
import json
import math
import pathlib
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 12
PEAK, MINIMUM, WARMUP = 1e-3, 1e-4, 100


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.mlp_norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        samples, context, _ = x.shape
        heads = self.qkv(self.attention_norm(x)).view(samples, context, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(samples, context, WIDTH))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(256, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("output.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.norm(self.blocks(x)) @ self.tokens.weight.T  # tied head


def loss_of(model, tokens, targets, reduction="mean"):
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), ignore_index=-100, reduction=reduction)


def epochs(text, generator):
    """Windows that do not overlap, in a new order and from a new phase in every epoch."""
    count = len(text) // CONTEXT - 1
    while True:
        phase = torch.randint(CONTEXT, (1,), generator=generator).item()
        begins = phase + CONTEXT * torch.randperm(count, generator=generator)
        yield from begins.tolist()


@torch.no_grad()
def held_out_loss(model, text):
    windows = math.ceil((len(text) - 1) / CONTEXT)
    tokens = torch.zeros(windows * CONTEXT, dtype=torch.long)
    targets = torch.full_like(tokens, -100)
    tokens[: len(text) - 1], targets[: len(text) - 1] = text[:-1], text[1:]
    pairs = zip(tokens.view(-1, CONTEXT).split(256), targets.view(-1, CONTEXT).split(256))
    return sum(loss_of(model, a, b, "sum").item() for a, b in pairs) / (len(text) - 1)


def learning_rate(step, steps):
    if step < WARMUP:
        return PEAK * step / WARMUP
    return MINIMUM + (PEAK - MINIMUM) * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / max(1, steps - WARMUP)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    text = torch.frombuffer(bytearray(options.text.read_bytes()), dtype=torch.uint8).long()
    cut = int(len(text) * 0.9)
    training, held_out = text[:cut], text[cut:]

    model = Gpt()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)],
                                  lr=PEAK, betas=(0.9, 0.99))
    step_model = torch.compile(model) if options.compile else model
    begins = epochs(training, generator)
    before = held_out_loss(model, held_out)
    if options.compile:
        loss_of(step_model, *torch.zeros(2, BATCH, CONTEXT, dtype=torch.long)).backward()

    start = time.perf_counter()
    for step in range(options.steps):
        windows = torch.stack([training[b : b + CONTEXT + 1] for b in (next(begins) for _ in range(BATCH))])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, options.steps)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(step_model, windows[:, :-1], windows[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 200 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}, {time.perf_counter() - start:.1f} s", flush=True)
    seconds = time.perf_counter() - start
    print(json.dumps(dict(validation_loss_before=before, validation_loss=held_out_loss(model, held_out),
                          seconds=round(seconds, 2), steps=options.steps, threads=options.threads,
                          tokens_per_second=round(options.steps * BATCH * CONTEXT / seconds),
                          compiled=options.compile, torch=torch.__version__)))


if __name__ == "__main__":
    main()
