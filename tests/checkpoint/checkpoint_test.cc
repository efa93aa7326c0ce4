// Checkpoint::open on whole models: families, containers, inventories that do not match the config,
// and damage of every kind.
#include "src/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <new>

#include "offload/unit_layout.h"
#include "src/checkpoint/readers.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace {
std::size_t largest_allocation = 0;  // since a test last cleared it
}

// Not inlined: g++ 12 would take the pair of new and free for a mistake.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  largest_allocation = std::max(largest_allocation, bytes);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace canopy::testing {
namespace {

std::string error_of_open(const std::filesystem::path& model) {
  return error_of([&] { Checkpoint::open(model); });
}

std::string error_of_model(const TinyModel& model) {
  const TempDir dir;
  write_hugging_face(dir.path(), model);
  return error_of_open(dir.path());
}

TEST(Checkpoint, GivesAMatrixOfNvfp4TheFactorOfItsProductsOrRefusesItByName) {
  TinyOptions options;
  options.hidden_dim = 128;  // of whole blocks
  options.matrices = DType::kNVFP4;
  const TinyModel model = tiny_model(options);
  const TempDir dir;
  const auto write_with = [&](const std::string& name, const std::vector<float>& factors,
                              std::vector<std::int64_t> shape) {
    GgufWriter writer = gguf_writer(model);
    FileTensor tensor{name, DType::kF32, std::move(shape), {}};
    for (const float factor : factors) append(tensor.bytes, factor);
    writer.tensor(tensor);
    write_file(dir / "model.gguf", writer.bytes());
    return error_of_open(dir / "model.gguf");
  };
  EXPECT_EQ(write_with("blk.0.attn_q.input_scale", {3}, {1}), "");
  EXPECT_EQ(Checkpoint::open(dir / "model.gguf").config().quantization,
            "NVFP4; scales of activations are not used");
  EXPECT_EQ(write_with("blk.0.attn_q.scale", {0.3f}, {1}), "");
  const Checkpoint scaled = Checkpoint::open(dir / "model.gguf");
  EXPECT_EQ(scaled.config().quantization, "NVFP4 with factors of products");
  for (const TensorEntry& tensor : scaled.tensors())
    EXPECT_EQ(tensor.factors, tensor.name == "model.layers.0.self_attn.q_proj.weight"
                                  ? std::vector<float>{0.3f}
                                  : std::vector<float>())
        << tensor.name;
  for (const auto& [name, factor, shape, says] : std::initializer_list<
           std::tuple<const char*, std::vector<float>, std::vector<std::int64_t>, const char*>>{
           {"blk.0.attn_q.scale", {1, 2}, {2}, "its part 'blk.0.attn_q.scale' is 'F32' [2]"},
           {"blk.0.attn_q.scale", {0}, {1}, "is not finite and above zero"},
           {"blk.0.attn_q.scale", {-1}, {1}, "is not finite and above zero"},
           {"blk.0.attn_q.scale", {INFINITY}, {1}, "is not finite and above zero"},
           {"token_embd.scale", {2}, {1}, "its rows are no products"},
           {"blk.0.attn_norm.scale", {2}, {1}, "tensor 'blk.0.attn_norm.scale' is not part"}}) {
    const std::string error = write_with(name, factor, shape);
    EXPECT_NE(error.find(says), std::string::npos) << "'" << error << "' lacks " << says;
  }
}

TEST(Checkpoint, TakesTheTypesThatConvertersGiveRowsWhichTheWantedOneDoesNotFit) {
  TinyOptions options;
  options.dim = 96;         // of no K type
  options.hidden_dim = 40;  // and of no block
  options.head_dim = 24;
  TinyModel model = tiny_model(options);
  constexpr std::array kFallbacks{DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_0,
                                  DType::kIQ4_NL};
  std::mt19937_64 random(1);
  std::size_t next = 0;
  for (FileTensor& tensor : model.tensors)
    if (tensor.shape.size() == 2)
      tensor = random_tensor(
          tensor.name, tensor.shape[1] == 40 ? DType::kF16 : kFallbacks[next++ % kFallbacks.size()],
          tensor.shape, random, 0, 0.1f);
  const TempDir dir;
  write_file(dir / "model.gguf", gguf_writer(model).bytes());
  const Checkpoint opened = Checkpoint::open(dir / "model.gguf");
  for (const FileTensor& tensor : model.tensors)
    if (tensor.shape.size() == 2) {
      EXPECT_EQ(opened.find(tensor.name)->dtype, tensor.dtype) << tensor.name;
    }
}

TEST(Checkpoint, NamesTheSchemeThatAFileNextToTheConfigGivesTheWeights) {
  const TempDir dir;
  TinyModel model = tiny_model();
  write_hugging_face(dir.path(), model);
  const auto error_with = [&](std::string_view file) {
    dir.write("hf_quant_config.json", file);
    return error_of_open(dir.path());
  };
  EXPECT_TRUE(mentions(error_with(R"({"producer": {"name": "modelopt"},
                                      "quantization": {"quant_algo": "FP8"}})"),
                       "quantised by ModelOpt (\"FP8\") (file hf_quant_config.json)"));
  for (const char* none :
       {R"({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})", "{}",
        R"({"quantization": null})", "[]"})
    EXPECT_EQ(error_with(none), "");
  EXPECT_TRUE(mentions(error_with("{"), "hf_quant_config.json"));
}

