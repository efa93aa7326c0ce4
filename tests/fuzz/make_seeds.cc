// Writes the seeds of tests/fuzz/corpus that are no files of tests/data: fuzz_make_seeds FOLDER.
#include <algorithm>

#include "planner/acceptance_file.h"
#include "planner/learned_acceptance.h"
#include "src/base/formats/grouped_format.h"
#include "src/checkpoint/packed_tensors.h"
#include "src/convert/pack/pack_row.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/fp8_files.h"
#include "tests/checkpoint/heads_file.h"
#include "tests/planner/made_up.h"

namespace canopy::testing {
namespace {

std::filesystem::path g_folder;

void seed(const std::string& target, const std::string& name, std::string_view bytes) {
  std::filesystem::create_directories(g_folder / target);
  write_file(g_folder / target / name, bytes);
}

void seeds_of_gguf() {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    TinyOptions small{
        .family = family, .layers = 1, .dim = 32, .hidden_dim = 32, .heads = 2, .kv_heads = 1};
    small.vocab = 8;
    small.tied = family[0] == 'l';
    small.matrices = family[0] == 'l' ? DType::kQ4_0 : DType::kBF16;
    seed("gguf", std::string(family) + ".gguf", gguf_writer(tiny_model(small)).bytes());
  }
  GgufWriter all;  // a value of each type
  for (std::uint32_t type = 0; type <= 7; ++type)
    all.raw(std::string("k").append(std::to_string(type)), type,
            std::string(1 << (type < 2 || type == 7 ? 0
                              : type < 4            ? 1
                                                    : 2),
                        '\1'));
  all.text("text", "caf\u00e9");
  all.texts("texts", {"a", "", "bc"});
  all.u64("u64", 7);
  all.numbers<float>("floats", 6, {1.5f, -2});
  all.numbers<std::uint8_t>("flags", 7, {0, 1});
  all.numbers<std::int64_t>("wide", 11, {-1, 1});
  all.alignment = 64;
  std::mt19937_64 random(1);
  all.tensor(random_tensor("a", DType::kF32, {2, 3}, random, 0, 1));
  for (const WeightFormat& format : as_data(GgufBlocks()))
    all.tensor(random_tensor(format.name, format.dtype, {2, format.block_elements}, random, 0, 1));
  seed("gguf", "types.gguf", all.bytes());

