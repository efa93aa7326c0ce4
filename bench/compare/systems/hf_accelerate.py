"""Hugging Face transformers with Accelerate's disk offload.

Settings: how much of the budget may hold layers (the device map's `max_memory` for the CPU; the rest of the layers stay on
disk), as `resident`, a share of the budget. Which shares are tried stands in compare.py. It offloads from the checkpoint itself,
without a copy, which is what transformers does with safetensors.
"""
from protocol import Channel, transformers_generate

with Channel().failures() as channel:
    import accelerate
    import torch
    import transformers

    job = channel.job
    settings = {"resident": 0.4, **job["settings"]}
    torch.set_num_threads(job["threads"])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        job["model"], dtype=torch.bfloat16, device_map="auto", offload_folder=job["folder"], low_cpu_mem_usage=True,
        max_memory={"cpu": int(settings["resident"] * job["memory"])})
    channel.loaded({"transformers": transformers.__version__, "accelerate": accelerate.__version__,
                    "torch": torch.__version__}, settings)
    transformers_generate(channel, model)
