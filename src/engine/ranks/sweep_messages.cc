#include "src/engine/ranks/sweep_messages.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "src/base/error.h"

namespace canopy {

namespace {

class Writer {
 public:
  explicit Writer(RankCommand command) { put(command); }
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  template <class T>
  void put_all(std::span<const T> values) {
    put(static_cast<std::uint64_t>(values.size()));
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void put(const KvState& state) {
    put(state.length);
    put(state.text_length);
    put_all(state.blocks);
  }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <class T>
  void get(T& value) {
    const auto bytes = next(sizeof value);
    std::memcpy(&value, bytes.data(), sizeof value);
  }
  template <class T>
  void get_all(std::vector<T>& values) {
    std::uint64_t count = 0;
    get(count);
    require(count <= rest_.size() / sizeof(T), "a message of the first rank is cut off");
    values.resize(static_cast<std::size_t>(count));
    const auto bytes = next(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  void get(RankMessage::Cache& cache) {
    get(cache.length);
    get(cache.text_length);
    get_all(cache.blocks);
  }
  void end() const { require(rest_.empty(), "a message of the first rank is too long"); }

 private:
  std::span<const std::byte> next(std::size_t bytes) {
    require(bytes <= rest_.size(), "a message of the first rank is cut off");
    const auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }
  std::span<const std::byte> rest_;
};

}  // namespace

std::vector<std::byte> sweep_message(std::span<const SequenceRows> parts) {
  Writer message(RankCommand::kSweep);
  std::vector<const KvCache*> caches;
  for (const SequenceRows& part : parts)
    if (std::ranges::find(caches, part.kv) == caches.end()) caches.push_back(part.kv);
  message.put(static_cast<std::uint64_t>(caches.size()));
  for (const KvCache* const cache : caches) message.put(cache->state());
  message.put(static_cast<std::uint64_t>(parts.size()));
  for (const SequenceRows& part : parts) {
    const TreeBatch& batch = part.batch;
    require(batch.read_rows.empty(),
            "log probabilities of a prompt are not computed by several processes yet: use one");
    message.put(static_cast<int>(std::ranges::find(caches, part.kv) - caches.begin()));
    message.put(part.first_scratch_slot);
    message.put(batch.first_node);
    message.put_all(batch.tokens);
    message.put_all(batch.position);
    message.put_all(batch.logit_rows);
    message.put_all(batch.ancestor_bits);
  }
  return std::move(message).take();
}

std::vector<std::byte> keep_message(const KvState& state, std::span<const NodeId> path) {
  Writer message(RankCommand::kKeep);
  message.put(state);
  message.put_all(path);
  return std::move(message).take();
}

std::vector<std::byte> bare_message(RankCommand command) { return Writer(command).take(); }

RankMessage read_message(std::span<const std::byte> bytes) {
  RankMessage message;
  Reader reader(bytes);
  reader.get(message.command);
  if (message.command == RankCommand::kSweep) {
    std::uint64_t caches = 0, parts = 0;
    reader.get(caches);
    for (; caches > 0; --caches) reader.get(message.caches.emplace_back());
    reader.get(parts);
    for (; parts > 0; --parts) {
      RankMessage::Part& part = message.parts.emplace_back();
      reader.get(part.cache);
      require(part.cache >= 0 && part.cache < std::ssize(message.caches),
              "a part of a sweep names a cache that it does not have");
      reader.get(part.first_scratch_slot);
      reader.get(part.first_node);
      reader.get_all(part.tokens);
      reader.get_all(part.position);
      reader.get_all(part.logit_rows);
      reader.get_all(part.ancestor_bits);
    }
  } else if (message.command == RankCommand::kKeep) {
    reader.get(message.caches.emplace_back());
    reader.get_all(message.path);
  } else {
    require(message.command == RankCommand::kLoad || message.command == RankCommand::kCheck ||
                message.command == RankCommand::kEnd,
            "a command of the first rank is unknown");
  }
  reader.end();
  return message;
}

}  // namespace canopy