  GgufWriter scaled = gguf_writer(tiny_model({.layers = 1,
                                              .dim = 32,
                                              .hidden_dim = 32,
                                              .heads = 2,
                                              .kv_heads = 1,
                                              .vocab = 8,
                                              .tied = true,
                                              .matrices = DType::kQ4_0}));
  scaled.text("llama.rope.scaling.type", "yarn");
  scaled.f32("llama.rope.scaling.factor", 4);
  scaled.f32("llama.rope.scaling.yarn_attn_factor", 1.5f);
  scaled.f32("llama.rope.freq_base_swa", 10000);
  scaled.f32("llama.attention.scale", 0.25f);
  scaled.f32("llama.final_logit_softcapping", 0);
  scaled.boolean("llama.attention.causal", 1);
  scaled.numbers<float>("llama.swiglu_clamp_exp", 6, {0});
  seed("gguf", "scaled.gguf", scaled.bytes());
}

/// Mixtures, whose experts are stacked, and Mistral 3, whose queries grow.
void seeds_of_gguf_families() {
  TinyModel model = tiny_model({.layers = 1,
                                .dim = 8,
                                .hidden_dim = 8,
                                .heads = 2,
                                .kv_heads = 1,
                                .head_dim = 4,
                                .vocab = 8});
  model.config["model_type"] = "mistral3";
  GgufWriter mistral = gguf_writer(model);
  mistral.f32("mistral3.attention.temperature_scale", 0.1f);
  mistral.text("mistral3.rope.scaling.type", "yarn");
  mistral.f32("mistral3.rope.scaling.factor", 4);
  mistral.f32("mistral3.rope.scaling.yarn_log_multiplier", 1);
  mistral.u32("mistral3.rope.scaling.original_context_length", 32);
  seed("gguf", "mistral3.gguf", mistral.bytes());

  std::erase_if(model.tensors, [](const FileTensor& tensor) {
    return tensor.name.find("mlp.") != tensor.name.npos;
  });
  std::mt19937_64 random(2);
  const auto add = [&](const std::string& name, DType type, std::vector<std::int64_t> shape) {
    model.tensors.push_back(random_tensor(name, type, std::move(shape), random, 0, 1));
  };
  add("blk.0.ffn_gate_inp.weight", DType::kF32, {3, 8});
  for (const char* matrix : {"gate", "up", "down"})
    add(std::string("blk.0.ffn_") + matrix + "_exps.weight", DType::kBF16, {3, 8, 8});
  for (const std::string arch : {"llama", "qwen3moe", "olmoe"}) {
    model.config["model_type"] = arch;
    TinyModel own = model;
    if (arch != "llama")
      for (const char* norm : {"q", "k"}) {
        const std::int64_t heads = arch == "qwen3moe" ? 1 : norm[0] == 'q' ? 2 : 1;
        own.tensors.push_back(random_tensor(std::string("blk.0.attn_") + norm + "_norm.weight",
                                            DType::kF32, {4 * heads}, random, 1, 0));
      }
    GgufWriter mixture = gguf_writer(own);
    mixture.u32(arch + ".expert_count", 3);
    mixture.u32(arch + ".expert_used_count", 2);
    mixture.u32(arch + ".expert_feed_forward_length", 8);
    seed("gguf", "mixture_" + arch + ".gguf", mixture.bytes());
  }
}

void seeds_of_fp8() {
  std::mt19937_64 random(4);
  for (const Fp8Form& form : kFp8Forms) {
    FileTensor matrix =
        random_tensor("model.layers.0.mlp.up_proj.weight", DType::kF32, {130, 5}, random, 0, 1);
    std::vector<FileTensor> tensors;
    append_fp8(matrix, form, tensors);
    seed("fp8", std::string(form.name) + ".safetensors", safetensors_bytes(tensors));
    nlohmann::json config = tiny_model().config;
    config["quantization_config"] = fp8_config(form);
    if (form.scales != Fp8Scales::kTensor || form.compressed_tensors)
      seed("config", std::string("fp8_") + form.name + ".json", config.dump());
  }
}

void seeds_of_configs() {
  nlohmann::json config = tiny_model().config;
  config["rope_scaling"] = config["rope_parameters"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  config.update({{"sliding_window", 128},
                 {"logit_scale", 1.0},
                 {"query_pre_attn_scalar", 16},
                 {"is_causal", true},
                 {"no_rope_layers", {1, 1}},
                 {"eos_token_id", {2, -1}}});
  seed("config", "neutral.json", config.dump());
  config["quantization"] = {{"group_size", 64}, {"bits", 4}};
  seed("config", "quantised.json", config.dump());
}

void seeds_of_tokenizers() {
  GgufWriter bytes;
  std::vector<std::string> tokens{"<s>",    "</s>", "H",  "e",  "l",   "o",
                                  "\u0120", "w",    "He", "ll", "Hell"};
  bytes.text("tokenizer.ggml.model", "gpt2");
  bytes.text("tokenizer.ggml.pre", "llama-bpe");
  bytes.texts("tokenizer.ggml.tokens", tokens);
  bytes.numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  bytes.texts("tokenizer.ggml.merges", {"H e", "l l", "He ll"});
  bytes.u32("tokenizer.ggml.bos_token_id", 0);
  bytes.u32("tokenizer.ggml.eos_token_id", 1);
  bytes.text("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}");
  seed("tokenizer_gguf", "bytes.gguf", bytes.bytes());
  GgufWriter tekken;
  tekken.text("tokenizer.ggml.model", "gpt2");
  tekken.text("tokenizer.ggml.pre", "tekken");
  tekken.texts("tokenizer.ggml.tokens", tokens);
  tekken.texts("tokenizer.ggml.merges", {"H e", "l l", "He ll"});
  tekken.u32("tokenizer.ggml.eot_token_id", ~0u);
  seed("tokenizer_gguf", "tekken.gguf", tekken.bytes());
  GgufWriter pieces;
  tokens = {"<unk>", "<s>", "</s>", "\u2581", "H", "e", "l", "o", "\u2581He", "ll", "<0x0A>", "He"};
  pieces.text("tokenizer.ggml.model", "llama");
  pieces.texts("tokenizer.ggml.tokens", tokens);
  pieces.numbers<float>("tokenizer.ggml.scores", 6, {0, 0, 0, -1, -2, -3, -4, -5, -6, -7, 0, -2});
  pieces.numbers<std::int32_t>("tokenizer.ggml.token_type", 5,
                               {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 6, 1});
  pieces.u32("tokenizer.ggml.bos_token_id", 1);
  pieces.u32("tokenizer.ggml.eos_token_id", 2);
  pieces.boolean("tokenizer.ggml.add_space_prefix", 1);
  seed("tokenizer_gguf", "pieces.gguf", pieces.bytes());
}

/// vocab.json, merges.txt and tokenizer_config.json in a row.
void seeds_of_vocab_merges() {
  const std::string zero(1, '\0'), merges = "#version: 0.2\nH e\nl l\r\nHe ll\n";
  const std::string vocab = R"({"<s>":0,"</s>":1,"H":2,"e":3,"l":4,"o":5,"\u0120":6,"w":7,)"
                            R"("He":8,"ll":9,"Hell":10})";
  seed("vocab_merges", "named",
       vocab + zero + merges + zero +
           R"({"tokenizer_class":"GPT2Tokenizer","add_bos_token":true,"bos_token":"<s>",)"
           R"("eos_token":{"__type":"AddedToken","content":"</s>","lstrip":true}})");
  seed("vocab_merges", "by_id",
       vocab + zero + merges + zero +
           R"({"tokenizer_class":"GPT2TokenizerFast","add_prefix_space":true,"eos_token":"</s>",)"
           R"("added_tokens_decoder":{"1":{"content":"</s>","special":true},)"
           R"("11":{"content":"<new>","rstrip":true,"normalized":false}}})");
}

/// tekken.json with all bytes and two longer tokens, with a list of special tokens and without.
void seeds_of_tekken() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string vocab;
  for (std::size_t byte = 0; byte < 256; ++byte)
    vocab.append(R"({"rank":)" + std::to_string(byte) + R"(,"token_bytes":")")
        .append({kDigits[byte >> 2], kDigits[(byte & 3) << 4]})
        .append("==\"},");
  vocab += R"({"rank":256,"token_bytes":"YWE="},{"rank":257,"token_bytes":"SGVsbG8="})";
  const auto file = [&](const std::string& size, const std::string& version) {
    return R"({"vocab":[)" + vocab + R"(],"config":{"pattern":"\\s*[\\r\\n]+|\\S+|\\s+",)" +
           R"("default_vocab_size":)" + size + R"(,"version":")" + version + "\",";
  };
  seed("tekken", "unlisted", file("278", "v3") + R"("default_num_special_tokens":20}})");
  seed("tekken", "listed",
       file("263", "v13") + R"("default_num_special_tokens":6},"special_tokens":[)" +
           R"({"rank":0,"token_str":"<unk>","is_control":true},{"rank":1,"token_str":"<s>"},)" +
           R"({"rank":2,"token_str":"</s>"},{"rank":3,"token_str":"[INST]"}]})");
}

