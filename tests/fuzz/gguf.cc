// GGUF: header, metadata, and the model that they describe.
#include "src/checkpoint/readers.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  const std::filesystem::path file = put("model.gguf", input);
  reads([&] { expect_consistent(read_gguf(file).tensors, {file}); });
  reads([&] {
    const Checkpoint model = Checkpoint::open(file);
    expect_consistent(model.tensors(), model.files());
    expect(model.config().layers > 0 && model.config().dim > 0 && model.config().vocab > 0,
           "a shape that is one");
  });
}

}  // namespace canopy::fuzz
