"""DeepSpeed ZeRO-Inference: ZeRO stage 3, parameters on NVMe, on the CPU.

Settings: number of parameter buffers (each must hold the largest tensor, the embedding), prefetch bucket and live parameters
(in elements), AIO block size and depth. Which values are tried stands in compare.py.
"""
import os

from protocol import Channel, transformers_generate

with Channel().failures() as channel:
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="29511", TRANSFORMERS_VERBOSITY="error")
    import deepspeed
    import torch
    import transformers
    from transformers.integrations import HfDeepSpeedConfig

    job = channel.job
    settings = {"buffer_count": 5, "prefetch": 8e7, "live": 2e8, "block_size": 1 << 20, "queue_depth": 16, **job["settings"]}
    shape = transformers.AutoConfig.from_pretrained(job["model"])
    torch.set_num_threads(job["threads"])
    os.makedirs(job["folder"], exist_ok=True)
    config = {
        "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {
            "stage": 3, "stage3_prefetch_bucket_size": int(settings["prefetch"]), "stage3_param_persistence_threshold": 10000,
            "stage3_max_live_parameters": int(settings["live"]), "stage3_max_reuse_distance": 0,
            "offload_param": {"device": "nvme", "nvme_path": job["folder"], "pin_memory": False,
                              "buffer_count": settings["buffer_count"], "buffer_size": shape.vocab_size * shape.hidden_size}},
        "aio": {"block_size": settings["block_size"], "queue_depth": settings["queue_depth"], "single_submit": False,
                "overlap_events": True}}
    deepspeed.init_distributed("gloo")
    keep = HfDeepSpeedConfig(config)  # from_pretrained looks for it
    model = transformers.AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.bfloat16)
    engine, *_ = deepspeed.initialize(model=model, config=config)
    engine.module.eval()
    channel.loaded({"deepspeed": deepspeed.__version__, "transformers": transformers.__version__, "torch": torch.__version__},
                   settings)
    transformers_generate(channel, engine.module)
