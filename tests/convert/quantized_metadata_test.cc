// Metadata in the GGUF files that quantize writes.
#include <gtest/gtest.h>

#include "src/convert/quantize/quantize.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {
namespace {

TEST(QuantizedMetadata, ScalesRotaryPositionsAsItsSourceDoes) {
  struct Keys {
    const char* type;  // or none
    float factor;
  };
  for (const Keys keys : {Keys{nullptr, 4}, {"linear", 4}, {"none", 4}, {"yarn", 4}}) {
    const TempDir dir;
    GgufWriter writer = gguf_writer(tiny_model());
    if (keys.type) writer.text("llama.rope.scaling.type", keys.type);
    writer.f32("llama.rope.scaling.factor", keys.factor);
    write_file(dir / "model.gguf", writer.bytes());
    const Checkpoint source = Checkpoint::open(dir / "model.gguf");
    quantize(source, dir / "q.gguf", DType::kQ8_0, [](std::uint64_t, std::uint64_t) {});
    const ModelConfig ours = Checkpoint::open(dir / "q.gguf").config(), theirs = source.config();
    EXPECT_EQ(ours.rope_inverse_frequency, theirs.rope_inverse_frequency);
    EXPECT_EQ(ours.rope_magnitude, theirs.rope_magnitude);
  }
}

}  // namespace
}  // namespace canopy::testing
