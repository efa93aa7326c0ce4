"""Programs as ranks over MPI on this machine, and a model with rows for several of them."""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess

from support import run

OF_THIS_TEST = ("CANOPY_TEST", str(os.getpid()))  # in the environment of its ranks: other tests run the program, too
# mpirun refuses root without these; a copy from another process's memory is refused in many containers. Open MPI does not free what it
# makes: under AddressSanitizer leaks of ranks are its own, in modules without a name, and tests with ranks that are threads find ours.
# What ThreadSanitizer says of it is named in a file.
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", OF_THIS_TEST[0]: OF_THIS_TEST[1],
        "ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": f"suppressions={pathlib.Path(__file__).with_name('open_mpi.tsan')}"}
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "btl_vader_single_copy_mechanism", "none"]
HAS_MPIRUN = shutil.which("mpirun") is not None


def has_mpi():
    """False for a program that says that it was built without MPI."""
    alone = run("generate", "-m", "none", "-p", "a", env=os.environ | {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"})
    without = "was built without MPI" in alone.stderr
    assert not without or "libopenmpi-dev" in alone.stderr and alone.returncode == 1, alone.stderr
    return not without


def words_of(*contexts):
    """The command line of a process for each list of words."""
    words = list(MPIRUN)
    for i, context in enumerate(contexts):
        words += [":"] * bool(i) + ["-n", "1", *map(str, context)]
    return words


def mpirun(*contexts, stdin="", timeout=300, **options):
    """Runs a process for each list of words."""
    return subprocess.run(words_of(*contexts), input=stdin, capture_output=True, text=True, timeout=timeout, env=os.environ | ROOT,
                          **options)


def environment(process):
    """Returns the environment of a process; empty of one that has ended."""
    try:
        entries = (pathlib.Path("/proc") / str(process) / "environ").read_text(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def processes(program):
    """Returns this test's processes that run the program."""
    found = set()
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "exe") == os.path.realpath(program):
                found.add(int(entry.name))
        except OSError:  # it has ended, or is another's
            pass
    return {process for process in found if environment(process).get(OF_THIS_TEST[0]) == OF_THIS_TEST[1]}


def rank_of(process):
    """Returns the rank of a process, by its environment; -1 of one that is none, or has ended."""
    return int(environment(process).get("OMPI_COMM_WORLD_RANK", -1))


def random_model(folder, tokenizer, layers=2, width=384, seed=1):
    """Writes a random model of several blocks of rows: matrices in bf16, of values from 2^-5 to 2^-4 with either sign."""
    rng = random.Random(seed)
    heads, kv_heads, mlp, vocab = width // 64, max(1, width // 128), 5 * width // 3 // 128 * 128, 97
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": mlp,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 64, "num_hidden_layers": layers,
              "vocab_size": vocab, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 96, "torch_dtype": "bfloat16"}
    shapes = {"model.embed_tokens.weight": (vocab, width), "lm_head.weight": (vocab, width), "model.norm.weight": (width,)}
    for layer in range(layers):
        name = f"model.layers.{layer}."
        shapes |= {name + "self_attn.q_proj.weight": (heads * 64, width), name + "self_attn.k_proj.weight": (kv_heads * 64, width),
                   name + "self_attn.v_proj.weight": (kv_heads * 64, width), name + "self_attn.o_proj.weight": (width, heads * 64),
                   name + "mlp.gate_proj.weight": (mlp, width), name + "mlp.up_proj.weight": (mlp, width),
                   name + "mlp.down_proj.weight": (width, mlp), name + "input_layernorm.weight": (width,),
                   name + "post_attention_layernorm.weight": (width,)}
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        if len(shape) == 1:
            values = struct.pack("<H", 0x3f80) * count
        else:
            bits = int.from_bytes(rng.randbytes(2 * count), "little")
            keep, exponent = (int.from_bytes(struct.pack("<H", half) * count, "little") for half in (0x807f, 0x3d00))
            values = (bits & keep | exponent).to_bytes(2 * count, "little")
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder
