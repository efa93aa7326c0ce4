#include "src/checkpoint/medusa_heads.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/header_reader.h"
#include "src/checkpoint/model_tensors.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

constexpr std::size_t kMostHeads = 16, kMostBlocks = 8, kMostRanks = 1024;
constexpr const char* kAcceptance = "acceptance";

std::filesystem::path file_of(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    for (const char* name : {"medusa_lm_head.safetensors", "model.safetensors"})
      if (std::filesystem::exists(path / name, ignored)) return path / name;
    throw Error(path.string() + " has neither medusa_lm_head.safetensors nor model.safetensors");
  }
  if (path.extension() == ".pt" || path.extension() == ".bin")
    throw Error(path.string() +
                " is a file of PyTorch: heads must be in safetensors; safetensors.torch.save_file "
                "writes what torch.load(..., weights_only=True) gives");
  return path;
}

/// The number that text begins with, which a dot ends; both are cut off. Nothing if there is none,
/// or it is `most` or more.
std::optional<std::size_t> take_number(std::string_view& text, std::size_t most) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != '.' || number >= most)
    return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return number;
}

/// Parts of a tensor's name after its prefix.
struct Place {
  std::size_t head = 0, layer = 0;
  std::string_view what;  // "linear.weight", "linear.bias", "weight"
};
std::optional<Place> place_of(std::string_view name) {
  for (const std::string_view prefix : {"medusa_heads.", "medusa_head.", "medusa."})
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  Place place;
  const auto head = take_number(name, kMostHeads);
  if (!head) return {};
  const auto layer = take_number(name, kMostBlocks + 1);
  if (!layer) return {};
  place = {*head, *layer, name};
  if (name != "linear.weight" && name != "linear.bias" && name != "weight") return {};
  return place;
}

void check(const TensorEntry& tensor, const std::vector<std::int64_t>& shape) {
  require_known_dtype(tensor);
  if (tensor.shape != shape)
    throw Error("tensor " + in_quotes(tensor.name) + " has shape " + to_string(tensor.shape) +
                ", but heads of this model have " + to_string(shape));
  if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kF16 && tensor.dtype != DType::kBF16)
    throw Error("tensor " + in_quotes(tensor.name) + " is " + name(tensor.dtype) +
                "; heads are F32, F16 or BF16");
}

std::vector<std::vector<double>> read_acceptance(const std::filesystem::path& file,
                                                 const TensorEntry& tensor, std::size_t heads) {
  require_known_dtype(tensor);
  if (tensor.dtype != DType::kF32 || tensor.shape.size() != 2 ||
      tensor.shape[0] != static_cast<std::int64_t>(heads) || tensor.shape[1] < 1 ||
      tensor.shape[1] > static_cast<std::int64_t>(kMostRanks))
    throw Error("tensor " + in_quotes(tensor.name) + " is " + name(tensor.dtype) + " " +
                to_string(tensor.shape) + ", not F32 [" + std::to_string(heads) + ", ranks]");
  HeaderReader reader(file, tensor.offset + tensor.bytes);
  reader.skip_to(tensor.offset);
  std::vector<float> values(heads * static_cast<std::size_t>(tensor.shape[1]));
  reader.read(values.data(), tensor.bytes);
  std::vector<std::vector<double>> rows(heads);
  for (std::size_t i = 0; i < values.size(); ++i)
    rows[i / static_cast<std::size_t>(tensor.shape[1])].push_back(static_cast<double>(values[i]));
  for (const std::vector<double>& row : rows) {
    double sum = 0;
    for (const double value : row) {
      if (!(value >= 0)) throw Error("tensor " + in_quotes(tensor.name) + " holds no shares");
      sum += value;
    }
    if (!(sum <= 1 + 1e-4))
      throw Error("tensor " + in_quotes(tensor.name) +
                  " has a head that is right in more than all");
  }
  return rows;
}

