// Shapes of trees, as users write them and as files hold them.
#include "planner/shape_text.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {
namespace {

void check(const TreeShape& shape) {
  int width = 0;
  for (const int nodes : shape.level_widths()) width += nodes;
  expect(width == shape.size() && shape.size() >= 1, "nodes that lie on levels");
  for (NodeId node = 1; node < shape.size(); ++node)
    expect(shape.parent(node) >= 0 && shape.parent(node) < node, "parents before their children");
}

}  // namespace

void fuzz_one(std::string_view input) {
  reads([&] {
    if (const auto shape = parse_shape(input)) check(*shape);
  });
  reads([&] { check(shape_from_json(input)); });
}

}  // namespace canopy::fuzz
