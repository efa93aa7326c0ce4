#include "src/checkpoint/fingerprint.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <type_traits>
#include <vector>

#include "src/base/error.h"
#include "src/base/formats/packed_format.h"
#include "src/checkpoint/model_tensors.h"

namespace canopy {
namespace {

/// XXH3 over fields; what has no fixed size goes in after its size, so that no two lists of fields
/// look alike.
class Fingerprint {
 public:
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void add(Number value) { add_bytes(&value, sizeof value); }
  void add(std::string_view text) {
    add(text.size());
    add_bytes(text.data(), text.size());
  }
  template <class Number>
  void add(const std::vector<Number>& list) {
    add(list.size());
    for (const Number value : list) add(value);
  }
  std::string digits() const { return digits_of(said_); }

 private:
  void add_bytes(const void* data, std::size_t size) {
    said_.append(static_cast<const char*>(data), size);
  }
  std::string said_;
};

/// Reads the middle of tensors.
class Samples {
 public:
  explicit Samples(const Checkpoint& model) : model_(model) {
    for (const auto& file : model.files()) files_.emplace_back(file, std::ios::binary);
  }
  /// Returns at most 64 bytes from the middle of a place in a tensor's file. Throws Error.
  std::string middle_of(const TensorEntry& tensor, ByteRange place) {
    std::string sample(std::min<std::uint64_t>(place.bytes, 64), '\0');
    auto& in = files_.at(static_cast<std::size_t>(tensor.file));
    in.seekg(static_cast<std::streamoff>(place.offset + (place.bytes - sample.size()) / 2));
    if (!in.read(sample.data(), static_cast<std::streamsize>(sample.size())))
      throw Error("cannot read " + tensor.name + " in " +
                  model_.files()[static_cast<std::size_t>(tensor.file)].string());
    return sample;
  }

 private:
  const Checkpoint& model_;
  std::vector<std::ifstream> files_;
};

}  // namespace

std::string digits_of(std::string_view bytes) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return text.data();
}

