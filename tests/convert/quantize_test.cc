#include "src/convert/quantize/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/convert/gguf/gguf_metadata.h"
#include "src/convert/safetensors/hf_files.h"
#include "src/convert/safetensors/safetensors_writer.h"
#include "src/convert/weight_rows.h"
#include "src/text/tokenizer.h"
#include "tests/convert/tiny_outputs.h"
#include "tests/error_of.h"
#include "tests/test_data.h"

namespace canopy {
namespace {

void ignore(std::uint64_t, std::uint64_t) {}

std::vector<float> row_of(WeightRows& rows, const TensorEntry& tensor, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(WeightRows::columns(tensor)));
  rows.read(tensor, row, values);
  return values;
}

class Quantize : public ::testing::TestWithParam<const char*> {
 protected:
  const TempDir dir_;
  const Checkpoint source_ = test::tiny_model(GetParam());
};

TEST_P(Quantize, KeepsTheConfig) {
  quantize(source_, dir_.path() / "q.gguf", DType::kQ8_0, ignore);
  const ModelConfig ours = Checkpoint::open(dir_.path() / "q.gguf").config(),
                    theirs = source_.config();
  const bool as_llama = theirs.architecture == "mistral" && theirs.layer(0).window == 0;
  const bool as_granite = theirs.architecture == "granitemoehybrid";
  EXPECT_EQ(ours.architecture, as_llama ? "llama" : as_granite ? "granite" : theirs.architecture);
  for (const auto member : {&ModelConfig::layers, &ModelConfig::dim, &ModelConfig::hidden_dim,
                            &ModelConfig::heads, &ModelConfig::kv_heads, &ModelConfig::head_dim,
                            &ModelConfig::vocab, &ModelConfig::max_positions})
    EXPECT_EQ(ours.*member, theirs.*member);
  EXPECT_EQ(ours.tied_head, theirs.tied_head);
  EXPECT_TRUE(ours.layer_kinds == theirs.layer_kinds);
  EXPECT_EQ(ours.kind_of_layer, theirs.kind_of_layer);
  EXPECT_TRUE(ours.experts == theirs.experts);
  EXPECT_EQ(ours.norm_eps, theirs.norm_eps);
  EXPECT_NEAR(ours.rope_magnitude, theirs.rope_magnitude, 1e-6f);
  EXPECT_EQ(ours.rope_of_kind.size(), theirs.rope_of_kind.size());
  EXPECT_EQ(ours.rope_magnitude_of_kind.size(), theirs.rope_magnitude_of_kind.size());
  EXPECT_TRUE(ours.form == theirs.form);
  EXPECT_TRUE(ours.xielu == theirs.xielu);
  const float unrounded = std::sqrt(static_cast<float>(theirs.dim));  // of Gemma
  EXPECT_EQ(ours.factors.embedding,
            theirs.form.mlp == MlpKind::kGeglu ? unrounded : theirs.factors.embedding);
  for (const auto member :
       {&DecoderFactors::branch, &DecoderFactors::logit, &DecoderFactors::logit_cap,
        &DecoderFactors::score, &DecoderFactors::score_cap})
    EXPECT_NEAR(ours.factors.*member, theirs.factors.*member, 1e-6f);
  ASSERT_EQ(ours.rope_inverse_frequency.size(), theirs.rope_inverse_frequency.size());
  for (std::size_t i = 0; i < ours.rope_inverse_frequency.size(); ++i)
    // Keys are f32, and frequency factors round twice more.
    EXPECT_NEAR(ours.rope_inverse_frequency[i], theirs.rope_inverse_frequency[i],
                1e-6f * theirs.rope_inverse_frequency[i]);
}

TEST_P(Quantize, KeepsEveryValueToHalfAStep) {
  const QuantizeReport report = quantize(source_, dir_.path() / "q.gguf", DType::kQ8_0, ignore);
  // No row of these is a multiple of 32 long: all stay at BF16.
  const std::string name = GetParam();
  EXPECT_EQ(report.same_function, name == "llama3" || name == "gemma4");
  const Checkpoint out = Checkpoint::open(dir_.path() / "q.gguf");
  EXPECT_EQ(out.config().query_beta, source_.config().query_beta);
  EXPECT_EQ(out.config().query_period, source_.config().query_period);
  EXPECT_NEAR(out.config().rope_magnitude, source_.config().rope_magnitude, 0x1p-23f);
  EXPECT_EQ(out.config().rope_original, source_.config().rope_original);
  const auto& wanted = source_.config().rope_long_frequency;
  const auto& written = out.config().rope_long_frequency;
  ASSERT_EQ(written.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(written[i], wanted[i], 4 * 0x1p-24f * wanted[i]) << i;  // four roundings
  WeightRows theirs(source_), ours(out);
  std::size_t seen = 0;
  for (const TensorEntry& tensor : out.tensors()) {
    const TensorEntry* source = source_.find(tensor.name);
    if (source == nullptr) {
      EXPECT_EQ(tensor.name, "rope_freqs.weight");
      continue;
    }
    ++seen;
    for (std::int64_t row = 0; row < WeightRows::rows(tensor); ++row) {
      const std::vector<float> expected = row_of(theirs, *source, row),
                               got = row_of(ours, tensor, row);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        float bound = std::abs(expected[i]) * 0x1p-8f;  // BF16
        if (tensor.dtype == DType::kF32 || tensor.dtype == source->dtype) bound = 0;
        if (tensor.dtype == DType::kQ8_0 && source->dtype != DType::kQ8_0) {
          float largest = 0;
          for (std::size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j)
            largest = std::max(largest, std::abs(expected[j]));
          bound = largest / 127 / 2 * (1 + 0x1p-10f);  // half a step, which f16 holds to 2^-11
        }
        ASSERT_LE(std::abs(expected[i] - got[i]), bound) << tensor.name << " row " << row;
      }
    }
  }
  // All but the head's spare copy, where the source ties it, and numbers that become metadata.
  std::size_t others = source_.find("rope_freqs.weight") ? 1 : 0;
  for (const TensorEntry& tensor : source_.tensors())
    others += tensor.name.find(".act_fn.") != std::string::npos ? 1 : 0;
  EXPECT_GE(seen + 1 + others, source_.tensors().size());
}

TEST_P(Quantize, CopiesWhatAlreadyHasTheType) {
  quantize(source_, dir_.path() / "first.gguf", DType::kQ8_0, ignore);
  const Checkpoint first = Checkpoint::open(dir_.path() / "first.gguf");
  const QuantizeReport report = quantize(first, dir_.path() / "second.gguf", DType::kQ8_0, ignore);
  EXPECT_EQ(report.same_function, true);
  EXPECT_EQ(report.relative_error, 0);
  const Checkpoint second = Checkpoint::open(dir_.path() / "second.gguf");
  WeightRows a(first), b(second);
  for (const TensorEntry& tensor : first.tensors())
    for (std::int64_t row = 0; row < WeightRows::rows(tensor); ++row)
      ASSERT_EQ(row_of(a, tensor, row), row_of(b, *second.find(tensor.name), row)) << tensor.name;
  quantize(first, dir_.path() / "third.gguf", DType::kQ4_0, ignore);
}

TEST_P(Quantize, WritesTheSameBytesWithAnyNumberOfThreads) {
  const std::filesystem::path one = dir_.path() / "one.gguf", five = dir_.path() / "five.gguf";
  const QuantizeReport alone = quantize(source_, one, DType::kQ4_0, ignore, 1);
  const QuantizeReport together = quantize(source_, five, DType::kQ4_0, ignore, 5);
  EXPECT_EQ(test::contents(one), test::contents(five));
  EXPECT_NEAR(alone.relative_error, together.relative_error, 1e-9);
  EXPECT_EQ(alone.same_function, together.same_function);
}

TEST(QuantizeRefusals, NameWhatGgufHasNoKeyFor) {
  const TempDir dir;
  for (const auto& [name, part] :
       {std::pair{"qwen2_window", "GGUF files of qwen2 have no key for windows"},
        {"gemma3", "GGUF files of gemma3 have no key for the factor of scores"},
        {"ernie4_5_moe", "its layers differ in size, for which Canopy writes no GGUF"}}) {
    const Checkpoint model = test::tiny_model(name);
    const std::string error =
        error_of([&] { quantize(model, dir.path() / "q.gguf", DType::kQ8_0, ignore); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Quantize,
    ::testing::Values(
        "llama2", "llama3", "llama_linear", "llama_yarn", "mistral", "qwen2", "qwen3", "smollm2",
        "llama.gguf", "llama3.gguf", "qwen2.gguf", "qwen3.gguf", "ministral3", "ministral3.gguf",
        "mistral3", "mistral3_tied", "seed_oss", "seed_oss.gguf", "mixtral", "mixtral.gguf",
        "qwen3_moe.gguf", "qwen3_moe_fp8", "olmoe", "olmoe.gguf", "qwen2_moe.gguf", "glm4_moe",
        "glm4_moe.gguf", "minimax_m2", "minimax_m2.gguf", "granitemoe", "granitemoe.gguf",
        "ernie4_5_moe.gguf", "dots1", "dots1.gguf", "gpt_oss.gguf", "gpt_oss_mxfp4.gguf",
        "mixtral_factors.gguf", "mistral_window", "phi3", "phi3.gguf", "phi3_longrope",
        "phi3_longrope.gguf", "gemma2.gguf", "gemma3.gguf", "gemma4", "gemma4.gguf", "exaone",
        "hunyuan", "hunyuan.gguf", "apertus", "apertus.gguf", "cohere_qk", "cohere_qk.gguf",
        "granite4", "olmo2", "olmo3", "olmo3.gguf", "exaone4", "exaone4_full", "glm4", "glm4.gguf",
        "granite", "granite.gguf", "smollm3", "cohere", "cohere2", "arcee", "nemotron",
        "starcoder2", "qwen3_5.gguf", "qwen3_5_moe.gguf", "qwen3_next.gguf"),
    [](const auto& info) {
      std::string name = info.param;
      for (char& c : name)
        if (c == '.') c = '_';
      return name;
    });

TEST(QuantizeOutput, LeavesNothingBehindWhenStoppedAndReplacesNothing) {
  const TempDir dir;
  const Checkpoint source = test::tiny_model("llama2");
  const auto stop = [](std::uint64_t, std::uint64_t) { throw Stopped(); };
  EXPECT_THROW(quantize(source, dir.path() / "q.gguf", DType::kQ4_0, stop), Stopped);
  EXPECT_TRUE(test::entries(dir.path()).empty());
  test::write_file(dir.path() / "q.gguf", {});
  EXPECT_THROW(quantize(source, dir.path() / "q.gguf", DType::kQ4_0, ignore), Error);
  EXPECT_EQ(std::filesystem::file_size(dir.path() / "q.gguf"), 0u);
}

TEST(QuantizeOutput, WhatFailsInAThreadIsSaid) {
  const TempDir dir;
  std::filesystem::copy(test_data() / "model/llama2", dir.path() / "model");
  const std::filesystem::path weights = dir.path() / "model/model.safetensors";
  std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(weights) / 4 * 2));
  file.write("\x80\x7f", 2);  // infinity, in bf16
  file.close();
  const Checkpoint source = Checkpoint::open(dir.path() / "model");
  const std::string error =
      error_of([&] { quantize(source, dir.path() / "q.gguf", DType::kQ4_0, ignore, 4); });
  EXPECT_NE(error.find("not finite"), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "q.gguf"));
}

Metadata as_read(const GgufMetadata& written) {
  Metadata metadata;
  for (const auto& [key, value] : written)
    std::visit(
        [&, &name = key](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, std::uint32_t>)
            metadata.set(name, static_cast<std::int64_t>(v));
          else if constexpr (std::is_same_v<T, float>)
            metadata.set(name, static_cast<double>(v));
          else
            metadata.set(name, v);
        },
        value);
  return metadata;
}

