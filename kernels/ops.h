#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "kernels/device.h"
#include "kernels/logit_edit.h"
#include "kernels/tensor.h"
#include "kernels/weight_view.h"
#include "src/base/rng.h"
#include "src/base/types.h"

namespace canopy {

inline constexpr int kKvBlock = 64;  // slots that lie together: of a text, in a block of a pool

/// One layer's keys and values of a text, in blocks of a pool. Shapes: k, v [kv_heads, kKvBlock,
/// head_dim], of the pool's block 0; block b of the pool lies b * stride bytes further on, as other
/// layers' lie in between. block [n] i32: slot s of the text is slot s % kKvBlock of the pool's
/// block block(s / kKvBlock), so that the text has n * kKvBlock. What is computed does not depend
/// on where blocks lie.
struct KvView {
  TensorView k, v;
  ConstTensorView block;
  std::int64_t stride = 0;  // a multiple of 16

  std::int64_t slots() const { return block.dim(0) * kKvBlock; }
};

/// Places of a text's slots in bytes, for code that runs on the device. Within a block a head's
/// slots follow each other.
struct SlotTable {
  const std::int32_t* block;
  std::int64_t stride, row;  // bytes of a block with all layers, and of one head's slot
  constexpr std::int64_t at(std::int64_t head, std::int64_t slot) const {
    return block[slot / kKvBlock] * stride + (head * kKvBlock + slot % kKvBlock) * row;
  }
};
inline SlotTable slot_table(const KvView& kv) {
  return {reinterpret_cast<const std::int32_t*>(kv.block.data()), kv.stride,
          static_cast<std::int64_t>(row_bytes(kv.k.dtype(), kv.k.dim(2)))};
}

/// An argument that a call takes as it is, or reads in the device's memory when it runs: a captured
/// call can then be launched again with another. `value` is what the call's checks go by.
template <class T>
struct DeviceScalar {
  T value{};
  const T* at = nullptr;  // on the device
  constexpr DeviceScalar() = default;
  constexpr DeviceScalar(T as_it_is, const T* on_device = nullptr)
      : value(as_it_is), at(on_device) {}
  constexpr T now() const { return at == nullptr ? value : *at; }  // of code that runs there
};

/// Attention of nodes [first_node, first_node + n) of a tree over the committed prefix and their
/// own ancestors: a draft grows a tree level by level, so earlier levels already sit in their
/// slots. Shapes: q, out [n, heads, head_dim]; ancestors [n, ceil((first_node + n) / 64)] u64,
/// where bit j of row i is set when node j is node first_node + i or one of its ancestors; empty: a
/// causal chain. Nodes are numbered parents first. Slots [0, prefix) are the committed text; node j
/// sits in slot prefix + j.
struct TreeAttention {
  ConstTensorView q;
  KvView kv;
  ConstTensorView ancestors;
  DeviceScalar<std::int64_t> prefix;
  std::int64_t first_node = 0;
  float scale = 0.0f;  // 1 / sqrt(head_dim)
  TensorView out;
  ConstTensorView slopes = {};  // [heads] f32: a key loses slope x its distance along the path
  /// A key is seen whose distance along the path is less; 0: all are. At most 2^31 - 1.
  std::int64_t window = 0;
  /// [heads] f32: one more logit of each softmax, which has no value (OpenAI, "gpt-oss-120b &
  /// gpt-oss-20b Model Card", arXiv:2508.10925). It takes part in the maximum; -inf weighs nothing.
  ConstTensorView sinks = {};
  /// A scaled score s becomes cap tanh(s / cap) before anything else is done with it (Gemma 2,
  /// arXiv:2408.00118); 0: it stays.
  float cap = 0.0f;
};

enum class Accumulate : bool { kNo, kYes };

/// One matrix applied to the shared input of a linear call. bias may be empty. Shapes: w
/// [m, k]; bias [m] f32; y [n, at least first_column + m] f32, so that slices of w fill
/// one y.
struct Projection {
  WeightView w;
  ConstTensorView bias;
  TensorView y;
  std::int64_t first_column = 0;
  Accumulate accumulate = Accumulate::kNo;
};

/// The matrices of one expert of a mixture, an MLP with a gate. Shapes: gate, up [hidden, dim];
/// down [dim, hidden].
struct ExpertWeights {
  WeightView gate, up, down;
};

/// Gate and biases of an expert. Shapes: biases of gate and up [hidden] f32, of down
/// [dim] f32; each may be empty.
struct ExpertForm {
  Gating gating = {};
  ConstTensorView gate_bias = {}, up_bias = {}, down_bias = {};
};

/// An expert and the rows that it computes. Shapes: rows [at most Workload::rows, 2] i32: an
/// ExpertRow each.
struct ExpertUse {
  ExpertWeights weights;
  ExpertForm form = {};
  ConstTensorView rows;
};

/// The experts that rows of a mixture chose, by rising index, and their weights. Shapes: expert
/// [n, active] i32; weight [n, active] f32.
struct RoutedRows {
  TensorView expert, weight;
};

/// The best tokens of rows of logits, their probabilities, and the rows' entropies in nats. Shapes:
/// token [n, count] i32; probability [n, count] f32; entropy [n] f32.
struct BestOfRows {
  TensorView token, probability, entropy;
};

/// One of the rows that an expert computes, as two numbers of a tensor: row `row` of x, whose
/// weight is number `weight` of those of all rows, or 1 where that is negative.
struct ExpertRow {
  std::int32_t row = 0, weight = 0;
};

enum class Normalised : bool { kNo, kYes };

/// A router's choice. The experts of highest score + bias compute, and have as weights their
/// scores, over the sum of those that compute where normalised, times the scale. `bias`: [experts]
/// f32, or empty.
struct RouterRule {
  RouterScore score = RouterScore::kSoftmax;
  Normalised normalised = Normalised::kYes;
  float scale = 1.0f;
  ConstTensorView bias = {};
};

/// Gain, bias (or none) and epsilon of a layer norm.
struct LayerNorm {
  ConstTensorView g, b;
  float eps = 0.0f;
};

/// Queries, keys and values of the same rows, one head for each.
struct QkvRows {
  TensorView q, k, v;
};

/// Columns of each group of a product's rows, as many as `width`. Those of group g go to columns
/// first_column + g width, and on, of y, or nowhere if there is none. Shapes: y [n, at least
/// first_column + groups width] f32.
struct RowPart {
  std::int64_t width = 0;
  TensorView y = {};
  std::int64_t first_column = 0;
};
using RowParts = std::array<RowPart, 4>;  // in their order; of no width: none

/// Rotary embedding, all variants alike: computed once when the model is loaded.
enum class RopePairs : bool { kHalves, kAdjacent };  // Hugging Face; GGUF files of llama
struct Rope {
  /// [at most head_dim / 2] f32, after linear, llama3 or yarn scaling: of the pairs in front, which
  /// are rotated.
  ConstTensorView inverse_frequency;
  float magnitude = 1.0f;  // yarn's attention factor
  RopePairs pairs = RopePairs::kHalves;
  /// Growth with the position: what is rotated is then multiplied by 1 + beta ln(1 + floor(position
  /// / period)).
  float beta = 0.0f;
  std::int32_t period = 1;
};

/// A function of each value by itself: max(x, 0),
/// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 (arXiv:1606.08415), x / (1 + exp(-x)),
/// 1 / (1 + exp(-x)), max(x, 0)^2 (arXiv:2109.08668), or xIELU by numbers of its own.
enum class Activation : std::uint8_t { kRelu, kGeluTanh, kSilu, kSigmoid, kReluSquared, kXielu };

/// Numbers of xIELU (arXiv:2411.13010): for x > 0 it is positive x^2 + beta x, else
/// negative (exp(min(x, eps)) - 1 - x) + beta x.
struct XieluFactors {
  float positive = 0.0f, negative = 0.0f, beta = 0.0f, eps = 0.0f;
};

enum class Replacement : bool { kNo, kYes };

/// Edits of rows of logits, in the device's memory, which the checks cannot see into: numbers of
/// edits and of rows of bits must be there, tokens at least 0. Of the edits that a row has, no two
/// are of one token, but for those that it has instead of shared ones. Shapes: row [n, 5] i32, a
/// LogitEditRow each; edit [any, 4] i32, a LogitEdit each; allowed [any, ceil(vocab / 32) or more]
/// u32, where token t has bit t % 32 of word t / 32; empty if no row has bits.
struct LogitEdits {
  ConstTensorView row, edit, allowed;
};

/// Throws Error where a number is out of its range.
void require_valid(const Sampling& sampling);

/// The largest calls a model will make: what an Ops must hold scratch for.
struct Workload {
  std::int64_t rows = 0;     // n of linear, attend, probabilities
  std::int64_t columns = 0;  // widest input of linear (k)
  std::int64_t vocab = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t context = 0;        // prefix + tree nodes
  std::int64_t expert_hidden = 0;  // widest inner row of an expert; 0: no mixture
  std::int64_t delta_rows = 0;     // of delta_rule; 0: there are no recurrent layers
  std::int64_t delta_heads = 0;    // of their values
};

struct DeltaEntry;  // of delta.h
struct DeltaRule;
struct DeltaFold;
struct GatedNorm;

/// The arithmetic a transformer needs, and nothing else. Every call checks shapes and
/// dtypes on the host (throws Error), enqueues on the stream, and returns. The checks
/// are written once, here; a backend only overrides the private do_*.
class Ops {
 public:
  virtual ~Ops() = default;
  /// Bytes of scratch that calls up to `largest` need; pure, so that a budget can be made before
  /// anything is allocated.
  virtual std::size_t scratch_bytes(const Workload& largest) const = 0;
  /// Grows the scratch to that size; calls within it then allocate no device memory. One thread,
  /// before any call.
  virtual void reserve(const Workload& largest) = 0;