/// Expects all that Checkpoint promises, looked up in its files.
void expect_consistent(const Checkpoint& model) {
  std::vector<TensorEntry> tensors = model.tensors();
  for (const TensorEntry& t : tensors) {
    ASSERT_LT(static_cast<std::size_t>(t.file), model.files().size());
    ASSERT_EQ(t.bytes, tensor_bytes(t.dtype, t.shape));
    const auto file_bytes =
        std::filesystem::file_size(model.files()[static_cast<std::size_t>(t.file)]);
    ASSERT_LE(t.bytes, file_bytes);
    ASSERT_LE(t.offset, file_bytes - t.bytes);
  }
  require_disjoint(tensors);
  const ModelConfig& c = model.config();
  for (const int size :
       {c.layers, c.dim, c.hidden_dim, c.heads, c.kv_heads, c.head_dim, c.vocab, c.max_positions})
    ASSERT_GE(size, 1);
  ASSERT_EQ(c.heads % c.kv_heads, 0);
  ASSERT_GT(c.norm_eps, 0);
  ASSERT_EQ(c.rope_inverse_frequency.size(), static_cast<std::size_t>(c.head_dim / 2));
  for (const float frequency : c.rope_inverse_frequency) ASSERT_TRUE(std::isfinite(frequency));
  for (const TokenId id : c.end_tokens) ASSERT_TRUE(id >= 0 && id < c.vocab);
  lay_out_sweep(model);  // throws where a tensor that the sweep needs is missing or misshapen
}

TEST(Checkpoint, OpensEveryFamilyAlikeFromDirectoriesShardsAndGguf) {
  for (const std::string family : {"llama", "mistral", "qwen2", "qwen3"}) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(family + (tied ? ", tied" : ""));
      TinyOptions options;
      options.family = family;
      options.tied = tied;
      TinyModel written = tiny_model(options);
      const TempDir dir;
      write_hugging_face(dir / "whole", written, 1, 3);
      write_hugging_face(dir / "shards", written, 3, 1);
      write_file(dir / "model.gguf", gguf_writer(written).bytes());
      const Checkpoint whole = Checkpoint::open(dir / "whole"),
                       shards = Checkpoint::open(dir / "shards"),
                       gguf = Checkpoint::open(dir / "model.gguf");
      for (const Checkpoint* model : {&whole, &shards, &gguf}) {
        expect_consistent(*model);
        EXPECT_EQ(model->config().tied_head, tied);
        EXPECT_EQ(model->config().rope_inverse_frequency, whole.config().rope_inverse_frequency);
        EXPECT_EQ(model->config().end_tokens, whole.config().end_tokens);
        ASSERT_EQ(model->tensors().size(), written.tensors.size());
        for (const FileTensor& tensor : written.tensors) {
          const TensorEntry* entry = model->find(tensor.name);
          ASSERT_TRUE(entry) << tensor.name;
          EXPECT_EQ(entry->shape, tensor.shape);
          if (model == &gguf) continue;  // vectors are F32 there, and Q and K are interleaved
          const std::string file = read_file(model->files()[static_cast<std::size_t>(entry->file)]);
          EXPECT_EQ(file.substr(entry->offset, entry->bytes), tensor.bytes);
        }
      }
      EXPECT_EQ(gguf.config().rope_adjacent_pairs, family == "llama" || family == "mistral");
      EXPECT_EQ(shards.files().size(), 3u);
    }
  }
}