class TokenizerFiles : public ::testing::TestWithParam<const char*> {
 protected:
  const std::filesystem::path data_ = std::filesystem::path(CANOPY_TEST_DATA) / "text";
  const TempDir dir_;
  Checkpoint model() const {
    ModelConfig config;
    config.vocab = 1024;  // padded
    return Checkpoint(data_ / GetParam(), {}, {}, config, {});
  }
};

TEST_P(TokenizerFiles, EncodeAlikeAfterGgufAndBack) {
  const Metadata gguf = as_read(gguf_tokenizer_metadata(model()));
  write_tokenizer_files(gguf, dir_.path());
  const auto original = load_tokenizer(data_ / GetParam(), {}),
             through = load_tokenizer(dir_.path() / "none.gguf", gguf),
             back = load_tokenizer(dir_.path(), {});
  for (const auto& text : nlohmann::json::parse(std::ifstream(data_ / "texts.json"))) {
    if (!text.is_string()) continue;
    SCOPED_TRACE(text.dump());
    for (const AddSpecial add : {AddSpecial::kNo, AddSpecial::kYes}) {
      const std::vector<TokenId> ids = original->encode(text.get<std::string>(), add);
      EXPECT_EQ(through->encode(text.get<std::string>(), add), ids);
      EXPECT_EQ(back->encode(text.get<std::string>(), add), ids);
    }
  }
  for (TokenId id = 0; id < original->vocab(); ++id) {
    EXPECT_EQ(through->token_string(id), original->token_string(id));
    EXPECT_EQ(back->token_string(id), original->token_string(id));
  }
}
INSTANTIATE_TEST_SUITE_P(ByteLevel, TokenizerFiles,
                         ::testing::Values("gpt2", "llama3", "smaug", "tekken", "qwen2", "smollm",
                                           "mistral", "seed", "deepseek3"),
                         [](const auto& info) { return info.param; });

