"""prometheus-client: parses /metrics; the families are there, and counters and histograms grow by what a text adds."""
import json
import urllib.request

from asked import MODEL, URL, USER
from prometheus_client.parser import text_string_to_metric_families


def samples():
    with urllib.request.urlopen(f"{URL}/metrics") as reply:
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4"), reply.headers["Content-Type"]
        families = {family.name: family for family in text_string_to_metric_families(reply.read().decode())}
    for name, family in families.items():
        assert name.startswith("canopy_") and family.documentation and family.type in ("counter", "gauge", "histogram"), family
        for sample in family.samples:
            if sample.name.endswith("_count"):  # what all buckets together count
                labels = {**sample.labels, "le": "+Inf"}
                assert [one.value for one in family.samples if one.labels == labels] == [sample.value], family
    kinds = {family.name: family.type for family in families.values()}
    for name in "num_requests_running", "num_requests_waiting":
        assert kinds[f"canopy_{name}"] == "gauge", kinds
    for name in "prompt_tokens", "generation_tokens":
        assert kinds[f"canopy_{name}"] == "counter", kinds
    for name in "time_to_first_token_seconds", "time_per_output_token_seconds", "inter_token_latency_seconds":
        assert kinds[f"canopy_{name}"] == "histogram", kinds
    return {(sample.name, *sorted(sample.labels.items())): sample.value for family in families.values() for sample in family.samples}


before = samples()
body = json.dumps({"model": MODEL, "messages": USER, "max_tokens": 8, "temperature": 0, "ignore_eos": True}).encode()
with urllib.request.urlopen(urllib.request.Request(f"{URL}/v1/chat/completions", body, {"Content-Type": "application/json"})) as reply:
    usage = json.load(reply)["usage"]
after = samples()
grown = {key: value - before.get(key, 0) for key, value in after.items()}
assert grown["canopy_prompt_tokens_total",] == usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"], (grown, usage)
assert grown["canopy_generation_tokens_total",] == 8, grown
assert grown["canopy_time_to_first_token_seconds_count",] == 1, grown
assert sum(value for key, value in grown.items() if key[0] == "canopy_request_success_total") == 1, grown
