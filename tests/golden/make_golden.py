#!/usr/bin/env python3
"""Writes the golden values that the C++ models are compared with: tests/golden/*.json.

Every file but optimizers.json holds one small model in float64: its configuration, all weights, a batch, the logits,
the loss, the gradient of every weight, and the weights after ten steps of AdamW with clipping. The models are plain PyTorch functions over a
dictionary of logical tensors, with gradients from autograd; `--check-transformers` compares them with the GPT-2 and
Llama of Hugging Face transformers, so that the golden models are the ones the field trains.

    python3 tests/golden/make_golden.py                       # rewrite the files
    python3 tests/golden/make_golden.py --check               # compare the files with a fresh computation
    python3 tests/golden/make_golden.py --check-transformers  # compare the models with transformers
"""

import argparse
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
IGNORE = -100

CASES = {
    "gpt": dict(model="gpt", vocabulary=17, context=8, width=12, heads=3, key_value_heads=3, hidden=48, layers=2,
                gelu="tanh", bias=True, tied=True, samples=3),
    "gpt_untied_erf": dict(model="gpt", vocabulary=13, context=5, width=8, heads=4, key_value_heads=4, hidden=32,
                           layers=2, gelu="erf", bias=True, tied=False, samples=2),
    "gpt_grouped_no_bias": dict(model="gpt", vocabulary=11, context=6, width=8, heads=4, key_value_heads=2, hidden=20,
                                layers=2, gelu="tanh", bias=False, tied=True, samples=2),
    "llama": dict(model="llama", vocabulary=19, context=6, width=16, heads=4, key_value_heads=2, hidden=24, layers=2,
                  tied=False, samples=3),
    "llama_one_key": dict(model="llama", vocabulary=7, context=9, width=8, heads=2, key_value_heads=1, hidden=10,
                          layers=3, tied=False, samples=2),
    "llama_all_keys": dict(model="llama", vocabulary=10, context=7, width=12, heads=2, key_value_heads=2, hidden=16,
                           layers=1, tied=False, samples=2),
}

TRAINING = dict(steps=10, learning_rate=1e-3, beta1=0.9, beta2=0.99, epsilon=1e-8, weight_decay=0.1, max_norm=1.0)


# ---- the models -----------------------------------------------------------------------------------------------------


def shapes(c):
    """Logical tensors by name, in the order of the model; a weight is [outputs, inputs]."""
    head = c["width"] // c["heads"]
    kv = c["key_value_heads"]
    gpt = c["model"] == "gpt"
    bias = gpt and c["bias"]
    result = {"token_embedding.weight": (c["vocabulary"], c["width"])}

    def linear(name, outputs, inputs):
        result[name + ".weight"] = (outputs, inputs)
        if bias:
            result[name + ".bias"] = (outputs,)

    def norm(name):
        result[name + ".weight"] = (c["width"],)
        if gpt:
            result[name + ".bias"] = (c["width"],)

    if gpt:
        result["position_embedding.weight"] = (c["context"], c["width"])
    for i in range(c["layers"]):
        block = f"blocks.{i}."
        norm(block + "attention_norm")
        linear(block + "attention.qkv", (c["heads"] + 2 * kv) * head, c["width"])  # rows: queries, keys, values
        linear(block + "attention.output", c["width"], c["heads"] * head)
        norm(block + "mlp_norm")
        if gpt:
            linear(block + "mlp.up", c["hidden"], c["width"])
        else:
            linear(block + "mlp.gate_up", 2 * c["hidden"], c["width"])  # rows: gate, up
        linear(block + "mlp.down", c["width"], c["hidden"])
    norm("final_norm")
    if not c["tied"]:
        result["head.weight"] = (c["vocabulary"], c["width"])
    return result


def normalise(c, w, name, x):
    if c["model"] == "gpt":
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
        return scaled * w[name + ".weight"] + w[name + ".bias"]
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w[name + ".weight"]


def project(w, name, x):
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def rotate(x):
    """Rotary positions on [samples, heads, context, head]: feature i turns with feature i + head/2."""
    context, half = x.shape[-2], x.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.arange(context, dtype=x.dtype)[:, None] * frequency
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)


