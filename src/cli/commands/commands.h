#pragma once
#include <string>
#include <vector>

namespace canopy::cli {

/// The commands, a file each. They get the words after their name, return the exit code, throw
/// UsageError or Error.
int run_bench(const std::vector<std::string>& words);
int run_bench_link(const std::vector<std::string>& words);
int run_bench_model(const std::vector<std::string>& words);
int run_bench_offload(const std::vector<std::string>& words);
int run_bench_decode(const std::vector<std::string>& words);
int run_calibrate(const std::vector<std::string>& words);
int run_calibrate_acceptance(const std::vector<std::string>& words);
int run_calibrate_hardware(const std::vector<std::string>& words);
int run_chat(const std::vector<std::string>& words);
int run_detokenize(const std::vector<std::string>& words);
int run_doctor(const std::vector<std::string>& words);
int run_generate(const std::vector<std::string>& words);
int run_inflate(const std::vector<std::string>& words);
int run_inspect(const std::vector<std::string>& words);
int run_pack(const std::vector<std::string>& words);
int run_perplexity(const std::vector<std::string>& words);
int run_plan(const std::vector<std::string>& words);
int run_pull(const std::vector<std::string>& words);
int run_quantize(const std::vector<std::string>& words);
int run_serve(const std::vector<std::string>& words);
int run_shard(const std::vector<std::string>& words);
int run_tokenize(const std::vector<std::string>& words);
int run_unpack(const std::vector<std::string>& words);

}  // namespace canopy::cli