class FallbackTokenizers : public TokenizerFiles {};

TEST_P(FallbackTokenizers, EncodeAlikeFromGguf) {
  Metadata gguf = as_read(gguf_tokenizer_metadata(model()));
  const auto original = load_tokenizer(data_ / GetParam(), {}),
             through = load_tokenizer(dir_.path() / "none.gguf", gguf);
  // Other converters call tokens of line ends normal.
  auto types = *gguf.find<std::vector<std::int32_t>>("tokenizer.ggml.token_type");
  const auto& tokens = *gguf.find<std::vector<std::string>>("tokenizer.ggml.tokens");
  for (std::size_t id = 0; id < types.size(); ++id)
    if (tokens[id].find_first_not_of('\n') == tokens[id].npos) types[id] = 1;
  gguf.set("tokenizer.ggml.token_type", std::move(types));
  const auto as_others = load_tokenizer(dir_.path() / "none.gguf", gguf);
  for (const auto& text : nlohmann::json::parse(std::ifstream(data_ / "texts.json"))) {
    if (!text.is_string()) continue;
    SCOPED_TRACE(text.dump());
    for (const AddSpecial add : {AddSpecial::kNo, AddSpecial::kYes}) {
      const std::vector<TokenId> ids = original->encode(text.get<std::string>(), add);
      EXPECT_EQ(through->encode(text.get<std::string>(), add), ids);
      EXPECT_EQ(as_others->encode(text.get<std::string>(), add), ids);
      EXPECT_EQ(through->decode(ids, add), original->decode(ids, add));
    }
  }
  for (TokenId id = 0; id < original->vocab(); ++id) {
    EXPECT_EQ(through->token_string(id), original->token_string(id));
    EXPECT_EQ(through->is_special(id), original->is_special(id));
  }
}
INSTANTIATE_TEST_SUITE_P(Spaces, FallbackTokenizers,
                         ::testing::Values("gemma", "llama2", "spm_llama2"),
                         [](const auto& info) { return info.param; });