void refuse_gaps(const std::vector<MedusaHeads::Head>& heads) {
  if (heads.empty()) throw Error("it has no heads: no tensor is called '0.0.linear.weight'");
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const std::string whose = "head " + std::to_string(i);
    if (heads[i].blocks.empty()) throw Error(whose + " is missing, or has no block");
    if (heads[i].blocks.size() != heads[0].blocks.size() ||
        heads[i].matrix.has_value() != heads[0].matrix.has_value())
      throw Error(whose + " has other parts than head 0");
    for (std::size_t block = 0; block < heads[i].blocks.size(); ++block)
      if (heads[i].blocks[block].weight.shape.empty())
        throw Error(whose + " lacks the weight of block " + std::to_string(block));
  }
}

void sort_tensors(const std::vector<TensorEntry>& tensors, MedusaHeads& heads,
                  const TensorEntry*& acceptance) {
  std::map<std::size_t, std::pair<std::size_t, TensorEntry>> matrices;  // by head: layer, U
  for (const TensorEntry& tensor : tensors) {
    if (tensor.name == kAcceptance) {
      acceptance = &tensor;
      continue;
    }
    const auto place = place_of(tensor.name);
    if (!place) throw Error("tensor " + in_quotes(tensor.name) + " is not part of Medusa heads");
    heads.heads.resize(std::max(heads.heads.size(), place->head + 1));
    MedusaHeads::Head& head = heads.heads[place->head];
    if (place->what == "weight") {
      matrices[place->head] = {place->layer, tensor};
      continue;
    }
    head.blocks.resize(std::max(head.blocks.size(), place->layer + 1));
    MedusaHeads::Block& block = head.blocks[place->layer];
    if (place->what == "linear.weight")
      block.weight = tensor;
    else
      block.bias = tensor;
  }
  for (auto& [head, matrix] : matrices) {
    if (matrix.first != heads.heads[head].blocks.size())
      throw Error("tensor " + in_quotes(matrix.second.name) + " is not behind the last block");
    heads.heads[head].matrix = std::move(matrix.second);
  }
}

}  // namespace

MedusaHeads open_medusa_heads(const std::filesystem::path& path, const Checkpoint& model,
                              Holes holes) {
  MedusaHeads heads;
  heads.file = file_of(path);
  const TensorIndex index = read_safetensors_file(heads.file, holes);
  return in_context("reading the heads of " + heads.file.string(), [&] {
    const ModelConfig& c = model.config();
    const std::string own = source_fingerprint(model);
    const bool of_small = !index.source.empty() && index.source == c.inflated_source;
    if (!index.source.empty() && index.source != own && !of_small)
      throw Error("they were trained for the model of fingerprint " + index.source + ", and " +
                  model.root().string() + " has " + own);
    heads.names_its_model = !index.source.empty();
    heads.dim = c.embedding_width() / (of_small ? c.widen : 1);
    const TensorEntry* acceptance = nullptr;
    sort_tensors(index.tensors, heads, acceptance);
    refuse_gaps(heads.heads);
    for (const MedusaHeads::Head& head : heads.heads) {
      for (const MedusaHeads::Block& block : head.blocks) {
        check(block.weight, {heads.dim, heads.dim});
        if (block.bias) check(*block.bias, {heads.dim});
      }
      if (head.matrix) check(*head.matrix, {c.vocab, heads.dim});
    }
    if (of_small && !heads.heads.front().matrix && !own_head(model).companion.empty())
      throw Error("they share the model's head, whose first columns are theirs, and " +
                  model.root().string() + " has it " + dtype_name(own_head(model)) +
                  ", whose columns are not cut; the enlargement itself serves");
    if (acceptance) heads.acceptance = read_acceptance(heads.file, *acceptance, heads.heads.size());
    return std::move(heads);
  });
}

const TensorEntry& own_head(const Checkpoint& model) {
  const bool tied = model.config().tied_head;
  const std::string name = tensor_name(tied ? TensorRole::kEmbedding : TensorRole::kHead);
  const TensorEntry* const head = model.find(name);
  if (head == nullptr) throw Error(model.root().string() + " lacks the tensor " + name);
  return *head;
}

}  // namespace canopy
