#include "src/engine/prompt_cache.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "src/base/error.h"
#include "src/base/file_writer.h"
#include "src/base/json.h"
#include "src/checkpoint/fingerprint.h"
#include "src/engine/runtime.h"

namespace canopy {

using nlohmann::json;

namespace {

constexpr std::string_view kMagic = "CANOPYKV";
constexpr int kVersion = 2;
// A million tokens take about six megabytes of header.
constexpr std::uint64_t kMostHeader = 256u << 20;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Describes what must agree between the run that wrote a file and the one that reads it. A GGUF
/// file and its packed copy have one fingerprint, but not always the same keys: the packed copy has
/// Hugging Face's order of rows, and frequencies that its config gives.
json model_json(const Runtime& runtime) {
  const ModelConfig& config = runtime.models.target.config();
  json model{{"fingerprint", source_fingerprint(runtime.models.target)},
             {"layers", config.layers},
             {"kv_heads", config.kv_heads},
             {"head_dim", config.head_dim},
             {"adjacent_pairs", config.rope_adjacent_pairs},
             {"inverse_frequency", config.rope_inverse_frequency},
             {"magnitude", config.rope_magnitude},
             {"k", name(runtime.plan.kv.k)},
             {"v", name(runtime.plan.kv.v)},
             {"block", kKvBlock}};
  // Not of each model: files of those without are as they were.
  if (!config.rope_of_kind.empty()) model["inverse_frequency_of_kind"] = config.rope_of_kind;
  if (!config.rope_magnitude_of_kind.empty())
    model["magnitude_of_kind"] = config.rope_magnitude_of_kind;
  if (!config.rope_long_frequency.empty())
    model["of_long_texts"] = {config.rope_original, config.rope_long_frequency};
  if (config.query_beta != 0) model["query_growth"] = {config.query_beta, config.query_period};
  if (const StateSnapshots* const states = runtime.target->kv().pool().snapshots())
    model["snapshot"] = states->bytes_of_one();
  return model;
}

json maker_json(const Runtime& runtime, std::string_view code) {
  return {{"code", code}, {"device", runtime.device->name()}};
}

/// A file, read from its front.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& file)
      : file_(open_file(file)), left_(regular_file_bytes(file_.get(), file)) {}