/// Returns a safetensors file with what it says of its tensors.
std::string described(const std::string& file,
                      const std::vector<std::pair<std::string, packed::Description>>& tensors) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  auto header = nlohmann::ordered_json::parse(file.substr(8, length));
  header["__metadata__"][std::string(packed::kDescriptions)] = packed::to_text(tensors);
  return safetensors_with_header(header.dump(), 0) + file.substr(8 + length);
}

/// Returns a file of "w", packed, 3 rows of 70 columns with exceptions, and of a norm.
template <class Format>
std::string packed_file() {
  constexpr std::int64_t kRows = 3, kColumns = 70;
  std::mt19937_64 random(1);
  std::vector<std::uint32_t> offsets{0};
  std::string payload;
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::vector<std::uint16_t> values;
    for (std::int64_t i = 0; i < kColumns; ++i)
      values.push_back(static_cast<std::uint16_t>(
          i % 9 == 0 ? random() & 0x7fff : bf16_from_f32(0.01f * static_cast<float>(i + 1))));
    std::vector<std::byte> packed;
    if (!pack_row(Format(), values, packed)) throw Error("a row that is not packed");
    payload.append(reinterpret_cast<const char*>(packed.data()), packed.size());
    offsets.push_back(static_cast<std::uint32_t>(payload.size() / kPackedAlignment));
  }
  const std::string places(reinterpret_cast<const char*>(offsets.data()),
                           offsets.size() * sizeof offsets[0]);
  const auto stored = static_cast<std::int64_t>(payload.size());
  const std::string file =
      safetensors_bytes({{"w.packed", DType::kU8, {stored}, payload},
                         {"w.row_offsets", DType::kU32, {kRows + 1}, places},
                         {"canopy.pad.0", DType::kU8, {4}, std::string(4, '\0')},
                         random_tensor("norm", DType::kF32, {7}, random, 0, 1)});
  return described(file, {{"w", {Format::kCodec, {kRows, kColumns}, 7}}, {"norm", {"", {}, 9}}});
}

