// A file of Medusa heads for a model of 32 dimensions and 97 tokens.
#include <numeric>

#include "src/checkpoint/medusa_heads.h"
#include "tests/fuzz/fuzz.h"
#include "tests/test_data.h"

namespace canopy::fuzz {
namespace {

const Checkpoint& model() {
  static const Checkpoint model = Checkpoint::open(test_data() / "model" / "llama2");
  return model;
}

void expect_part(const std::optional<TensorEntry>& part, const std::vector<std::int64_t>& shape,
                 std::vector<TensorEntry>& tensors) {
  if (!part) return;
  expect(part->shape == shape, "a part of the model's shape");
  tensors.push_back(*part);
}

}  // namespace

void fuzz_one(std::string_view input) {
  const std::filesystem::path file = put("heads.safetensors", input);
  reads([&] {
    const MedusaHeads heads = open_medusa_heads(file, model());
    const std::int64_t dim = model().config().dim, vocab = model().config().vocab;
    expect(!heads.heads.empty() && heads.heads.size() <= 16, "1 to 16 heads");
    std::vector<TensorEntry> tensors;
    for (const MedusaHeads::Head& head : heads.heads) {
      expect(!head.blocks.empty() && head.blocks.size() <= 8, "1 to 8 blocks");
      for (const MedusaHeads::Block& block : head.blocks) {
        expect_part(block.weight, {dim, dim}, tensors);
        expect_part(block.bias, {dim}, tensors);
      }
      expect_part(head.matrix, {vocab, dim}, tensors);
    }
    expect_consistent(tensors, {file});
    expect(heads.acceptance.empty() || heads.acceptance.size() == heads.heads.size(),
           "shares of each head, or of none");
    for (const std::vector<double>& shares : heads.acceptance)
      expect(std::accumulate(shares.begin(), shares.end(), 0.0) <= 1.001, "shares of one");
  });
}

}  // namespace canopy::fuzz
