"""AirLLM on the CPU: one layer at a time, from a copy of the model split by layers.

Settings: `prefetching` of the next layer; compare.py tries it on and off. Its compression would change the weights, so it is off.
"""
import os

from protocol import Channel, transformers_generate

with Channel().failures() as channel:
    import airllm
    import torch
    import transformers
    from importlib.metadata import version

    job = channel.job
    settings = {"prefetching": True, **job["settings"]}
    torch.set_num_threads(job["threads"])
    os.makedirs(job["folder"], exist_ok=True)
    model = airllm.AutoModel.from_pretrained(job["model"], device="cpu", dtype=torch.bfloat16, max_seq_len=2048,
                                             layer_shards_saving_path=job["folder"], prefetching=settings["prefetching"])
    channel.loaded({"airllm": version("airllm"), "transformers": transformers.__version__, "torch": torch.__version__},
                   settings)
    transformers_generate(channel, model)
