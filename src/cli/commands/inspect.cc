// canopy inspect: what a model on disk is, and what running it would keep in memory and stream.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "offload/streamer.h"
#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/base/size_text.h"
#include "src/checkpoint/families.h"
#include "src/cli/commands/commands.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/output/table.h"

namespace canopy::cli {

namespace {

using nlohmann::json;

constexpr const char* kUsage =
    "usage: canopy inspect MODEL [--json]\n\n"
    "Shows the architecture, sizes and dtypes of a model (a Hugging Face directory or a GGUF\n"
    "file), what stays in memory when it is streamed, and what each sweep reads. Reads headers\n"
    "only.";

struct Layer {
  std::uint64_t attention = 0, mlp = 0;  // bytes on disk, norms and biases included
};

struct Group {
  std::uint64_t tensors = 0, bytes = 0;
};

/// All sizes in bytes.
struct Sizes {
  std::uint64_t parameters = 0, weights = 0;
  std::uint64_t embedding = 0, head = 0, final_norm = 0;  // head: 0 where it is the embedding
  std::uint64_t project_out = 0;                          // what lies before it, if anything does
  std::vector<Layer> layers;
  std::map<std::string, Group> dtypes;
  // With as little memory as can be:
  std::uint64_t resident = 0;      // norms, biases, room for some rows of the embedding
  std::uint64_t ring = 0;          // two units in transit
  std::uint64_t sweep = 0;         // read from disk each sweep, rounded out to whole blocks
  std::uint64_t all_resident = 0;  // the model without streaming
};

Sizes measure(const Checkpoint& model) {
  Sizes s;
  s.parameters = parameters(model);
  for (const TensorEntry& tensor : model.tensors()) {
    s.weights += tensor.bytes;
    Group& group = s.dtypes[name(tensor.dtype)];
    ++group.tensors;
    group.bytes += tensor.bytes;
  }
  const auto bytes_of = [&](TensorRole role) {
    const TensorEntry* const found = model.find(tensor_name(role));
    return found ? found->bytes : 0;
  };
  s.embedding = bytes_of(TensorRole::kEmbedding);
  s.head = bytes_of(TensorRole::kHead);
  s.final_norm = bytes_of(TensorRole::kFinalNorm) + bytes_of(TensorRole::kFinalNormBias);
  s.project_out = bytes_of(TensorRole::kProjectOut);

  const SweepLayout sweep = lay_out_sweep(model);
  s.layers.resize(static_cast<std::size_t>(model.config().layers));
  for (const UnitLayout& unit : sweep.units) {
    if (unit.unit.kind == UnitKind::kHead) continue;
    Layer& layer = s.layers[static_cast<std::size_t>(unit.unit.layer)];
    std::uint64_t& bytes = unit.unit.kind == UnitKind::kMlp ? layer.mlp : layer.attention;
    for (const UnitTensor& matrix : unit.matrices) bytes += matrix.tensor.bytes;
    for (const UnitTensor& vector : unit.vectors) bytes += vector.tensor.bytes;
  }
  const Residency none = none_resident(sweep);
  s.resident = Streamer::resting_bytes(sweep, none);
  s.ring = least_ring(sweep, none);
  s.sweep = travelling_bytes(sweep, none);
  s.all_resident = resident_bytes(sweep);
  return s;
}

struct Rotary {
  double base = 10000;
  std::string scaling = "none";  // as the file names it
  double slowdown = 1;           // of the slowest pair, against no scaling
};

Rotary rotary(const Checkpoint& model) {
  const ModelConfig& c = model.config();
  const Metadata& metadata = model.metadata();
  Rotary rotary;
  const std::string gguf(family_of(c).gguf);
  for (const std::string& key :
       {std::string("rope_theta"), std::string("rope_parameters.rope_theta"),
        std::string("rope_scaling.rope_theta"),
        std::string("rope_parameters.full_attention.rope_theta"), gguf + ".rope.freq_base"}) {
    if (const auto* real = metadata.find<double>(key)) rotary.base = *real;
    if (const auto* whole = metadata.find<std::int64_t>(key))
      rotary.base = static_cast<double>(*whole);
  }
  if (c.rope_inverse_frequency.back() == 0) {
    rotary.scaling = "proportional";  // some pairs stay, and no other is slower than without it
    return rotary;
  }
  const std::size_t pairs = c.rope_inverse_frequency.size();
  const double unscaled =
      std::pow(rotary.base, -static_cast<double>(pairs - 1) / static_cast<double>(pairs));
  rotary.slowdown = unscaled / c.rope_inverse_frequency.back();
  if (std::abs(rotary.slowdown - 1) > 1e-5) {
    const bool factor = metadata.contains(gguf + ".rope.scaling.factor") ||
                        metadata.contains(gguf + ".rope.scale_linear");
    rotary.scaling = factor && !metadata.contains(gguf + ".rope.scaling.type")
                         ? "linear"
                         : "by tensor rope_freqs.weight";
  }
  for (const std::string& key :
       {std::string("rope_scaling.type"), std::string("rope_scaling.rope_type"),
        std::string("rope_parameters.rope_type"), gguf + ".rope.scaling.type"}) {
    const auto* type = metadata.find<std::string>(key);
    if (type && *type != "default" && *type != "none") rotary.scaling = *type;
  }
  if (!c.rope_long_frequency.empty()) rotary.scaling = "longrope";
  return rotary;
}

bool is_gguf(const Checkpoint& model) { return model.files().front() == model.root(); }

/// Text of a file, safe on a terminal.
std::string printable(const std::string& text) {
  return json(text).dump(-1, ' ', true, json::error_handler_t::replace);
}

const char* name_of(NormKind norm) { return norm == NormKind::kLayer ? "layer" : "rms"; }
const char* name_of(MlpKind mlp) {
  switch (mlp) {
    case MlpKind::kSwiglu:
      return "swiglu";
    case MlpKind::kRelu:
      return "relu";
    case MlpKind::kGeluTanh:
      return "gelu_tanh";
    case MlpKind::kGeglu:
      return "geglu";
    case MlpKind::kReluSquared:
      return "relu_squared";
    case MlpKind::kXielu:
      return "xielu";
  }
  return "";
}
const char* name_of(GatingKind gating) {
  return gating == GatingKind::kClamped ? "clamped" : "swiglu";
}
const char* name_of(PositionKind positions) {
  return positions == PositionKind::kLearned ? "learned"
         : positions == PositionKind::kAlibi ? "alibi"
                                             : "rotary";
}

/// Counts the layers that have a property.
int layers_with(const ModelConfig& c, bool LayerConfig::*property) {
  int layers = 0;
  for (int layer = 0; layer < c.layers; ++layer) layers += c.layer(layer).*property ? 1 : 0;
  return layers;
}

/// Number of keys that a layer with a window sees, and of layers that have one; 0 and 0 of a model
/// without.
struct Windows {
  int keys = 0, layers = 0;
};
Windows windows(const ModelConfig& c) {
  Windows all;
  for (int i = 0; i < c.layers; ++i)
    if (const int keys = c.layer(i).window; keys != 0) all = {keys, all.layers + 1};
  return all;
}

/// Null for a model without.
json windows_json(const ModelConfig& c) {
  const Windows all = windows(c);
  if (all.layers == 0) return {};
  return {{"keys", all.keys}, {"layers", all.layers}};
}

/// Null for a dense model.
json experts_json(const ModelConfig& c) {
  if (c.experts.count == 0) return {};
  return {{"count", c.experts.count},
          {"active", c.experts.active},
          {"hidden_dim", c.experts.hidden_dim},
          {"normalised", c.experts.normalised},
          {"sigmoid", c.experts.score == RouterScore::kSigmoid},
          {"scale", c.experts.scale},
          {"shared_dim", c.experts.shared_dim},
          {"gating", name_of(c.experts.gating.kind)},
          {"layers", layers_with(c, &LayerConfig::experts)}};
}

/// Null for a model without.
json delta_json(const ModelConfig& c) {
  if (!c.recurrent()) return {};
  const DeltaConfig& d = c.delta;
  return {{"key_heads", d.key_heads},
          {"value_heads", d.value_heads},
          {"key_dim", d.key_dim},
          {"value_dim", d.value_dim},
          {"layers", layers_with(c, &LayerConfig::recurrent)}};
}

/// Null for a model whose layers have heads of one size and number.
json other_heads_json(const ModelConfig& c) {
  json all;
  for (const LayerConfig& kind : c.layer_kinds)
    if (kind.head_dim != 0 || kind.kv_heads != 0)
      all.push_back({{"head_dim", c.head_dim_of(kind)},
                     {"kv_heads", kind.kv_heads != 0 ? kind.kv_heads : c.kv_heads},
                     {"values_from_keys", kind.values_from_keys}});
  return all;
}

/// Counts the dimensions of each head that are rotated.
int rotated(const ModelConfig& c) { return static_cast<int>(2 * c.rope_inverse_frequency.size()); }

int unrotated_layers(const ModelConfig& c) {
  return c.layers - layers_with(c, &LayerConfig::rotated);
}

const char* norm_place(const DecoderForm& form) {
  return form.norm_after     ? "after"
         : !form.norm_inputs ? "results"
         : form.norm_results ? "both"
         : form.parallel     ? "once"
                             : "before";
}
const char* norm_place_text(const DecoderForm& form) {
  return form.norm_after     ? ", behind each part"
         : !form.norm_inputs ? ", of what each part gives"
         : form.norm_results ? ", before each part and of what it gives"
         : form.parallel     ? ", one for attention and MLP, which read the same"
                             : "";
}

/// Null for a model without.
json factors_json(const DecoderFactors& factors) {
  if (factors == DecoderFactors()) return {};
  return {{"embedding", factors.embedding}, {"branch", factors.branch},
          {"logit", factors.logit},         {"logit_cap", factors.logit_cap},
          {"score", factors.score},         {"score_cap", factors.score_cap}};
}

json rope_json(const Checkpoint& model) {
  const ModelConfig& c = model.config();
  if (c.form.positions != PositionKind::kRotary) return nullptr;
  const Rotary rope = rotary(model);
  return {{"base", rope.base},
          {"scaling", rope.scaling},
          {"slowdown", rope.slowdown},
          {"magnitude", c.rope_magnitude},
          {"adjacent_pairs", c.rope_adjacent_pairs},
          {"dimensions", rotated(c)}};
}

json as_json(const Checkpoint& model, const Sizes& s) {
  const ModelConfig& c = model.config();
  json layers = json::array(), dtypes = json::object();
  for (const Layer& layer : s.layers)
    layers.push_back({{"attention", layer.attention}, {"mlp", layer.mlp}});
  for (const auto& [dtype, group] : s.dtypes)
    dtypes[dtype] = {{"tensors", group.tensors}, {"bytes", group.bytes}};
  return {{"model", model.root().string()},
          {"container", is_gguf(model) ? "gguf" : "safetensors"},
          {"files", model.files().size()},
          {"architecture", c.architecture},
          {"inflated_from", c.inflated_from.empty() ? json() : json(c.inflated_from)},
          {"config",
           {{"layers", c.layers},
            {"dim", c.dim},
            {"embedding_dim", c.embedding_width()},
            {"heads", c.heads},
            {"kv_heads", c.kv_heads},
            {"head_dim", c.head_dim},
            {"hidden_dim", c.hidden_dim},
            {"other_heads", other_heads_json(c)},
            {"windows", windows_json(c)},
            {"sinks", c.any_layer(&LayerConfig::sinks)},
            {"experts", experts_json(c)},
            {"delta_net", delta_json(c)},
            {"vocab", c.vocab},
            {"max_positions", c.max_positions},
            {"norm_eps", c.norm_eps},
            {"tied_head", c.tied_head},
            {"qkv_bias", c.any_layer(&LayerConfig::qkv_bias)},
            {"qk_norm", c.any_layer(&LayerConfig::qk_norm)},
            {"end_tokens", c.end_tokens},
            {"norm", name_of(c.form.norm)},
            {"norm_place", norm_place(c.form)},
            {"factors", factors_json(c.factors)},
            {"unrotated_layers", unrotated_layers(c)},
            {"mlp", name_of(c.form.mlp)},
            {"positions", name_of(c.form.positions)},
            {"rope", rope_json(model)}}},
          {"quantization", c.quantization.empty() ? json() : json(c.quantization)},
          {"parameters", s.parameters},
          {"weight_bytes", s.weights},
          {"embedding_bytes", s.embedding},
          {"head_bytes", s.head},
          {"final_norm_bytes", s.final_norm},
          {"project_out_bytes", s.project_out},
          {"layer_bytes", std::move(layers)},
          {"dtypes", std::move(dtypes)},
          {"resident_bytes", s.resident},
          {"smallest_ring_bytes", s.ring},
          {"sweep_bytes", s.sweep},
          {"all_resident_bytes", s.all_resident}};
}

template <class T>
std::string text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

/// Lists the factors and bounds that a model has.
std::string factors_text(const DecoderFactors& factors) {
  std::string all;
  const auto add = [&](const char* what, float value, float neutral) {
    if (value != neutral) all.append(all.empty() ? "" : ", ").append(what).append(text(value));
  };
  const DecoderFactors neutral;
  add("embedding x ", factors.embedding, neutral.embedding);
  add("results x ", factors.branch, neutral.branch);
  add("logits x ", factors.logit, neutral.logit);
  add("logits within ", factors.logit_cap, neutral.logit_cap);
  add("scores x ", factors.score, neutral.score);
  add("scores within ", factors.score_cap, neutral.score_cap);
  return all;
}

/// "1000000", not "1e+06".
std::string whole_if_it_is(double value) {
  return value == std::floor(value) && value < 1e15 ? text(std::llround(value)) : text(value);
}

std::string count_text(std::uint64_t count) {
  if (count < 1'000'000) return std::to_string(count);
  const auto number = static_cast<double>(count);
  return count < 1'000'000'000 ? fixed(number / 1e6, 1) + " million"
                               : fixed(number / 1e9, 1) + " billion";
}

void line(const std::string& label, const std::string& value) {
  static const Table table({{"", 18, Align::kLeft, "  "}, {"", 0, Align::kLeft, ""}});
  std::cout << table.row({label, value});
}

void size_line(const std::string& label, std::uint64_t bytes, const std::string& note) {
  static const Table table(
      {{"", 18, Align::kLeft, "  "}, {"", 10, Align::kRight, ""}, {"", 0, Align::kLeft, "   "}});
  std::cout << table.row({label, format_size(bytes), note});
}

/// The largest layer's part, and the smallest's where they differ.
void layer_line(const std::string& label, const Sizes& s, std::uint64_t Layer::*part) {
  const auto [least, most] =
      std::minmax_element(s.layers.begin(), s.layers.end(),
                          [&](const Layer& a, const Layer& b) { return a.*part < b.*part; });
  const std::string times = "x " + std::to_string(s.layers.size()) + " layers";
  const std::uint64_t low = (*least).*part, high = (*most).*part;
  size_line(label, high,
            low == high ? times : times + " at most; the smallest has " + format_size(low));
}

std::string rotary_text(const Checkpoint& model) {
  const ModelConfig& c = model.config();
  const Rotary rope = rotary(model);
  return "base " + whole_if_it_is(rope.base) + ", pairs " +
         (c.rope_adjacent_pairs ? "adjacent" : "in halves") +
         (rotated(c) == c.head_dim_of(c.layer_kinds.back())
              ? ""
              : " of the first " + text(rotated(c)) + " dimensions of each head") +
         (rope.scaling == "none"
              ? ", not scaled"
              : ", scaled (" + rope.scaling + ") up to " + text(rope.slowdown) + " times");
}

void print(const Checkpoint& model, const Sizes& s) {
  const ModelConfig& c = model.config();
  std::cout << model.root().string() << "\n"
            << c.architecture << ", " << count_text(s.parameters) << " parameters, "
            << format_size(s.weights) << " in " << model.files().size()
            << (is_gguf(model) ? " GGUF file" : " safetensors file")
            << (model.files().size() == 1 ? "" : "s") << "\n";
  if (!c.inflated_from.empty())
    std::cout << "inflated from " << printable(c.inflated_from)
              << ": a function-preserving enlargement, with the text of the small model\n";

  std::cout << "\nConfig\n";
  line("layers", text(c.layers));
  line("dimension", text(c.dim) + (c.projects() ? ", projected from and to the embedding's " +
                                                      text(c.embedding_dim)
                                                : ""));
  line("heads", text(c.heads) + " of " + text(c.head_dim) + ", " + text(c.kv_heads) +
                    " for keys and values" +
                    (c.any_layer(&LayerConfig::qkv_bias) ? ", with biases" : "") +
                    (c.any_layer(&LayerConfig::qk_norm) ? ", Q and K normalised" : "") +
                    (c.any_layer(&LayerConfig::sinks) ? ", with sinks" : ""));
  for (const LayerConfig& kind : c.layer_kinds)
    if (kind.head_dim != 0 || kind.kv_heads != 0)
      line("other heads", text(c.heads) + " of " + text(c.head_dim_of(kind)) + ", " +
                              text(kind.kv_heads != 0 ? kind.kv_heads : c.kv_heads) + " for keys" +
                              (kind.values_from_keys ? ", which are values, too" : " and values") +
                              (kind.window == 0 ? ", in layers that see all keys" : ""));
  if (const DeltaConfig& d = c.delta; c.recurrent())
    line("delta nets", "in " + text(layers_with(c, &LayerConfig::recurrent)) + " of " +
                           text(c.layers) + " layers: " + text(d.value_heads) + " heads of " +
                           text(d.value_dim) + ", " + text(d.key_heads) + " of " + text(d.key_dim) +
                           " for keys");
  if (const Windows some = windows(c); some.layers != 0)
    line("windows", "the last " + text(some.keys) + " keys in " + text(some.layers) + " of " +
                        text(c.layers) + " layers");
  const bool all_mixed = std::all_of(c.layer_kinds.begin(), c.layer_kinds.end(),
                                     [](const LayerConfig& layer) { return layer.experts; });
  if (!all_mixed) line("MLP", text(c.hidden_dim) + " dimensions, " + name_of(c.form.mlp));
  if (c.experts.count > 0)
    line("experts",
         text(c.experts.active) + " of " + text(c.experts.count) + " for each row, " +
             text(c.experts.hidden_dim) + " dimensions each" +
             (c.experts.shared_dim == 0
                  ? ""
                  : ", and one of " + text(c.experts.shared_dim) + " for all rows") +
             (c.experts.gating.kind == GatingKind::kSwiglu
                  ? ""
                  : ", clamped at " + text(c.experts.gating.limit)) +
             (all_mixed ? "" : ", in " + text(layers_with(c, &LayerConfig::experts)) + " layers"));
  line("vocabulary", text(c.vocab));
  line("head", c.tied_head ? "tied to the embedding" : "of its own");
  line("positions", text(c.max_positions) + ", " + name_of(c.form.positions));
  if (c.form.positions == PositionKind::kRotary)
    line("rotary",
         rotary_text(model) + (unrotated_layers(c) == 0
                                   ? ""
                                   : "; not in " + text(unrotated_layers(c)) + " of the layers"));
  if (!c.quantization.empty()) line("weights", c.quantization);
  line("norms", std::string(name_of(c.form.norm)) + ", epsilon " + text(c.norm_eps) +
                    norm_place_text(c.form));
  if (const std::string factors = factors_text(c.factors); !factors.empty())
    line("factors", factors);

  std::cout << "\nWeights\n";
  size_line("embedding", s.embedding, c.tied_head ? "the head, too" : "");
  if (!c.tied_head) size_line("head", s.head, "");
  layer_line("attention", s, &Layer::attention);
  layer_line("MLP", s, &Layer::mlp);
  size_line("all", s.weights, text(model.tensors().size()) + " tensors");

  std::cout << "\nTypes\n";
  for (const auto& [dtype, group] : s.dtypes)
    size_line(dtype, group.bytes,
              text(group.tensors) + (group.tensors == 1 ? " tensor" : " tensors"));

  std::cout << "\nStreamed\n";
  size_line("in memory", s.resident,
            "norms, biases, room for rows of the embedding; more where there is more");
  size_line("in transit", s.ring, "two units, the fewest");
  size_line("read per sweep", s.sweep, "every layer and the head, less what rests in memory");
  size_line("all in memory", s.all_resident, "without streaming");
}

}  // namespace

int run_inspect(const std::vector<std::string>& words) {
  std::string path;
  bool as_object = false, allow_holes = false;
  Flags flags;
  add_model_flag(flags, path);
  flags.add_options()                                  //
      ("allow-holes", given(allow_holes), kHolesHelp)  //
      ("json", given(as_object), "print one JSON object; sizes in bytes");
  if (!parse(words, kUsage, flags)) return 0;
  const Checkpoint model = Checkpoint::open(local_model(path), holes_by(allow_holes));
  print_notes(model);
  const Sizes sizes = measure(model);
  if (as_object)
    std::cout << json_text(as_json(model, sizes), 2) << "\n";
  else
    print(model, sizes);
  return 0;
}

}  // namespace canopy::cli