TEST(FallbackTokenizer, OfRankedTokensHasScoresAndOthersHaveMerges) {
  const std::filesystem::path data = std::filesystem::path(CANOPY_TEST_DATA) / "text";
  ModelConfig config;
  config.vocab = 1024;
  const auto metadata_of = [&](const char* name) {
    return as_read(gguf_tokenizer_metadata(Checkpoint(data / name, {}, {}, config, {})));
  };
  const Metadata ranked = metadata_of("spm_llama2"), listed = metadata_of("gemma");
  EXPECT_EQ(*ranked.find<std::string>("tokenizer.ggml.model"), "llama");
  EXPECT_EQ(ranked.find<std::vector<float>>("tokenizer.ggml.scores")->size(), 1024u);
  EXPECT_FALSE(ranked.contains("tokenizer.ggml.merges"));
  EXPECT_TRUE(*ranked.find<bool>("tokenizer.ggml.add_space_prefix"));
  EXPECT_EQ(*listed.find<std::string>("tokenizer.ggml.model"), "gemma4");
  EXPECT_FALSE(listed.contains("tokenizer.ggml.scores"));
  EXPECT_FALSE(*listed.find<bool>("tokenizer.ggml.add_space_prefix"));
  EXPECT_EQ(*listed.find<std::int64_t>("tokenizer.ggml.bos_token_id"), 1);
}

