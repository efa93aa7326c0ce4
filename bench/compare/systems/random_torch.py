"""Accelerate or DeepSpeed ZeRO-Inference on a model with random weights that does not fit the device: seconds of each token.

One JSON job on stdin: `how` (accelerate-cpu, accelerate-disk or deepspeed-cpu), `shape` (of a transformers.LlamaConfig),
`device` (cuda or cpu), `gpu_memory` (bytes, or null), `prompt_tokens`, `tokens`, `folder` (for what is offloaded to disk), `packages` (a folder, or null).
One JSON object on the last line of stdout. Needs torch, transformers and the system itself.

Settings: as many layers stay on the device as its budget has room for next to embedding, head, two travelling layers and a
share for activations (Accelerate); all parameters are pinned in host memory and fetched a layer ahead (DeepSpeed).
With Accelerate all layers share one layer's bytes, as with canopy bench offload; each travels by itself.
"""
import json
import os
import pathlib
import re
import resource
import sys
import time

job = json.load(sys.stdin)
if job["packages"]:
    sys.path.append(job["packages"])  # behind this Python's own

import torch  # noqa: E402
import transformers  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from energy import EnergyMeter  # noqa: E402

ACTIVATIONS = 2 << 30  # bytes, with the allocator's slack
device = torch.device(job["device"])
config = transformers.LlamaConfig(**job["shape"])
if device.type == "cuda" and job["gpu_memory"]:
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, job["gpu_memory"] / total))


def with_accelerate(offload):
    import accelerate
    from accelerate.utils import offload_weight, save_offload_index, set_module_tensor_to_device

    with accelerate.init_empty_weights():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.eval()
    once, weights = {}, {}
    for name, parameter in model.named_parameters():
        key = re.sub(r"layers\.\d+\.", "layers.", name)
        if key not in once:
            once[key] = torch.ones(parameter.shape, dtype=torch.bfloat16) if "norm" in name else (
                torch.empty(parameter.shape, dtype=torch.bfloat16).normal_(0, 0.02))
        weights[name] = once[key]
    of_layer = 2 * sum(w.numel() for name, w in weights.items() if name.startswith("model.layers.0."))
    outside = 2 * sum(w.numel() for name, w in weights.items() if not name.startswith("model.layers."))
    room = (job["gpu_memory"] or 0) - outside - 2 * of_layer - ACTIVATIONS
    resident = min(config.num_hidden_layers, max(0, room // of_layer)) if device.type == "cuda" else 0
    where = {"model.embed_tokens": device, "model.norm": device, "model.rotary_emb": device, "lm_head": device}
    where |= {f"model.layers.{i}": device if i < resident else offload for i in range(config.num_hidden_layers)}
    stays = lambda name: not name.startswith("model.layers.") or int(name.split(".")[2]) < resident
    for name, weight in weights.items():
        if stays(name):
            set_module_tensor_to_device(model, name, device, value=weight)
    model.model.rotary_emb.to(device)  # its frequencies are no parameter, so they are there
    travelling = {name: weight for name, weight in weights.items() if not stays(name)}
    if offload == "disk":
        os.makedirs(job["folder"], exist_ok=True)
        index, first = {}, {}
        for name, weight in travelling.items():
            key = re.sub(r"layers\.\d+\.", "layers.", name)
            if key in first:  # another name of the same bytes
                index[name] = index[first[key]]
                os.link(f"{job['folder']}/{first[key]}.dat", f"{job['folder']}/{name}.dat")
            else:
                index, first[key] = offload_weight(weight, name, job["folder"], index=index), name
        save_offload_index(index, job["folder"])
        accelerate.dispatch_model(model, where, main_device=device, offload_dir=job["folder"], offload_index=index, force_hooks=True)
    else:
        accelerate.dispatch_model(model, where, main_device=device, state_dict=travelling, force_hooks=True)
    return model, {"accelerate": accelerate.__version__}, {"resident_layers": resident}


def with_deepspeed():
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29512")
    if device.type == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    from transformers.integrations import HfDeepSpeedConfig

    layer = 2 * config.hidden_size * config.intermediate_size * 3
    settings = {"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {
        "stage": 3, "stage3_prefetch_bucket_size": layer, "stage3_param_persistence_threshold": 100000,
        "stage3_max_live_parameters": 2 * layer, "stage3_max_reuse_distance": 0,
        "offload_param": {"device": "cpu", "pin_memory": device.type == "cuda"}}}
    deepspeed.init_distributed("nccl" if device.type == "cuda" else "gloo")
    keep = HfDeepSpeedConfig(settings)  # from_config looks for it
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    engine, *_ = deepspeed.initialize(model=model, config=settings)
    engine.module.eval()
    return engine.module, {"deepspeed": deepspeed.__version__}, settings | {"kept": keep is not None}


def decode(model):
    """Seconds of the prompt and of each token after it; joules of all these tokens, None where none are counted."""
    meter, used = EnergyMeter(), []
    ids, cache, seconds = torch.arange(job["prompt_tokens"], device=device)[None] * 7919 % config.vocab_size, None, []
    with torch.inference_mode():
        for _ in range(job["tokens"] + 1):
            begin = time.monotonic()
            out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            ids, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
            ids.item()  # waits for the device
            seconds.append(time.monotonic() - begin)
            used.append(meter.joules())  # a counter may begin again within minutes
    return seconds, None if used[-1] is None else used[-1] - used[0], meter.missing


begin = time.monotonic()
how, _, tier = job["how"].partition("-")
model, versions, settings = with_deepspeed() if how == "deepspeed" else with_accelerate(tier)
loaded = time.monotonic() - begin
seconds, joules, missing = decode(model)
print(json.dumps({
    "load_seconds": loaded, "prefill_seconds": seconds[0], "token_seconds": seconds[1:], "settings": settings,
    "joules_per_token": None if joules is None else joules / job["tokens"], "energy_missing": missing,
    "versions": versions | {"torch": torch.__version__, "transformers": transformers.__version__},
    "gpu_bytes": torch.cuda.max_memory_reserved(device) if device.type == "cuda" else None,
    "host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10}), flush=True)