  /// Computes y = x W^T + bias (or +=) of each projection. One call for q, k, v and one for gate,
  /// up: x is prepared once. A row of y does not depend on n (bit for bit on the CPU). Shapes: x
  /// [n, k] f32. Sums in f32.
  void linear(Stream&, ConstTensorView x, std::span<const Projection> projections);
  /// y_ij = g_j x_ij / sqrt(mean_k x_ik^2 + eps). Shapes: x, y [n, dim]; g [dim].
  void rms_norm(Stream&, ConstTensorView x, ConstTensorView g, float eps, TensorView y);
  /// y_ij = g_j (x_ij - m_i) / sqrt(v_i + eps) + b_j, m_i the mean and v_i the variance of row i
  /// (arXiv:1607.06450). y may be x. Shapes: x, y [n, dim]; g, b [dim] f32, or [m, dim], of which
  /// row i has row i modulo m.
  void layer_norm(Stream&, ConstTensorView x, const LayerNorm&, TensorView y);
  /// Rotates pairs in place. Shapes: qk [n, heads, head_dim]; position [n] i32.
  void rope(Stream&, TensorView qk, ConstTensorView position, const Rope&);
  /// y = what the gating makes of gate and up, where it names none silu(gate) * up. Shapes: all
  /// [n, hidden].
  void swiglu(Stream&, ConstTensorView gate, ConstTensorView up, TensorView y, const Gating& = {});
  /// Gives each row the experts that the rule chooses, equal ones by lower index, and their
  /// weights. A row with a NaN has a weight of NaN. Shapes: logits [n, experts] f32.
  void route(Stream&, ConstTensorView logits, const RouterRule&, RoutedRows to);
  /// Adds what experts give to rows of x, one expert after the other, with the rows' weights w: sum
  /// = w E(x) + sum, one rounding, E(x) = down y + its bias, y what the gating makes of gate x +
  /// its bias and up x + its. Where experts come by rising index, a sum does not depend on the
  /// other rows (bit for bit on the CPU). Shapes: x, sum [n, dim]; weight [n, active].
  void experts(Stream&, ConstTensorView x, ConstTensorView weight, std::span<const ExpertUse>,
               TensorView sum);
  /// y = activation(x), xIELU by these numbers. y may be x. Shapes: both [n, hidden].
  void activate(Stream&, Activation, ConstTensorView x, TensorView y, const XieluFactors& = {});
  /// y += factor x, one rounding. Shapes: x, y [n, dim].
  void add(Stream&, ConstTensorView x, float factor, TensorView y);
  /// x = factor x, and then, where cap is not 0, cap tanh(x / cap). Shape: x [n, dim].
  void scale(Stream&, TensorView x, DeviceScalar<float> factor, float cap = 0.0f);
  /// Takes apart what one product gave, whose rows have the same parts group after group. Shapes:
  /// fused [n, groups, sum of the parts' widths].
  void take_apart(Stream&, ConstTensorView fused, const RowParts& parts);
  /// y_i = or += table_id(i). Shapes: table [vocab, dim]; id [n] i32; y [n, dim].
  void embed(Stream&, WeightView table, ConstTensorView id, TensorView y,
             Accumulate = Accumulate::kNo);
  /// Writes the rows of nodes [first_node, first_node + n), as TreeAttention has them. Shapes: k, v
  /// [n, kv_heads, head_dim].
  void store_kv(Stream&, ConstTensorView k, ConstTensorView v, DeviceScalar<std::int64_t> prefix,
                std::int64_t first_node, KvView);
  /// Keeps rows first_slot + path(i) as rows first_slot + i. Safe in place: reads all, then writes.
  void keep_kv(Stream&, ConstTensorView path, std::int64_t first_slot, KvView);
  void attend(Stream&, const TreeAttention&);
  /// Parts of a recurrent layer, a gated delta net (math.md, "Recurrent layers"): see delta.h.
  void delta_enter(Stream&, const DeltaEntry&);
  void delta_rule(Stream&, const DeltaRule&);
  void delta_fold(Stream&, const DeltaFold&);
  void gated_norm(Stream&, const GatedNorm&);
  /// x *= sigmoid of the gates in a product of queries and gates. Shapes: fused [n, heads, 2,
  /// head_dim]; x [n, heads, head_dim].
  void gate_heads(Stream&, ConstTensorView fused, TensorView x);
  /// y = logits as edited: a token that is not allowed gets kMaskedLogit, the others their edits,
  /// and no edited logit lies beyond kMostEdited. What is not finite stays. Edits of tokens beyond
  /// the columns count for nothing. y may be the logits' own memory. Shapes: logits, y [n, vocab].
  void edit_logits(Stream&, ConstTensorView logits, const LogitEdits&, TensorView y);
  /// p = softmax(logits / temperature), then one cut after the other, each of what is left, with
  /// probabilities that sum to 1 again: the top_k likeliest; the likeliest until they make up
  /// top_p; those of at least min_p times the highest probability; of typical_p below 1 those whose
  /// -log p is nearest to the entropy, until they make up typical_p (arXiv:2202.00666). The token
  /// that crosses a share stays; equal ones by lower id. Shapes: [n, vocab]. temperature 0: one-hot
  /// at the first maximum. Sums in f64. A row of logits that are not all finite gives a row of NaN.
  void probabilities(Stream&, ConstTensorView logits, Sampling, TensorView p);
  /// The `count` tokens of highest logit, best first; equal logits by lower id; -1 in a row of
  /// logits that are not all finite. Shapes: logits [n, vocab]; token [n, count] i32.
  void top_tokens(Stream&, ConstTensorView logits, int count, TensorView token);
  /// The tokens of highest logit as top_tokens has them, what softmax(logits / temperature) gives
  /// each, and its entropy, so that rows need not leave the device. A row of logits that are not
  /// all finite has tokens of -1 and NaN. Shapes: logits [n, vocab]; temperature above 0. Sums in
  /// f64.
  void top_probabilities(Stream&, ConstTensorView logits, float temperature, const BestOfRows& to);
  /// to_i = from_(index_i), or 0 where that is negative: top_tokens of a row that is not finite.
  /// Indices must be there. Shapes: from [any] i32; index, to [n] i32.
  void take_tokens(Stream&, ConstTensorView from, ConstTensorView index, TensorView to);
  /// Draws `count` tokens per row from q. Without replacement each from what the draws before it
  /// left of q; once the support of q is used up, uniformly from the tokens not yet drawn, so that
  /// shapes stay fixed. Shapes: q [n, vocab]; token [n, count] i32. Draw c of row i uses
  /// rng.uniform(kDraft, first_index + i * count + c).
  void draw_tokens(Stream&, ConstTensorView q, int count, Replacement, DeviceScalar<StepRng>,
                   std::uint64_t first_index, TensorView token);