TEST(FallbackTokenizer, RefusesMergesThatNoScoresGive) {
  const std::filesystem::path data = std::filesystem::path(CANOPY_TEST_DATA) / "text";
  const auto error_with = [&](const auto& edit) {
    const TempDir dir;
    auto document = nlohmann::json::parse(std::ifstream(data / "spm_llama2" / "tokenizer.json"));
    edit(document);
    dir.write("tokenizer.json", document.dump());
    ModelConfig config;
    config.vocab = 1024;
    return error_of([&] { gguf_tokenizer_metadata(Checkpoint(dir.path(), {}, {}, config, {})); });
  };
  EXPECT_EQ(error_with([](auto&) {}), "");
  for (const auto& [edit, part] :
       {std::pair<void (*)(nlohmann::json&), const char*>{
            [](nlohmann::json& d) { d["model"]["merges"].erase(0); }, "'llama' would merge"},
        {[](nlohmann::json& d) {
           auto& merges = d["model"]["merges"];  // the first of a token that has two, to the end
           for (std::size_t i = 0; i + 1 < merges.size(); ++i) {
             const auto whole = [&](std::size_t at) {
               return merges[at][0].get<std::string>() + merges[at][1].get<std::string>();
             };
             if (whole(i) != whole(i + 1)) continue;
             merges.push_back(merges[i]);
             merges.erase(i);
             return;
           }
         },
         "take turns"},
        {[](nlohmann::json& d) { d["normalizer"] = nullptr; }, "the normalizer null"},
        {[](nlohmann::json& d) {
           d["pre_tokenizer"] = {{"type", "Whitespace"}};
         },
         "the pre_tokenizer"},
        {[](nlohmann::json& d) { d["decoder"] = nullptr; }, "the decoder"},
        {[](nlohmann::json& d) { d["model"]["vocab"].erase("<0x41>"); }, "255 of the 256 byte"},
        {[](nlohmann::json& d) { d["added_tokens"][0]["normalized"] = true; }, "'normalized'"},
        {[](nlohmann::json& d) { d["model"]["ignore_merges"] = true; }, "'ignore_merges'"}}) {
    const std::string error = error_with(edit);
    EXPECT_NE(error.find(part), std::string::npos) << part << ": " << error;
  }
}

TEST(TokenizerMetadata, NamesOnlyAPreTokenizerThatIsAlikeInAll) {
  const std::filesystem::path data = std::filesystem::path(CANOPY_TEST_DATA) / "text";
  const auto name_with = [&](const char* name, const auto& edit) {
    const TempDir dir;
    auto document = nlohmann::json::parse(std::ifstream(data / name / "tokenizer.json"));
    edit(document);
    dir.write("tokenizer.json", document.dump());
    ModelConfig config;
    config.vocab = 1024;
    return *as_read(gguf_tokenizer_metadata(Checkpoint(dir.path(), {}, {}, config, {})))
                .find<std::string>("tokenizer.ggml.pre");
  };
  const auto merge_all = [](auto& document) { document["model"]["ignore_merges"] = false; };
  const auto whole_words = [](auto& document) { document["model"]["ignore_merges"] = true; };
  const auto plain = [](auto& document) { document["normalizer"] = nullptr; };
  EXPECT_EQ(name_with("llama3", whole_words), "llama-bpe");
  EXPECT_EQ(name_with("llama3", merge_all), "smaug-bpe");
  EXPECT_EQ(name_with("tekken", whole_words), "tekken");
  EXPECT_EQ(name_with("qwen2", merge_all), "qwen2");
  for (const std::string& error : {error_of([&] { name_with("tekken", merge_all); }),
                                   error_of([&] { name_with("smollm", whole_words); }),
                                   error_of([&] { name_with("qwen2", plain); })})
    EXPECT_NE(error.find("have no counterpart in GGUF with pre-tokenizer "), std::string::npos)
        << error;
}

