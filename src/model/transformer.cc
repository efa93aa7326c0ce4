#include "src/model/transformer.h"

#include "src/model/transformer_impl.h"

namespace canopy {

template <class Forwards>
void Transformer::Impl::lay_out(const Forwards& forwards, Stream& compute) {
  uploaded->wait();  // the previous sweep's copies of the vectors below
  host_position.clear(), host_prefix.clear(), host_ids.clear(), host_tokens.clear();
  host_bits.clear(), host_read_ids.clear(), layouts.clear();
  current = 0;
  for (const std::span<const SequenceRows> parts : forwards) add_layout(parts, compute);
  device.upload(compute, position.data(), std::as_bytes(std::span(host_position)));
  device.upload(compute, prefix.data(), std::as_bytes(std::span(host_prefix)));
  device.upload(compute, ids.data(), std::as_bytes(std::span(host_ids)));
  device.upload(compute, ids.data() + logit_ids, std::as_bytes(std::span(host_read_ids)));
  device.upload(compute, bits.data(), std::as_bytes(std::span(host_bits)));
  compute.record(*uploaded);
}

void Transformer::Impl::add_layout(std::span<const SequenceRows> parts, Stream& compute) {
  const std::size_t first_position = host_position.size(), first_id = host_ids.size();
  Layout& layout = layouts.emplace_back();
  layout.first_position = first_position, layout.first_id = first_id;
  std::vector<Chunk>& chunks = layout.chunks;
  for (const SequenceRows& part : parts) {
    check_part(part, config, limits);
    const TreeBatch& b = part.batch;
    const auto n = static_cast<int>(b.tokens.size());
    part.kv->reserve(part.kv->length() + part.first_scratch_slot + b.first_node + n, compute);
    const auto base = static_cast<int>(host_position.size() - first_position);
    const DeviceScalar<std::int64_t> prefix_of_part(
        part.kv->length() + part.first_scratch_slot,
        reinterpret_cast<const std::int64_t*>(prefix.data()) + host_prefix.size());
    host_prefix.push_back(prefix_of_part.value);
    for (const std::int32_t row : b.logit_rows) host_ids.push_back(base + row);
    for (const std::int32_t row : b.read_rows) host_read_ids.push_back(base + row);
    host_tokens.insert(host_tokens.end(), b.tokens.begin(), b.tokens.end());
    // A tree may reach past the last position that was learned, where no text does.
    const int last = config.form.positions == PositionKind::kLearned
                         ? config.max_positions - 1
                         : std::numeric_limits<int>::max();
    for (const std::int32_t at : b.position)
      host_position.push_back(std::min(at, last) + config.form.position_offset);
    for (int i = 0; i < n;) {
      if (chunks.empty() || chunks.back().rows == limits.chunk) chunks.push_back({base + i, 0, {}});
      Chunk& chunk = chunks.back();
      const int rows = std::min(n - i, limits.chunk - chunk.rows);
      const bool chain = b.ancestor_bits.empty();
      chunk.segments.push_back(
          {part.kv, base + i, rows, prefix_of_part, b.first_node + i, host_bits.size(), chain});
      // Parents come first, so rows [i, i + rows) have no bits beyond first_node + i + rows.
      const auto words = at(words_for(b.first_node + n));
      for (int r = i; !chain && r < i + rows; ++r) {
        const auto row =
            b.ancestor_bits.subspan(at(r) * words, at(words_for(b.first_node + i + rows)));
        host_bits.insert(host_bits.end(), row.begin(), row.end());
      }
      if (RecurrentState* const states = part.kv->recurrent()) {
        Segment& segment = chunk.segments.back();
        segment.steps =
            states->lay_out(static_cast<int>(prefix_of_part.value), segment.first_node, rows,
                            std::span(host_bits).subspan(segment.bits_offset), compute);
      }
      chunk.rows += rows;
      i += rows;
    }
  }
  layout.nodes = static_cast<int>(host_position.size() - first_position);
  layout.logit_rows = static_cast<int>(host_ids.size() - first_id);
  layout.read_rows = static_cast<int>(host_read_ids.size());
  require(layout.read_rows == 0 || layouts.size() == 1,
          "forwards prepared together have no reader");
  require(layout.read_rows <= limits.max_read_rows,
          "more rows of logits are to be read than the model was set up for");
  if (host_position.size() > at(limits.max_nodes) || layout.logit_rows > limits.max_logit_rows ||
      host_bits.size() * sizeof(std::uint64_t) > bits.bytes())
    throw Error("a sweep of " + std::to_string(host_position.size()) + " nodes and " +
                std::to_string(layout.logit_rows) + " logit rows; the model was set up for " +
                std::to_string(limits.max_nodes) + ", " + std::to_string(limits.max_tree) +
                " of them in trees, and " + std::to_string(limits.max_logit_rows));
}

TensorView Transformer::Impl::sweep(Stream& compute, const std::stop_token& stop,
                                    const OnUnit& on_unit, const OnLogits& on_logits) {
  require(!ranks || !on_logits,
          "log probabilities of a prompt are not computed by several processes yet: use one");
  stop_at_gather = ranks ? stop : std::stop_token();
  const std::stop_token own_stop = ranks ? std::stop_token() : stop;
  const int rows = now().logit_rows;
  const TensorView head_in = rows_of(logit_input, 0, rows, config.embedding_width());
  const TensorView out = rows_of(logits, 0, rows, config.vocab);
  bool gathered = false;
  const std::span<const Unit> units = weights.units();
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (own_stop.stop_requested()) throw Stopped();
    // Every unit is acquired, needed or not: sources prefetch in this order.
    const UnitLease w = weights.acquire(i, compute, own_stop);
    if (on_unit) on_unit(units[i]);
    if (i == 0) enter(*w, compute);
    switch (units[i].kind) {
      case UnitKind::kAttention:
        attention(*w, units[i].layer, compute);
        break;
      case UnitKind::kRecurrent:
        recurrent(*w, units[i].layer, compute);
        break;
      case UnitKind::kMlp:
        if (config.layer(units[i].layer).experts)
          mixture(*w, i, compute, own_stop);
        else
          mlp(*w, units[i].layer, compute);
        break;
      case UnitKind::kHead:
        if (rows > 0) {
          if (!std::exchange(gathered, true))
            read_for_head(*w, ids.data() + now().first_id * sizeof(std::int32_t),
                          config.projects() ? rows_of(last, 0, rows, config.dim) : head_in, head_in,
                          compute);
          const std::array slice{
              Projection{w->matrix(TensorRole::kHead), {}, out, units[i].first_row}};
          if (units[i].rows > 0) device.ops().linear(compute, head_in, slice);
        }
        if (on_logits) hand_out(*w, units[i], on_logits, compute);
        break;
    }
  }
  if (rows > 0) {
    gather({out}, compute, Ranks::To::kFirst);
    scale_logits(out, compute);
  }
  return out;
}

