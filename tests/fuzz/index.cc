// model.safetensors.index.json, next to two shards that are as they should be.
#include "src/checkpoint/readers.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {
namespace {

std::string shard(const std::string& tensor) {
  const std::string header =
      R"({")" + tensor + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
         std::string(8, '\0');
}

}  // namespace

void fuzz_one(std::string_view input) {
  static const bool made = [] {
    put("model-0.safetensors", shard("a"));
    put("model-1.safetensors", shard("b"));
    return true;
  }();
  expect(made, "two shards");
  put("model.safetensors.index.json", input);
  reads([&] {
    const TensorIndex index = read_safetensors(folder());
    expect_consistent(index.tensors, index.files);
  });
}

}  // namespace canopy::fuzz