/// Returns a file of an FP8 matrix of 130 rows and 70 columns, packed, and its scales.
std::string packed_fp8_file(const Fp8Form& form) {
  std::mt19937_64 random(3);
  FileTensor matrix =
      random_tensor("model.layers.0.mlp.up_proj.weight", DType::kF32, {130, 70}, random, 0, 1);
  std::vector<FileTensor> tensors;
  append_fp8(matrix, form, tensors);
  const FileTensor codes = tensors.front();
  std::vector<std::uint32_t> offsets{0};
  std::vector<std::byte> payload;
  for (std::size_t at = 0; at < codes.bytes.size(); at += 70) {
    const std::span row(reinterpret_cast<const std::uint8_t*>(&codes.bytes[at]), 70);
    if (!pack_row(format::LevelsE4M3Rows(), row, payload)) throw Error("a row that is not packed");
    offsets.push_back(static_cast<std::uint32_t>(payload.size() / kPackedAlignment));
  }
  const auto text = [](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  tensors.front() = {codes.name + ".packed", DType::kU8, {std::ssize(payload)}, text(payload)};
  tensors.push_back(
      {codes.name + ".row_offsets", DType::kU32, {std::ssize(offsets)}, text(offsets)});
  return described(safetensors_bytes(tensors),
                   {{codes.name, {format::LevelsE4M3Rows::kCodec, {130, 70}, 7}}});
}

/// Returns a file of "w", 3 rows of 64 columns in three groups that are no runs of columns.
std::string grouped_file() {
  constexpr std::int64_t kRows = 3, kColumns = 64;
  std::mt19937_64 random(2);
  std::vector<std::int32_t> of;
  for (std::int32_t k = 0; k < kColumns; ++k) of.push_back(k * 7 % 3);
  const GroupedFormat& format = *find_grouped_format(DType::kI4Grouped);
  const Companion groups = companion_of_groups(format, of, kRows);
  std::string payload(groups.place_of_rows(0, kRows).bytes, '\0');
  for (char& byte : payload) byte = static_cast<char>(random() & 0x3f);
  const std::span bytes = groups.bytes();
  const std::string companion(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return described(
      safetensors_bytes({{"w.packed", DType::kU8, {std::ssize(payload)}, payload},
                         {"w.groups", DType::kU8, {std::ssize(companion)}, companion}}),
      {{"w", {format.codec, {kRows, kColumns}, 7}}});
}

void seeds_of_safetensors() {
  TinyOptions small{
      .layers = 1, .dim = 8, .hidden_dim = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .vocab = 8};
  seed("safetensors", "model.safetensors", safetensors_bytes(tiny_model(small).tensors));
  seed("safetensors", "packed.safetensors", packed_file<format::PackedBF16>());
  seed("safetensors", "levels.safetensors", packed_file<format::LevelsBF16>());
  seed("safetensors", "grouped.safetensors", grouped_file());
  for (const Fp8Form& form : {kFp8Forms[0], kFp8Forms[2], kFp8Forms[4], kFp8Forms[7]})
    seed("fp8", std::string("packed_") + form.name + ".safetensors", packed_fp8_file(form));
  seed("safetensors", "empty.safetensors", safetensors_with_header("{}", 0));
  seed(
      "index", "index.json",
      R"({"metadata":{"total_size":16},"weight_map":{"a":"model-0.safetensors","b":"model-1.safetensors"}})");
}

void seeds_of_heads() {
  const TempDir dir;
  const auto bytes = [&](const std::vector<FileTensor>& tensors) {
    return read_file(write_heads_file(dir / "heads.safetensors", tensors));
  };
  seed("heads", "blocks",
       bytes(heads_tensors({.heads = 2, .acceptance = {{0.5f, 0.25f}, {0.25f, 0.125f}}})));
  std::mt19937_64 random(1);
  seed("heads", "matrix",
       bytes({random_tensor("medusa_head.0.0.linear.weight", DType::kBF16, {32, 32}, random, 0, 1),
              random_tensor("medusa_head.0.1.weight", DType::kBF16, {97, 32}, random, 0, 1)}));
}

void seeds_of_plans() {
  seed("profile", "profile.json", to_json(made_up_profile()));
  MeasuredAcceptance measured{};
  measured.target = measured.draft = "0123456789abcdef";
  measured.drawing = "without replacement";
  measured.acceptance.accept = {.6, .2, .1};
  measured.acceptance.deeper = {{.7, .1, .05}};
  measured.standard_error = {.01, .01, .01};
  measured.positions = 1000;
  measured.examples = measured.texts = 10;
  seed("acceptance", "measured.json", to_json(measured));
  LearnedAcceptance learned;
  for (std::uint64_t text = 0; text < 2; ++text) {
    TextAcceptance shown;
    for (int i = 0; i < 20; ++i) shown.observe(i % 2, 3, i % 4 - 1);
    learned.add(text_fingerprint({}, {}) + text, shown);
  }
  seed("acceptance", "learned.json", learned.to_json());
  int number = 0;
  for (const char* shape :
       {"8x4", "4,2,1", "2-ary:64", "[-1, 0, 0, 1, 1, 2]", R"({"parents": [-1, 0, 1]})"})
    seed("tree_shape", std::to_string(number++), shape);
}

/// A text with a zero byte where `|` stands.
std::string with_zero(std::string text) {
  std::replace(text.begin(), text.end(), '|', '\0');
  return text;
}

void seed_all(const std::string& target, const std::vector<std::string>& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) seed(target, std::to_string(i), inputs[i]);
}

void seeds_of_patterns() {
  int number = 0;
  for (const char* input :
       {R"('s|it's)", R"((?i:'s)|'S)", R"(\p{L}+|cafe 2)", R"(\s+(?!\S)|a   b )",
        R"([^\r\n\p{L}\p{N}]?+\p{L}+|x y)", R"(\p{N}{1,3}|12345)", R"(^\w+$|ab cd)",
        R"(\bx\b|a x b)", R"((a+)+[bc]|aaaaaaaaaaaaaaaaaaaa)", R"((?=a)\S{2,5}?|abcdef)",
        R"([[:alpha:]_]+\u0041|aA)"})
    seed("pattern", std::to_string(number++), with_zero(input));
}

void seeds_of_schemas() {
  seed_all(
      "grammar",
      {R"({"type": "object", "properties": {"a": {"type": "string", "maxLength": 9},
               "b": {"type": "integer"}}, "required": ["a"]})",
       R"({"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 10.5},
               "minItems": 1, "maxItems": 3})",
       R"({"anyOf": [{"const": [1, {"a": null}]}, {"enum": ["x", "caf\u00e9", 1.5, true]}]})",
       R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties":
               {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}}})",
       R"({"type": ["integer", "null"], "exclusiveMinimum": -1000, "maximum": 123456789})",
       R"({"type": "object", "additionalProperties": {"type": "boolean"}})", "true",
       R"({"type": "string", "pattern": "^(?!\\.)(?=.*@)[\\w+-]{1,9}(?:\\.[^a-z]|\\u00e9)*?$"})",
       R"({"format": "email", "pattern": "@a\\.(com|org)$", "maxLength": 30})",
       R"({"type": "string", "allOf": [{"pattern": "^a.*"}, {"pattern": ".*z$"}]})"});
}