TEST(TokenizerMetadata, LeavesOutIdsThatAreNoTokens) {
  const std::filesystem::path data = std::filesystem::path(CANOPY_TEST_DATA) / "text";
  ModelConfig config;
  config.vocab = 1024;
  Metadata json;
  for (const char* key : {"pad_token_id", "bos_token_id"}) json.set(key, std::int64_t{-1});
  Metadata gguf =
      as_read(gguf_tokenizer_metadata(Checkpoint(data / "smollm", {}, {}, config, json)));
  for (const char* name : {"padding", "bos"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    EXPECT_FALSE(gguf.contains(key));
    gguf.set(key, std::int64_t{4294967295});  // as other writers have it
  }
  const TempDir dir;
  write_tokenizer_files(gguf, dir.path());
  const auto map = nlohmann::json::parse(std::ifstream(dir / "special_tokens_map.json"));
  EXPECT_FALSE(map.contains("pad_token"));
  EXPECT_FALSE(map.contains("bos_token"));
  gguf.set("tokenizer.ggml.add_bos_token", true);
  const TempDir other;
  EXPECT_NE(error_of([&] { write_tokenizer_files(gguf, other.path()); }).find("bos_token_id"),
            std::string::npos);
}

TEST(TokenizerMetadata, RefusesByNameWhatGgufCannotSay) {
  const std::filesystem::path data = std::filesystem::path(CANOPY_TEST_DATA) / "text";
  ModelConfig config;
  config.vocab = 1024;
  for (const auto& [name, part] :
       {std::pair{"added", "pre_tokenizer"},
        std::pair{"metaspace_first", "the normalizer null of a BPE with byte fallback"}}) {
    std::string message;
    try {
      gguf_tokenizer_metadata(Checkpoint(data / name, {}, {}, config, {}));
    } catch (const Error& e) {
      message = e.what();
    }
    EXPECT_NE(message.find(part), std::string::npos) << name << ": " << message;
  }
  const TempDir dir;
  Metadata spm;
  spm.set("tokenizer.ggml.model", std::string("llama"));
  EXPECT_THROW(write_tokenizer_files(spm, dir.path()), Error);
}

TEST(SafetensorsWriter, CutsShardsBetweenTensorsAndListsThem) {
  const TempDir dir;
  SafetensorsWriter writer(dir.path(), {{"a", {4, 8}}, {"b", {8}}, {"c", {2, 8}}}, 80);
  const std::vector<std::uint16_t> values(32, 0x3f80);
  writer.write("a", values);
  EXPECT_THROW(writer.write("c", std::span(values).first(8)), Error);  // not its turn
  writer.write("b", std::span(values).first(8));
  EXPECT_THROW(writer.finish(), Error);  // c is missing
  writer.write("c", std::span(values).first(16));
  writer.finish();
  EXPECT_EQ(writer.total_bytes(), 112u);
  const auto index =
      nlohmann::json::parse(test::contents(dir.path() / "model.safetensors.index.json"));
  EXPECT_EQ(index.at("metadata").at("total_size"), 112);
  EXPECT_EQ(index.at("weight_map").at("a"), "model-00001-of-00002.safetensors");
  EXPECT_EQ(index.at("weight_map").at("b"), "model-00001-of-00002.safetensors");
  EXPECT_EQ(index.at("weight_map").at("c"), "model-00002-of-00002.safetensors");
  EXPECT_EQ(std::filesystem::file_size(dir.path() / "model-00001-of-00002.safetensors"),
            4096u + 80u);
}

}  // namespace
}  // namespace canopy