TEST(Checkpoint, GenerationConfigSaysWhereTextEnds) {
  const TempDir dir;
  write_hugging_face(dir.path(), tiny_model());
  write_file(dir / "generation_config.json", R"({"eos_token_id": [5, 6]})");
  EXPECT_EQ(Checkpoint::open(dir.path()).config().end_tokens, (std::vector<TokenId>{5, 6}));
  write_file(dir / "generation_config.json", R"({"eos_token_id": )");
  EXPECT_TRUE(mentions(error_of_open(dir.path()), "generation_config.json"));
}

TEST(Checkpoint, SaysOfWhichFileAnEndTokenIs) {
  const TempDir dir;
  write_hugging_face(dir.path(), tiny_model());
  write_file(dir / "generation_config.json", R"({"eos_token_id": [2, -1]})");
  const ModelConfig config = Checkpoint::open(dir.path()).config();
  EXPECT_EQ(config.end_tokens, (std::vector<TokenId>{2}));
  ASSERT_EQ(config.notes.size(), 1u);
  EXPECT_TRUE(mentions(config.notes[0], "generation_config.json: key 'eos_token_id' has -1"));
  write_file(dir / "generation_config.json", R"({"eos_token_id": ["x"]})");
  EXPECT_TRUE(mentions(error_of_open(dir.path()), "/generation_config.json"));
  EXPECT_FALSE(mentions(error_of_open(dir.path()), "/config.json"));
}

TEST(Checkpoint, TakesPythonsLiteralsInKeysThatNothingReads) {
  const TempDir dir;
  write_hugging_face(dir.path(), tiny_model());
  const std::string config = read_file(dir / "config.json");
  const auto with = [&](const std::string& members) {
    write_file(dir / "config.json", "{" + members + "," + config.substr(config.find('{') + 1));
  };
  with(R"("a": NaN, "b": [Infinity, -Infinity], "c \" NaN": "NaN \" Infinity")");
  const Checkpoint model = Checkpoint::open(dir.path());
  EXPECT_EQ(*model.metadata().find<std::string>("c \" NaN"), "NaN \" Infinity");
  with(R"("a": NaN1)");
  EXPECT_TRUE(mentions(error_of_open(dir.path()), "not JSON"));
  write_file(dir / "config.json", [&] {
    nlohmann::json changed = nlohmann::json::parse(config);
    changed["rms_norm_eps"] = "@";
    std::string text = changed.dump();
    return text.replace(text.find("\"@\""), 3, "Infinity");
  }());
  EXPECT_TRUE(mentions(error_of_open(dir.path()), "'rms_norm_eps' is not a number"));
}

TEST(Checkpoint, NamesTheTensorThatIsNoWeightWhateverItsDtype) {
  for (const std::string dtype : {"I64", "BOOL", "F64", "U8"}) {
    const TempDir dir;
    write_hugging_face(dir.path(), tiny_model());
    std::string file = read_file(dir / "model.safetensors");
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), 8);
    nlohmann::json header = nlohmann::json::parse(file.substr(8, header_bytes));
    const std::size_t data = file.size() - 8 - header_bytes;
    header["model.position_ids"] = {
        {"dtype", dtype}, {"shape", {1, 8}}, {"data_offsets", {data, data + 8}}};
    const std::string text = header.dump();
    std::string changed;
    append<std::uint64_t>(changed, text.size());
    write_file(dir / "model.safetensors",
               changed + text + file.substr(8 + header_bytes) + std::string(8, 'x'));
    const std::string error = error_of_open(dir.path());
    EXPECT_TRUE(mentions(error, "tensor 'model.position_ids' is not part of a llama model"));
    EXPECT_FALSE(mentions(error, dtype));
  }
}

TEST(Checkpoint, NamesADtypeThatItDoesNotReadWithTheWeight) {
  for (const std::string dtype : {"F64", "I8", "I64", "BOOL", "F4", "Q4_0", "bf16", "U9", ""}) {
    const TempDir dir;
    write_hugging_face(dir.path(), tiny_model());
    std::string file = read_file(dir / "model.safetensors");
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), 8);
    nlohmann::json header = nlohmann::json::parse(file.substr(8, header_bytes));
    header["model.layers.1.mlp.up_proj.weight"]["dtype"] = dtype;
    const std::string text = header.dump();
    std::string changed;
    append<std::uint64_t>(changed, text.size());
    write_file(dir / "model.safetensors", changed + text + file.substr(8 + header_bytes));
    const std::string error = error_of_open(dir.path());
    EXPECT_TRUE(mentions(error, "'model.layers.1.mlp.up_proj.weight' has dtype '" + dtype +
                                    "', which is not supported"));
    EXPECT_TRUE(mentions(error, "or as a GGUF file"));
  }
}