std::string fingerprint(const Checkpoint& model) {
  if (model.shard()) return model.shard()->fingerprint;
  Fingerprint all;
  const ModelConfig& c = model.config();
  all.add(c.architecture);
  for (const int extent : {c.layers, c.dim, c.hidden_dim, c.heads, c.kv_heads, c.head_dim, c.vocab})
    all.add(extent);
  for (const bool has :
       {c.tied_head, c.layer(0).qkv_bias, c.layer(0).qk_norm, c.rope_adjacent_pairs})
    all.add(has);
  // Measurements of models whose layers are alike were kept before there were kinds of layers.
  for (std::size_t kind = 1; kind < c.layer_kinds.size(); ++kind)
    for (const bool has : {c.layer_kinds[kind].qkv_bias, c.layer_kinds[kind].qk_norm}) all.add(has);
  // Others were kept before layers could differ in more.
  for (const std::uint8_t kind : c.kind_of_layer) all.add(static_cast<int>(kind));
  if (c.sizes_differ())
    for (int i = 0; i < c.layers; ++i) {
      const LayerSizes sizes = c.sizes(i);
      for (const int size : {sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.hidden_dim})
        all.add(size);
    }
  // Others yet were kept before there were other forms than llama's.
  if (c.form != DecoderForm())
    for (const int part :
         {static_cast<int>(c.form.norm), static_cast<int>(c.form.positions),
          static_cast<int>(c.form.mlp), static_cast<int>(c.form.embedding_norm),
          static_cast<int>(c.form.fused_qkv), static_cast<int>(c.layer(0).other_biases)})
      all.add(part);
  if (c.experts.count > 0)
    for (const int part :
         {c.experts.count, c.experts.active, c.experts.hidden_dim,
          static_cast<int>(c.experts.normalised), static_cast<int>(c.layer(0).whole_qk_norm)})
      all.add(part);
  if (c.experts.score != RouterScore::kSoftmax || c.experts.choice_bias || c.experts.scale != 1) {
    for (const int part : {static_cast<int>(c.experts.score), int{c.experts.choice_bias}})
      all.add(part);
    all.add(c.experts.scale);
  }
  if (c.experts.shared_dim > 0)
    for (const int part : {c.experts.shared_dim, static_cast<int>(c.experts.shared_switch)})
      all.add(part);
  for (const LayerConfig& kind : c.layer_kinds)
    if (kind.window != 0 || kind.sinks || (kind.experts && kind.other_biases))
      for (const int part : {kind.window, int{kind.sinks}, int{kind.other_biases}}) all.add(part);
  if (c.experts.gating != Gating()) {
    all.add(static_cast<int>(c.experts.gating.kind));
    for (const float number : {c.experts.gating.limit, c.experts.gating.alpha}) all.add(number);
  }
  // The same of forms and factors that came later.
  if (const DecoderForm& f = c.form; !f.norm_bias || !f.norm_inputs || f.norm_results || f.parallel)
    for (const bool part : {f.norm_bias, f.norm_inputs, f.norm_results, f.parallel}) all.add(part);
  if (const DecoderFactors& f = c.factors; f != DecoderFactors())
    for (const float part : {f.embedding, f.branch, f.logit, f.logit_cap, f.score, f.score_cap})
      all.add(part);
  for (const LayerConfig& kind : c.layer_kinds)
    if (!kind.rotated) all.add(kind.rotated);
  for (const LayerConfig& kind : c.layer_kinds)
    if (kind.output_gate || kind.recurrent)
      for (const bool part : {kind.output_gate, kind.recurrent}) all.add(part);
  if (const DeltaConfig& d = c.delta; d != DeltaConfig())
    for (const int part :
         {d.key_heads, d.value_heads, d.key_dim, d.value_dim, int{d.by_turns}, int{d.rate_is_log}})
      all.add(part);
  for (const float magnitude : c.rope_magnitude_of_kind) all.add(magnitude);
  if (!c.alibi_slopes.empty()) all.add(c.alibi_slopes);
  for (const Xielu& x : c.xielu)
    for (const float number : {x.alpha_p, x.alpha_n, x.beta, x.eps}) all.add(number);
  all.add(c.norm_eps);
  all.add(c.rope_inverse_frequency);
  for (const std::vector<float>& rope : c.rope_of_kind) all.add(rope);
  all.add(c.rope_magnitude);
  if (c.query_beta != 0) {
    all.add(c.query_beta);
    all.add(c.query_period);
  }

  Samples samples(model);
  for (const TensorEntry& tensor : model.tensors()) {
    all.add(tensor.name);
    all.add(name(tensor.dtype));
    all.add(tensor.shape);
    all.add(samples.middle_of(tensor, place_in_file(tensor)));
    if (!tensor.factors.empty()) all.add(tensor.factors);
    // Offsets of packed rows follow from the values; scales and groups of columns do not.
    const PackedFormat* const packed = find_packed_format(tensor.dtype);
    if (!tensor.companion.empty() && !(packed && packed->plain == DType::kBF16)) {
      const auto bytes = tensor.companion.bytes();
      all.add(digits_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    }
  }
  return all.digits();
}

std::map<std::string, std::string> digits_of_rows(
    const Checkpoint& model, const std::function<OwnRows(std::int64_t rows)>& own) {
  std::map<std::string, std::string> digits;
  Samples samples(model);
  for_each_tensor(model.config(), [&](const ModelTensor& tensor) {
    if (!is_cut_by_rows(tensor.spec->role)) return;
    const TensorEntry* const whole = model.find(tensor.name());
    require(whole != nullptr, "a model has the tensors of its config");
    const OwnRows rows = own(whole->shape[0]);
    if (rows.count == 0) return;
    const ByteRange place = place_of_rows(*whole, rows.first, rows.count);
    digits.emplace(whole->name, digits_of(samples.middle_of(
                                    *whole, {whole->offset + place.offset, place.bytes})));
  });
  return digits;
}

std::string source_fingerprint(const Checkpoint& model) {
  if (const auto* source = model.metadata().find<std::string>(kSourceFingerprint)) return *source;
  return fingerprint(model);
}

}  // namespace canopy