template <class Body>
auto Transformer::Impl::or_abandon(Stream& compute, const Body& body) {
  try {
    return body();
  } catch (...) {
    weights.abandon_sweep();
    finish_quietly(compute);  // the caller may now free what queued work reads and writes
    throw;
  }
}

Transformer::Transformer(Device& device, const ModelConfig& config, WeightSource& weights,
                         const Limits& limits, Ranks* ranks)
    : impl_(std::make_unique<Impl>(device, config, weights, limits, ranks)) {}
Transformer::~Transformer() = default;

const ModelConfig& Transformer::config() const { return impl_->config; }
const Transformer::Limits& Transformer::limits() const { return impl_->limits; }

TensorView Transformer::forward(std::span<const SequenceRows> parts, Stream& compute,
                                std::stop_token stop, const OnUnit& on_unit,
                                const OnLogits& on_logits) {
  prepare(parts, compute);
  return run(compute, std::move(stop), on_unit, on_logits);
}

ConstTensorView Transformer::hidden() const {
  return impl_->entered ? impl_->rows_of(impl_->residual, 0, impl_->now().nodes, impl_->config.dim)
                        : impl_->entry_rows();
}

ConstTensorView Transformer::logit_inputs() const {
  return impl_->rows_of(impl_->logit_input, 0, static_cast<int>(impl_->host_ids.size()),
                        impl_->config.embedding_width());
}

void Transformer::prepare(std::span<const SequenceRows> parts, Stream& compute) {
  impl_->lay_out(std::array{parts}, compute);
  impl_->entered = false;
  impl_->or_abandon(compute, [&] {
    impl_->weights.embedding().look_up(impl_->host_tokens, compute, impl_->entry_rows());
  });
}

TensorView Transformer::run(Stream& compute, std::stop_token stop, const OnUnit& on_unit,
                            const OnLogits& on_logits) {
  return impl_->or_abandon(compute,
                           [&] { return impl_->sweep(compute, stop, on_unit, on_logits); });
}

void Transformer::prepare_all(std::span<const std::vector<SequenceRows>> forwards,
                              Stream& compute) {
  impl_->lay_out(forwards, compute);
}

TensorView Transformer::run(std::size_t forward, ConstTensorView tokens, Stream& compute,
                            std::stop_token stop) {
  impl_->current = forward;
  impl_->entered = false;
  return impl_->or_abandon(compute, [&] {
    impl_->device.ops().embed(compute, impl_->weights.embedding().on_device(), tokens,
                              impl_->entry_rows());
    return impl_->sweep(compute, stop, {}, {});
  });
}

bool Transformer::embeds_on_device() const {
  return !impl_->weights.embedding().on_device().empty();
}

}  // namespace canopy