void seeds_of_the_server() {
  seed_all("http", {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                    "POST /x?a=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
                    "POST /stream HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
                    "POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
                    "3\r\nabc\r\n0\r\n\r\n",
                    "GET /a HTTP/1.1\r\n\r\nHEAD /stream HTTP/1.1\r\nConnection: close\r\n\r\n"});
  seed_all("api", {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
                 {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdefghi",
                  "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                 {"role": "tool", "tool_call_id": "abcdefghi", "content": "1"}],
               "tools": [{"type": "function", "function": {"name": "f", "parameters":
                 {"type": "object", "properties": {"a": {"type": "string"}}}}}],
               "tool_choice": "auto", "stream": true, "stream_options": {"include_usage": true}})",
                   R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type":
                "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
               "temperature": 0.7, "top_p": 0.9, "top_k": 40, "seed": 1, "logprobs": true, "n": 2})",
                   R"({"prompt": ["a", [1, 2]], "stop": ["x"], "logit_bias": {"5": -100},
               "presence_penalty": 1, "logprobs": 2, "max_tokens": 3})"});
  seed_all(
      "tool_calls",
      {"\x08text <tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\": [1]}}\n</tool_call> x",
       "\x09{\"name\": \"look\", \"parameters\": {\"a\": 1}}",
       "\x0e[{\"name\": \"look\", \"arguments\": {\"a\": 1}}]"});
  seed("chat_files", "named",
       R"({"chat_template": [{"name": "default", "template": "{{ messages }}"}, {"name": "tool_use",
          "template": "x"}], "bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  seed("trace", "names", with_zero("attention of layer 3|head rows 0..4095"));
}

void seeds_of_prompt_caches() {
  std::string block = R"("tokens": [0)";
  for (int i = 1; i < 64; ++i) block += ", 1";
  block += R"(], "xxh3": 0})";
  const std::string first = R"(b[{"parent": -1, )" + block;
  seed("prompt_cache", "chain", first + R"(, {"parent": 0, )" + block + "]");
  seed("prompt_cache", "fork", first + R"(, {"parent": -1, )" + block + with_zero("]|bytes"));
  seed("prompt_cache", "file", "fCANOPYKV");
}

}  // namespace
}  // namespace canopy::testing

int main(int count, char** words) {
  if (count != 2) return 2;
  using namespace canopy::testing;
  g_folder = words[1];
  seeds_of_gguf();
  seeds_of_gguf_families();
  seeds_of_configs();
  seeds_of_tokenizers();
  seeds_of_vocab_merges();
  seeds_of_tekken();
  seeds_of_safetensors();
  seeds_of_fp8();
  seeds_of_heads();
  seeds_of_plans();
  seeds_of_patterns();
  seeds_of_schemas();
  seeds_of_the_server();
  seeds_of_prompt_caches();
}