TEST(Checkpoint, NamesATensorThatIsMissing) {
  const TinyModel whole = tiny_model();
  for (std::size_t i = 0; i < whole.tensors.size(); ++i) {
    TinyModel model = whole;
    model.tensors.erase(model.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    const std::string error = error_of_model(model);
    EXPECT_TRUE(mentions(error, "'" + whole.tensors[i].name + "'"));
    EXPECT_TRUE(mentions(error, "is missing"));
  }
}

TEST(Checkpoint, NamesATensorOfAnotherShape) {
  const TinyModel whole = tiny_model();
  for (const FileTensor& tensor : whole.tensors) {
    TinyModel model = whole;
    std::vector<std::int64_t>& shape = model.at(tensor.name).shape;
    shape.insert(shape.begin(), 1);
    EXPECT_TRUE(mentions(error_of_model(model), "tensor '" + tensor.name + "' has shape"));
  }
}

TEST(Checkpoint, RefusesQuantisedNormsAndBiases) {
  TinyOptions options;
  options.family = "qwen2";
  for (const char* name : {"model.norm.weight", "model.layers.1.input_layernorm.weight",
                           "model.layers.0.self_attn.q_proj.bias"}) {
    TinyModel model = tiny_model(options);
    std::mt19937_64 random(1);
    model.at(name) = random_tensor(name, DType::kQ8_0, {64}, random, 0, 1);
    const TempDir dir;
    write_file(dir / "model.gguf", gguf_writer(model).bytes());
    EXPECT_TRUE(mentions(error_of_open(dir / "model.gguf"), "'" + std::string(name) + "'"));
    EXPECT_TRUE(mentions(error_of_open(dir / "model.gguf"), "norms and biases must be"));
  }
}

TEST(Checkpoint, RefusesTensorsThatItWouldNotUse) {
  std::mt19937_64 random(1);
  for (const char* name :
       {"model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.o_proj.bias",
        "model.layers.0.self_attn.q_norm.weight", "model.layers.2.input_layernorm.weight",
        "model.layers.0.mlp.experts.0.gate_proj.weight", "lora.a", ""}) {
    TinyModel model = tiny_model();
    model.tensors.push_back(random_tensor(name, DType::kF32, {64}, random, 0, 1));
    EXPECT_TRUE(mentions(error_of_model(model),
                         "tensor '" + std::string(name) + "' is not part of a llama model"));
  }
}

TEST(Checkpoint, LeavesOutTensorsThatChangeNothing) {
  std::mt19937_64 random(1);
  TinyOptions options;
  options.tied = true;
  TinyModel model = tiny_model(options);
  const std::size_t used = model.tensors.size();
  FileTensor head = model.at("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  model.tensors.push_back(head);
  model.tensors.push_back(random_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32,
                                        {8}, random, 0, 1));
  const TempDir dir;
  write_hugging_face(dir.path(), model);
  const Checkpoint opened = Checkpoint::open(dir.path());
  EXPECT_EQ(opened.tensors().size(), used);
  EXPECT_TRUE(opened.config().tied_head);
  EXPECT_EQ(opened.config().notes, Notes());
}

TEST(Checkpoint, SaysWhatAPathLacks) {
  const TempDir dir;
  EXPECT_TRUE(mentions(error_of_open(dir / "gone.gguf"), "gone.gguf"));
  EXPECT_TRUE(mentions(error_of_open(dir.path()), "has no config.json"));
  EXPECT_TRUE(mentions(error_of_open(dir / "model.safetensors"), "give the directory"));
  EXPECT_TRUE(mentions(error_of_open("/dev/zero"), "not a regular file"));
  EXPECT_TRUE(mentions(error_of_open(dir / std::string(5000, 'x')), "File name too long"));
  write_hugging_face(dir.path(), tiny_model());
  write_file(dir / "config.json", std::string(1 << 20, '['));
  EXPECT_TRUE(mentions(error_of_open(dir.path()), "nested deeper than"));
  write_file(dir / "config.json", "\xff\xfe");
  EXPECT_TRUE(mentions(error_of_open(dir.path()), "config.json"));
  std::filesystem::resize_file(dir / "config.json", std::uint64_t{1} << 32);  // a hole
  EXPECT_TRUE(mentions(error_of_open(dir.path()), "more than the 4194304"));
}

/// One random change of bytes [0, end) of a file: what disks, downloads and attackers do.
std::string damaged(std::string file, std::size_t end, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::size_t at = below(end);
  switch (below(6)) {
    case 0:
    case 1:
      for (std::size_t flips = 1 + below(3); flips > 0; --flips)
        file[below(end)] ^= static_cast<char>(1 << below(8));
      break;
    case 2:
      file[at] = static_cast<char>(random());
      break;
    case 3: {  // a number at the edge of its type
      static constexpr std::uint64_t kEdges[] = {0, 1, 0x7fffffff, 0xffffffff, ~0ull >> 1, ~0ull};
      const std::uint64_t edge = kEdges[below(6)];
      std::memcpy(&file[at], &edge, std::min<std::size_t>(below(2) ? 4 : 8, end - at));
      break;
    }
    case 4:
      file.resize(at);
      break;
    default: {  // a stretch is lost, or another put in
      const std::string stretch = file.substr(below(end), 1 + below(16));
      below(2) ? file.insert(at, stretch) : file.erase(at, stretch.size());
    }
  }
  return file;
}

/// Damages `file` in `cases` ways and opens `model` each time: it must be consistent or an Error,
/// and no allocation may exceed what the files themselves hold.
void survive(const std::filesystem::path& model, const std::filesystem::path& file,
             std::size_t header_bytes, int cases) {
  // Besides a file's own bytes: buffers of streams, and tables of a few hundred bytes per tensor.
  constexpr std::size_t kAllowance = 64 << 10;
  const std::string whole = read_file(file);
  int opened = 0, refused = 0;
  for (int seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const std::string bytes = damaged(whole, header_bytes, random);
    write_file(file, bytes);
    largest_allocation = 0;
    try {
      const Checkpoint checkpoint = Checkpoint::open(model);
      ASSERT_LE(largest_allocation, whole.size() + kAllowance);
      ASSERT_NO_FATAL_FAILURE(expect_consistent(checkpoint));
      ++opened;
    } catch (const Error& e) {
      ASSERT_LE(largest_allocation, whole.size() + kAllowance) << e.what();
      ASSERT_NE(std::string_view(e.what()).find(model.string()), std::string_view::npos)
          << e.what();
      ++refused;
    }
  }
  // The test means something: some damage is harmless (a name in metadata), most is not.
  EXPECT_GT(opened, 0);
  EXPECT_GT(refused, cases / 3);
}

/// Thousands of files a second: in memory where the system has such a place.
std::filesystem::path fast_directory() {
  const std::filesystem::path memory = "/dev/shm";
  return std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
}

TinyModel smallest_model() {
  TinyOptions options;
  options.layers = 1;
  options.dim = options.hidden_dim = 32;
  options.heads = 2;
  options.kv_heads = 1;
  options.vocab = 16;
  return tiny_model(options);
}

std::size_t safetensors_header_bytes(const std::filesystem::path& file) {
  std::uint64_t length;
  std::memcpy(&length, read_file(file).data(), sizeof length);
  return sizeof length + static_cast<std::size_t>(length);
}

TEST(DamagedCheckpoint, SafetensorsHeadersOpenConsistentlyOrAreRefused) {
  const TempDir dir(fast_directory());
  write_hugging_face(dir.path(), smallest_model());
  const auto file = dir / "model.safetensors";
  survive(dir.path(), file, safetensors_header_bytes(file), 3000);
}

TEST(DamagedCheckpoint, GgufHeadersOpenConsistentlyOrAreRefused) {
  const TempDir dir(fast_directory());
  const GgufWriter writer = gguf_writer(smallest_model());
  write_file(dir / "model.gguf", writer.bytes());
  survive(dir / "model.gguf", dir / "model.gguf", writer.header().size(), 3000);
}

TEST(DamagedCheckpoint, ConfigsOpenConsistentlyOrAreRefused) {
  const TempDir dir(fast_directory());
  write_hugging_face(dir.path(), smallest_model());
  const auto file = dir / "config.json";
  survive(dir.path(), file, read_file(file).size(), 3000);
}

TEST(DamagedCheckpoint, IndexesOpenConsistentlyOrAreRefused) {
  const TempDir dir(fast_directory());
  write_hugging_face(dir.path(), smallest_model(), 2);
  const auto file = dir / "model.safetensors.index.json";
  survive(dir.path(), file, read_file(file).size(), 2000);
}

}  // namespace
}  // namespace canopy::testing