def attend(c, w, name, x):
    samples, context, _ = x.shape
    head, heads, kv = c["width"] // c["heads"], c["heads"], c["key_value_heads"]
    q, k, v = project(w, name + ".qkv", x).split([heads * head, kv * head, kv * head], -1)
    q = q.view(samples, context, heads, head).transpose(1, 2)
    k = k.view(samples, context, kv, head).transpose(1, 2)
    v = v.view(samples, context, kv, head).transpose(1, 2)
    if c["model"] == "llama":
        q, k = rotate(q), rotate(k)
    k, v = (t.repeat_interleave(heads // kv, 1) for t in (k, v))  # query head h reads key head h / (heads / kv)
    scores = q @ k.transpose(-1, -2) / math.sqrt(head)
    future = torch.ones(context, context, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, -math.inf).softmax(-1)
    return project(w, name + ".output", (weights @ v).transpose(1, 2).reshape(samples, context, heads * head))


def feed_forward(c, w, name, x):
    if c["model"] == "llama":
        gate, up = project(w, name + ".gate_up", x).chunk(2, -1)
        inner = gate * torch.sigmoid(gate) * up
    else:
        z = project(w, name + ".up", x)
        if c["gelu"] == "tanh":
            inner = 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
        else:
            inner = 0.5 * z * (1 + torch.erf(z / math.sqrt(2)))
    return project(w, name + ".down", inner)


def logits_of(c, w, tokens):
    x = w["token_embedding.weight"][tokens]
    if c["model"] == "gpt":
        x = x + w["position_embedding.weight"][: tokens.shape[1]]
    for i in range(c["layers"]):
        block = f"blocks.{i}."
        x = x + attend(c, w, block + "attention", normalise(c, w, block + "attention_norm", x))
        x = x + feed_forward(c, w, block + "mlp", normalise(c, w, block + "mlp_norm", x))
    head = w["token_embedding.weight"] if c["tied"] else w["head.weight"]
    return normalise(c, w, "final_norm", x) @ head.T


def loss_of(logits, targets):
    """Mean of the negative log-likelihood over the counted targets."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="mean")


# ---- one case -------------------------------------------------------------------------------------------------------


def initial_weights(c, seed):
    """Random weights of four decimals: short in the file, and the same double for every reader."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes(c).items():
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        if len(shape) == 2:
            value = 0.4 * noise
        else:
            value = 0.1 * noise + (1.0 if name.endswith("norm.weight") else 0.0)
        weights[name] = torch.tensor([round(v, 4) for v in value.flatten().tolist()], dtype=torch.float64).view(shape)
    return weights


def batch_of(c, seed):
    generator = torch.Generator().manual_seed(seed + 1000)
    text = torch.randint(c["vocabulary"], (c["samples"], c["context"] + 1), generator=generator)
    tokens, targets = text[:, :-1].clone(), text[:, 1:].clone()
    targets[0, 1] = IGNORE
    targets[-1, -2:] = IGNORE  # samples with uneven counts
    return tokens, targets


def gradients_of(c, w, tokens, targets):
    leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
    logits = logits_of(c, leaves, tokens)
    loss = loss_of(logits, targets)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return logits.detach(), loss.item(), dict(zip(leaves, gradients))


def norm_of(gradients):
    return math.sqrt(sum((g * g).sum().item() for g in gradients.values()))


def train(c, w, tokens, targets):
    t = TRAINING
    leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
    groups = [
        dict(params=[p for p in leaves.values() if p.dim() >= 2], weight_decay=t["weight_decay"]),
        dict(params=[p for p in leaves.values() if p.dim() < 2], weight_decay=0.0),
    ]
    optimizer = torch.optim.AdamW(groups, lr=t["learning_rate"], betas=(t["beta1"], t["beta2"]), eps=t["epsilon"],
                                  foreach=False)
    losses, norms = [], []
    for _ in range(t["steps"]):
        optimizer.zero_grad()
        loss = loss_of(logits_of(c, leaves, tokens), targets)
        loss.backward()
        norm = norm_of({name: p.grad for name, p in leaves.items()})
        for p in leaves.values():
            p.grad.mul_(min(1.0, t["max_norm"] / norm))
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    return losses, norms, {name: p.detach() for name, p in leaves.items()}


def flat(tensors):
    return {name: value.flatten().tolist() for name, value in tensors.items()}


def make(name):
    c = CASES[name]
    seed = 1 + list(CASES).index(name)
    w = initial_weights(c, seed)
    tokens, targets = batch_of(c, seed)
    logits, loss, gradients = gradients_of(c, w, tokens, targets)
    losses, norms, trained = train(c, w, tokens, targets)
    return dict(
        config=c,
        shapes={key: list(value.shape) for key, value in w.items()},
        weights=flat(w),
        tokens=tokens.flatten().tolist(),
        targets=targets.flatten().tolist(),
        counted=int((targets != IGNORE).sum()),
        logits=logits.flatten().tolist(),
        loss=loss,
        gradients=flat(gradients),
        gradient_norm=norm_of(gradients),
        training=dict(TRAINING, losses=losses, gradient_norms=norms, weights=flat(trained)),
    )


# ---- the optimizers alone -------------------------------------------------------------------------------------------

OPTIMIZERS = [
    dict(kind="adamw", beta1=0.9, beta2=0.99, epsilon=1e-8, weight_decay=0.1),
    dict(kind="adamw", beta1=0.8, beta2=0.999, epsilon=1e-3, weight_decay=0.0),
    dict(kind="sgd", momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0),
    dict(kind="sgd", momentum=0.9, dampening=0.0, nesterov=False, weight_decay=0.05),
    dict(kind="sgd", momentum=0.9, dampening=0.5, nesterov=False, weight_decay=0.0),
    dict(kind="sgd", momentum=0.8, dampening=0.0, nesterov=True, weight_decay=0.01),
]


def make_optimizers():
    """Seven weights under ten given gradients and a changing learning rate, for each kind of optimizer."""
    generator = torch.Generator().manual_seed(77)
    rounded = lambda *shape: (torch.randn(shape, generator=generator, dtype=torch.float64) * 1e4).round() / 1e4
    weights, gradients = rounded(7), rounded(10, 7)
    rates = [0.01 * (step + 1) for step in range(10)]
    runs = []
    for options in OPTIMIZERS:
        o = dict(options)
        parameter = weights.clone().requires_grad_()
        if o.pop("kind") == "adamw":
            optimizer = torch.optim.AdamW([parameter], betas=(o["beta1"], o["beta2"]), eps=o["epsilon"],
                                          weight_decay=o["weight_decay"], foreach=False)
        else:
            optimizer = torch.optim.SGD([parameter], **o, lr=1.0, foreach=False)
        for rate, gradient in zip(rates, gradients):
            optimizer.param_groups[0]["lr"] = rate
            parameter.grad = gradient.clone()
            optimizer.step()
        runs.append(dict(options, result=parameter.detach().tolist()))
    return dict(weights=weights.tolist(), gradients=gradients.tolist(), learning_rates=rates, runs=runs)


# ---- against transformers -------------------------------------------------------------------------------------------


def hugging_face_gpt(c, w):
    """The model, and for each logical tensor the parameters that hold its rows and whether they are transposed."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=c["vocabulary"], n_positions=c["context"], n_embd=c["width"], n_layer=c["layers"],
                        n_head=c["heads"], n_inner=c["hidden"], layer_norm_epsilon=1e-5, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=c["tied"],
                        activation_function="gelu_new" if c["gelu"] == "tanh" else "gelu",
                        bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    model = GPT2LMHeadModel(config).double()
    pairs = {"token_embedding.weight": "transformer.wte.weight", "position_embedding.weight": "transformer.wpe.weight",
             "head.weight": "lm_head.weight"}
    for kind in ("weight", "bias"):
        pairs[f"final_norm.{kind}"] = f"transformer.ln_f.{kind}"
        for i in range(c["layers"]):
            for ours, theirs in (("attention_norm", "ln_1"), ("attention.qkv", "attn.c_attn"),
                                 ("attention.output", "attn.c_proj"), ("mlp_norm", "ln_2"), ("mlp.up", "mlp.c_fc"),
                                 ("mlp.down", "mlp.c_proj")):
                pairs[f"blocks.{i}.{ours}.{kind}"] = f"transformer.h.{i}.{theirs}.{kind}"
    theirs = dict(model.named_parameters())
    # GPT-2 stores the weights of its projections as [inputs, outputs].
    turned = {n for n in w if n.endswith(".weight") and (".attention." in n or ".mlp." in n)}
    return model, {n: ([theirs[pairs[n]]], n in turned) for n in w}


def hugging_face_llama(c, w):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=c["vocabulary"], hidden_size=c["width"], intermediate_size=c["hidden"],
                         num_hidden_layers=c["layers"], num_attention_heads=c["heads"],
                         num_key_value_heads=c["key_value_heads"], max_position_embeddings=c["context"],
                         rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=c["tied"], attention_bias=False,
                         mlp_bias=False, bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    model = LlamaForCausalLM(config).double()
    theirs = dict(model.named_parameters())
    result = {}
    for name in w:
        if name.startswith("blocks."):
            _, i, rest = name.split(".", 2)
            rows = {"attention_norm.weight": ["input_layernorm"], "mlp_norm.weight": ["post_attention_layernorm"],
                    "attention.qkv.weight": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
                    "attention.output.weight": ["self_attn.o_proj"],
                    "mlp.gate_up.weight": ["mlp.gate_proj", "mlp.up_proj"], "mlp.down.weight": ["mlp.down_proj"]}[rest]
            parts = [theirs[f"model.layers.{i}.{row}.weight"] for row in rows]
        else:
            parts = [theirs[{"token_embedding.weight": "model.embed_tokens.weight",
                             "final_norm.weight": "model.norm.weight", "head.weight": "lm_head.weight"}[name]]]
        result[name] = (parts, False)
    return model, result


def check_transformers():
    # The Llama of transformers computes its norms and rotary angles in float32, whatever the type of the model.
    bounds = {"gpt": 1e-12, "llama": 2e-5}
    agree = True
    for name, c in CASES.items():
        if c["model"] == "gpt" and c["key_value_heads"] != c["heads"]:
            print(f"{name}: skipped, GPT-2 has no grouped key/value heads")
            continue
        seed = 1 + list(CASES).index(name)
        w = initial_weights(c, seed)
        tokens, targets = batch_of(c, seed)
        logits, loss, gradients = gradients_of(c, w, tokens, targets)
        model, pairs = (hugging_face_gpt if c["model"] == "gpt" else hugging_face_llama)(c, w)
        with torch.no_grad():
            for key, (parts, turned) in pairs.items():
                value = w[key].T if turned else w[key]
                for part, rows in zip(parts, value.split([part.shape[0] for part in parts])):
                    part.copy_(rows)
        theirs = model(tokens).logits
        their_loss = loss_of(theirs, targets)
        their_loss.backward()
        difference = max((theirs - logits).abs().max().item(), abs(their_loss.item() - loss))
        for key, (parts, turned) in pairs.items():
            gradient = torch.cat([part.grad for part in parts])
            difference = max(difference, ((gradient.T if turned else gradient) - gradients[key]).abs().max().item())
        agree = agree and difference < bounds[c["model"]]
        print(f"{name}: logits, loss and {len(pairs)} gradients differ by at most {difference:.2e}")
    return agree


# ---- files ----------------------------------------------------------------------------------------------------------


def deviation(a, b):
    """Largest absolute difference of two trees of numbers; infinite when they are not alike."""
    if isinstance(a, dict):
        return max((deviation(a[k], b[k]) for k in a), default=0.0) if a.keys() == b.keys() else math.inf
    if isinstance(a, list):
        return max(map(deviation, a, b), default=0.0) if len(a) == len(b) else math.inf
    if isinstance(a, (int, float)) and not isinstance(a, bool):
        return abs(a - b)
    return 0.0 if a == b else math.inf


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare the files with a fresh computation")
    parser.add_argument("--check-transformers", action="store_true", help="compare the models with transformers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.check_transformers:
        return 0 if check_transformers() else 1
    failed = False
    for name in [*CASES, "optimizers"]:
        path = HERE / f"{name}.json"
        golden = make(name) if name in CASES else make_optimizers()
        if options.check:
            difference = deviation(golden, json.loads(path.read_text()))
            failed = failed or difference > 1e-11
            print(f"{path.name}: differs by at most {difference:.2e}")
        else:
            text = json.dumps(golden, separators=(",", ":"))
            path.write_text(text.replace('},"', '},\n"').replace('],"', '],\n"') + "\n")
            print(f"{path.name}: {path.stat().st_size // 1024} KiB")
            if name in CASES:
                before, after = golden["training"]["losses"][0], golden["training"]["losses"][-1]
                print(f"  loss {before:.6f}, after training {after:.6f}, gradient norm {golden['gradient_norm']:.4f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