  void read(std::span<std::byte> to) {
    if (to.size() > left_) throw Error("the file ends too early");
    left_ -= to.size();
    while (!to.empty()) {
      const ssize_t n = ::read(file_.get(), to.data(), to.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw Error("cannot read: " + std::generic_category().message(errno));
      to = to.subspan(static_cast<std::size_t>(n));
    }
  }
  std::uint64_t left() const { return left_; }

 private:
  UniqueFd file_;
  std::uint64_t left_;
};

json read_header(Reader& reader) {
  std::array<std::byte, 24> front{};
  if (reader.left() < front.size()) throw Error("it is no prompt cache");
  reader.read(front);
  if (text_of(front).substr(0, kMagic.size()) != kMagic) throw Error("it is no prompt cache");
  const auto word = [&](std::size_t at) {
    std::uint64_t value = 0;
    for (std::size_t i = 8; i-- > 0;)
      value = value << 8 | std::to_integer<std::uint64_t>(front[at + i]);
    return value;
  };
  const std::uint64_t bytes = word(8);
  if (bytes > std::min(kMostHeader, reader.left())) throw Error("its header ends too late");
  std::string header(bytes, '\0');
  reader.read(std::as_writable_bytes(std::span(header)));
  if (XXH3_64bits(header.data(), header.size()) != word(16))
    throw Error("its header is damaged: its checksum differs");
  json parsed = parse_json(header);
  if (!parsed.is_object() || integer_in<int>(parsed.value("version", json())) != kVersion)
    throw Error("another version of Canopy wrote it: name another file");
  return parsed;
}

/// A block of a file.
struct Loaded {
  int parent;
  std::vector<TokenId> tokens;  // its own
  int block = -1;               // of the pool; -1: it found no room
};
/// A text up to the end of one of its blocks.
struct Beginning {
  std::vector<TokenId> text;
  std::vector<int> blocks;
};
std::vector<TokenId> tokens_of(const json& list) {
  std::vector<TokenId> tokens;
  for (const json& token : list) tokens.push_back(integer_in<TokenId>(token).value_or(-1));
  return tokens;
}

/// Walks back from `last`. If each block kept its text, those of a long text would take the square
/// of its length.
Beginning beginning_of(const std::vector<Loaded>& loaded, int last) {
  std::vector<int> way;
  for (int at = last; at >= 0; at = loaded[static_cast<std::size_t>(at)].parent) way.push_back(at);
  Beginning result;
  for (auto at = way.rbegin(); at != way.rend(); ++at) {
    const Loaded& one = loaded[static_cast<std::size_t>(*at)];
    result.text.insert(result.text.end(), one.tokens.begin(), one.tokens.end());
    result.blocks.push_back(one.block);
  }
  return result;
}

/// Reads what the file has of recurrent layers after a block; `text` up to its end is empty where
/// the block is not remembered. Room is made as for the texts of this run.
void load_snapshot(const json& block, std::span<const TokenId> text, TextLength length,
                   Reader& reader, Runtime& runtime) {
  KvPool& pool = runtime.target->kv().pool();
  StateSnapshots* const states = pool.snapshots();
  require(states != nullptr, "a snapshot of it is of a model with recurrent layers");
  std::vector<std::byte> bytes(states->bytes_of_one());
  reader.read(bytes);
  if (XXH3_64bits(bytes.data(), bytes.size()) !=
      integer_in<std::uint64_t>(block.at("snapshot_xxh3")))
    throw Error("a snapshot of it is damaged: its checksum differs");
  const auto id = text.empty() ? std::nullopt : states->take();
  if (!id) return;
  states->write(*id, bytes, *runtime.compute);
  states->keep(*id);
  pool.remember_snapshot(text, *id, length);
}

int load_blocks(const json& list, Reader& reader, Runtime& runtime) {
  KvPool& pool = runtime.target->kv().pool();
  if (!list.is_array()) throw Error("its list of blocks is none");
  const int vocab = runtime.models.target.config().vocab;
  std::vector<std::byte> bytes(pool.block_bytes());
  std::vector<Loaded> loaded;
  int tokens = 0;
  for (const json& one : list) {
    const int parent = integer_in<int>(one.at("parent")).value_or(-2);
    std::vector<TokenId> own = tokens_of(one.at("tokens"));
    if (parent < -1 || parent >= std::ssize(loaded) || std::ssize(own) != kKvBlock ||
        std::any_of(own.begin(), own.end(),
                    [&](TokenId token) { return token < 0 || token >= vocab; }))
      throw Error("a block of it is none");
    const auto length = one.contains("of_long_text") ? TextLength::kLong : TextLength::kShort;
    reader.read(bytes);
    if (XXH3_64bits(bytes.data(), bytes.size()) != integer_in<std::uint64_t>(one.at("xxh3")))
      throw Error("a block of it is damaged: its checksum differs");
    // A block without room is left out, and so are those that go on from it.
    const bool goes_on = parent < 0 || loaded[static_cast<std::size_t>(parent)].block >= 0;
    loaded.push_back({parent, std::move(own)});
    Beginning whole;
    if (goes_on && tokens / kKvBlock < pool.blocks()) {
      const int block = loaded.back().block = pool.take();
      pool.write(block, bytes, *runtime.compute);
      whole = beginning_of(loaded, static_cast<int>(loaded.size()) - 1);
      pool.remember(whole.text, whole.blocks, length);
      pool.give_back(block);
      tokens += kKvBlock;
    }
    if (one.contains("snapshot_xxh3")) load_snapshot(one, whole.text, length, reader, runtime);
  }
  return tokens;
}

}  // namespace

void require_prompt_cache(const Runtime& runtime) {
  require(runtime.target->kv().pool().remembers(),
          "this plan keeps no snapshots of the model's recurrent layers, so that there is nothing "
          "that a text could go on from");
}

void save_prompt_cache(const std::filesystem::path& file, const Runtime& runtime,
                       std::string_view code) {
  require_prompt_cache(runtime);
  const KvPool& pool = runtime.target->kv().pool();
  const std::vector<KvPool::Remembered> blocks = pool.remembered();
  const StateSnapshots* const states = pool.snapshots();
  const auto has_snapshot = [&](const KvPool::Remembered& one) {
    return states != nullptr && states->has(one.snapshot);
  };
  std::vector<std::byte> bytes(pool.block_bytes());
  std::vector<std::byte> snapshot(states == nullptr ? 0 : states->bytes_of_one());
  json header{{"version", kVersion},
              {"model", model_json(runtime)},
              {"maker", maker_json(runtime, code)},
              {"blocks", json::array()}};
  for (const KvPool::Remembered& one : blocks) {
    pool.read(one.block, bytes, *runtime.compute);
    header["blocks"].push_back({{"parent", one.parent},
                                {"tokens", one.tokens},
                                {"xxh3", XXH3_64bits(bytes.data(), bytes.size())}});
    if (one.length == TextLength::kLong) header["blocks"].back()["of_long_text"] = true;
    if (!has_snapshot(one)) continue;
    states->read(one.snapshot, snapshot, *runtime.compute);
    header["blocks"].back()["snapshot_xxh3"] = XXH3_64bits(snapshot.data(), snapshot.size());
  }
  const std::string text = header.dump();
  FileWriter out(file);
  std::string front(kMagic);
  for (const std::uint64_t word :
       {std::uint64_t{text.size()}, XXH3_64bits(text.data(), text.size())})
    for (int i = 0; i < 8; ++i) front += static_cast<char>((word >> (8 * i)) & 0xFF);
  out.write(front);
  out.write(text);
  for (const KvPool::Remembered& one : blocks) {
    pool.read(one.block, bytes, *runtime.compute);
    out.write(text_of(bytes));
    if (!has_snapshot(one)) continue;
    states->read(one.snapshot, snapshot, *runtime.compute);
    out.write(text_of(snapshot));
  }
  out.finish();
}

LoadedPrompts load_prompt_cache(const std::filesystem::path& file, Runtime& runtime,
                                std::string_view code) {
  require_prompt_cache(runtime);
  return in_context("reading the prompt cache " + file.string(), [&]() -> LoadedPrompts {
    Reader reader(file);
    try {
      const json header = read_header(reader);
      if (header.at("model") != model_json(runtime))
        throw Error(
            "it is of another model, of another form of this one (GGUF files of llama order keys "
            "otherwise), or of another type of KV cache: name another file");
      if (header.at("maker") != maker_json(runtime, code))
        return {0, "another build of Canopy, or another kind of device, wrote it"};
      return {load_blocks(header.at("blocks"), reader, runtime), ""};
    } catch (const json::exception& error) {
      throw Error(std::string("its header is malformed: ") + error.what());
    }
  });
}

}  // namespace canopy
