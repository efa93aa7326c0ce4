// A prompt cache. The first byte of an input gives its kind: a file, or the list of blocks of one
// whose header and checksums are put around it, with bytes for the blocks after the first zero
// byte.
#include <xxhash.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "src/engine/engine.h"
#include "tests/fuzz/fuzz.h"
#include "tests/grammar/toy_tokenizer.h"
#include "tests/test_data.h"

namespace canopy::fuzz {
namespace {

using nlohmann::json;

Engine& engine() {
  static Engine engine = [] {
    ModelFiles files{Checkpoint::open(test_data() / "model" / "llama2"), std::nullopt, nullptr};
    files.tokenizer = std::make_unique<ToyTokenizer>(std::vector<std::string>(95, "x"));
    EngineOptions options;
    options.device.threads = 1;
    options.plan.method = SpeculationMethod::kNone;
    options.plan.max_prompt = 200;
    options.plan.context = 240;
    return Engine(std::move(files), options);
  }();
  return engine;
}

struct Parts {
  json header;
  std::string blocks;  // the bytes of all
};

/// A file as it is written.
const Parts& whole() {
  static const Parts parts = [] {
    Request request;
    request.prompt.resize(200);
    std::iota(request.prompt.begin(), request.prompt.end(), 0);
    for (TokenId& token : request.prompt) token %= 97;
    request.max_new_tokens = 1;
    engine().generate(request);
    const std::filesystem::path file = folder() / "whole.kv";
    engine().save_prompts(file, "code");
    const std::string bytes = read_file(file, 16 << 20, FileKind::kOfUser);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + 8, sizeof length);
    return Parts{json::parse(bytes.substr(24, length)), bytes.substr(24 + length)};
  }();
  return parts;
}

/// The file with these blocks; checksums that are 0 are made right.
std::string file_of(std::string_view blocks, std::string_view bytes) {
  Parts parts = whole();
  const std::size_t size = parts.blocks.size() / parts.header.at("blocks").size();
  std::copy_n(bytes.begin(), std::min(bytes.size(), parts.blocks.size()), parts.blocks.begin());
  if (bytes.size() > parts.blocks.size()) parts.blocks.resize(bytes.size() % (1 << 16));
  if (json list = json::parse(blocks, nullptr, false); !list.is_discarded()) {
    std::size_t at = 0;
    if (list.is_array())
      for (json& block : list) {
        if (block.is_object() && block.value("xxh3", json()) == 0 &&
            at + size <= parts.blocks.size())
          block["xxh3"] = XXH3_64bits(parts.blocks.data() + at, size);
        at += size;
      }
    parts.header["blocks"] = std::move(list);
  }
  const std::string header = parts.header.dump();
  const std::uint64_t words[] = {header.size(), XXH3_64bits(header.data(), header.size())};
  std::string file = "CANOPYKV";
  file.append(reinterpret_cast<const char*>(words), sizeof words);
  return file + header + parts.blocks;
}

}  // namespace

void fuzz_one(std::string_view input) {
  const std::string kind(input.substr(0, 1));
  const auto [blocks, bytes] = split(input.substr(kind.size()));
  const std::filesystem::path file =
      put("texts.kv", kind == "f" ? input.substr(1) : file_of(blocks, bytes));
  reads([&] {
    const LoadedPrompts loaded = engine().load_prompts(file, "code");
    expect(loaded.tokens >= 0 && loaded.tokens % 64 == 0, "whole blocks");
  });
}

}  // namespace canopy::fuzz
