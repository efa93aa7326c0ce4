// Types that the matrices of a quantised model get.
#include <gtest/gtest.h>

#include "src/convert/quantize/quantize.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {
namespace {

TEST(QuantizeTypes, AreShortBlocksWhere256DoesNotDivideTheRows) {
  struct Case {
    DType type;
    int dim;
    DType matrices, vocab;
  };
  for (const Case& c : {Case{DType::kQ2_K, 256, DType::kQ2_K, DType::kQ6_K},
                        Case{DType::kQ2_K, 96, DType::kQ4_0, DType::kQ8_0},
                        Case{DType::kQ4_K, 256, DType::kQ4_K, DType::kQ6_K},
                        Case{DType::kQ6_K, 256, DType::kQ6_K, DType::kQ6_K},
                        Case{DType::kQ4_K, 96, DType::kQ5_0, DType::kQ8_0},
                        Case{DType::kQ6_K, 96, DType::kQ8_0, DType::kQ8_0},
                        Case{DType::kQ4_1, 256, DType::kQ4_1, DType::kQ8_0},
                        Case{DType::kQ4_K, 40, DType::kBF16, DType::kBF16}}) {
    SCOPED_TRACE(::testing::Message() << name(c.type) << ", rows of " << c.dim);
    const TempDir dir;
    write_hugging_face(dir / "model", tiny_model({.dim = c.dim,
                                                  .hidden_dim = c.dim,
                                                  .heads = 2,
                                                  .kv_heads = 1,
                                                  .head_dim = c.dim / 2,
                                                  .vocab = 80}));
    quantize(Checkpoint::open(dir / "model"), dir / "q.gguf", c.type,
             [](std::uint64_t, std::uint64_t) {});
    const Checkpoint quantized = Checkpoint::open(dir / "q.gguf");
    for (const TensorEntry& tensor : quantized.tensors()) {
      const bool vocab = tensor.shape[0] == quantized.config().vocab && tensor.shape.size() == 2;
      const DType expected = tensor.shape.size() == 1 ? DType::kF32 : vocab ? c.vocab : c.matrices;
      EXPECT_EQ(tensor.dtype, expected) << tensor.name << " is " << name(tensor.dtype);
    }
  }
}

}  // namespace
}  // namespace canopy::testing