 private:
  virtual void do_linear(Stream&, ConstTensorView, std::span<const Projection>) = 0;
  virtual void do_rms_norm(Stream&, ConstTensorView, ConstTensorView, float, TensorView) = 0;
  virtual void do_layer_norm(Stream&, ConstTensorView, const LayerNorm&, TensorView) = 0;
  virtual void do_rope(Stream&, TensorView, ConstTensorView, const Rope&) = 0;
  virtual void do_swiglu(Stream&, ConstTensorView, ConstTensorView, TensorView, const Gating&) = 0;
  virtual void do_route(Stream&, ConstTensorView, const RouterRule&, const RoutedRows&) = 0;
  /// The default calls do_expert() for each that has rows.
  virtual void do_experts(Stream&, ConstTensorView, ConstTensorView, std::span<const ExpertUse>,
                          TensorView);
  virtual void do_expert(Stream&, ConstTensorView, ConstTensorView, ConstTensorView,
                         const ExpertWeights&, const ExpertForm&, TensorView) = 0;
  virtual void do_activate(Stream&, Activation, ConstTensorView, TensorView,
                           const XieluFactors&) = 0;
  virtual void do_add(Stream&, ConstTensorView, float, TensorView) = 0;
  virtual void do_scale(Stream&, TensorView, DeviceScalar<float>, float) = 0;
  virtual void do_take_apart(Stream&, ConstTensorView, const RowParts&) = 0;
  virtual void do_embed(Stream&, WeightView, ConstTensorView, TensorView, Accumulate) = 0;
  virtual void do_store_kv(Stream&, ConstTensorView, ConstTensorView, DeviceScalar<std::int64_t>,
                           std::int64_t, KvView) = 0;
  virtual void do_keep_kv(Stream&, ConstTensorView, std::int64_t, KvView) = 0;
  virtual void do_attend(Stream&, const TreeAttention&) = 0;
  virtual void do_delta_enter(Stream&, const DeltaEntry&) = 0;
  virtual void do_delta_rule(Stream&, const DeltaRule&) = 0;
  virtual void do_delta_fold(Stream&, const DeltaFold&) = 0;
  virtual void do_gated_norm(Stream&, const GatedNorm&) = 0;
  virtual void do_gate_heads(Stream&, ConstTensorView, TensorView) = 0;
  virtual void do_edit_logits(Stream&, ConstTensorView, const LogitEdits&, TensorView) = 0;
  virtual void do_probabilities(Stream&, ConstTensorView, Sampling, TensorView) = 0;
  virtual void do_top_tokens(Stream&, ConstTensorView, int, TensorView) = 0;
  virtual void do_top_probabilities(Stream&, ConstTensorView, float, const BestOfRows&) = 0;
  virtual void do_take_tokens(Stream&, ConstTensorView, ConstTensorView, TensorView) = 0;
  virtual void do_draw_tokens(Stream&, ConstTensorView, int, Replacement, DeviceScalar<StepRng>,
                              std::uint64_t, TensorView) = 0;
};

}  // namespace canopy
