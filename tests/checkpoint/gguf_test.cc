// The GGUF reader: what it accepts, and every way in which a header can lie.
#include <gtest/gtest.h>

#include "src/checkpoint/families.h"
#include "src/checkpoint/readers.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {
namespace {

constexpr std::uint32_t kF32 = 0;  // ggml's number

std::string error_of_file(std::string_view bytes) {
  const TempDir dir;
  write_file(dir / "model.gguf", bytes);
  return error_of([&] { read_gguf(dir / "model.gguf"); });
}

/// The error of a header that `edit` wrote, before `data_bytes` of data.
template <class Edit>
std::string error_of_header(Edit&& edit, std::size_t data_bytes = 256) {
  GgufWriter writer;
  edit(writer);
  return error_of_file(writer.bytes().append(data_bytes, '\0'));
}

template <class T>
std::string bytes_of(T value) {
  std::string out;
  append(out, value);
  return out;
}

TEST(Gguf, ReadsKeysOfEveryTypeAndTheTensors) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufWriter w;
    w.version = version;
    w.u32("u32", 7);
    w.i32("i32", -7);
    w.f32("f32", 0.5f);
    w.u64("u64", 1u << 31);
    w.boolean("bool", 1);
    w.text("text", "hi");
    w.raw("u8", 0, bytes_of<std::uint8_t>(200));
    w.raw("i8", 1, bytes_of<std::int8_t>(-2));
    w.raw("u16", 2, bytes_of<std::uint16_t>(60000));
    w.raw("i16", 3, bytes_of<std::int16_t>(-3));
    w.raw("i64", 11, bytes_of<std::int64_t>(-4));
    w.raw("f64", 12, bytes_of(0.25));
    w.texts("texts", {"a", "", "c"});
    w.numbers<float>("floats", 6, {1, 2});
    w.numbers<std::uint64_t>("longs", 10, {3, 4});
    w.numbers<std::int8_t>("bytes", 1, {-1, 5});
    w.numbers<float>("none", 6, {});
    std::mt19937_64 random(1);
    const FileTensor a = random_tensor("a", DType::kQ8_0, {3, 64}, random, 0, 1);
    const FileTensor b = random_tensor("b", DType::kF32, {5}, random, 0, 1);
    w.tensor(a);
    w.tensor(b);

    const TempDir dir;
    const std::string file = w.bytes();
    write_file(dir / "model.gguf", file);
    const GgufHeader header = read_gguf(dir / "model.gguf");
    const Metadata& m = header.metadata;
    using Integer = std::int64_t;
    EXPECT_EQ(*m.find<Integer>("u32"), 7);
    EXPECT_EQ(*m.find<Integer>("i32"), -7);
    EXPECT_EQ(*m.find<double>("f32"), 0.5);
    EXPECT_EQ(*m.find<Integer>("u64"), Integer{1} << 31);
    EXPECT_EQ(*m.find<bool>("bool"), true);
    EXPECT_EQ(*m.find<std::string>("text"), "hi");
    EXPECT_EQ(*m.find<Integer>("u8"), 200);
    EXPECT_EQ(*m.find<Integer>("i8"), -2);
    EXPECT_EQ(*m.find<Integer>("u16"), 60000);
    EXPECT_EQ(*m.find<Integer>("i16"), -3);
    EXPECT_EQ(*m.find<Integer>("i64"), -4);
    EXPECT_EQ(*m.find<double>("f64"), 0.25);
    EXPECT_EQ(*m.find<std::vector<std::string>>("texts"), (std::vector<std::string>{"a", "", "c"}));
    EXPECT_EQ(*m.find<std::vector<float>>("floats"), (std::vector<float>{1, 2}));
    EXPECT_EQ(*m.find<std::vector<std::int32_t>>("longs"), (std::vector<std::int32_t>{3, 4}));
    EXPECT_EQ(*m.find<std::vector<std::int32_t>>("bytes"), (std::vector<std::int32_t>{-1, 5}));
    EXPECT_TRUE(m.contains("none"));
    ASSERT_EQ(header.tensors.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      const FileTensor& written = i == 0 ? a : b;
      const TensorEntry& tensor = header.tensors[i];
      EXPECT_EQ(tensor.name, written.name);
      EXPECT_EQ(tensor.dtype, written.dtype);
      EXPECT_EQ(tensor.shape, written.shape);
      EXPECT_EQ(file.substr(tensor.offset, tensor.bytes), written.bytes);
    }
  }
}

TEST(Gguf, RefusesOtherFilesAndVersions) {
  EXPECT_TRUE(mentions(error_of_file(""), "does not begin with 'GGUF'"));
  EXPECT_TRUE(mentions(error_of_file("GGU"), "does not begin with 'GGUF'"));
  EXPECT_TRUE(mentions(error_of_header([](auto& w) { w.magic = "GGML"; }), "'GGUF'"));
  EXPECT_TRUE(mentions(error_of_file("GGUF"), "past the end of the file"));
  for (const std::uint32_t version : {0u, 1u, 4u, ~0u})
    EXPECT_TRUE(mentions(error_of_header([&](auto& w) { w.version = version; }),
                         "version " + std::to_string(version) + " is not supported"));
  for (const std::uint32_t version : {0x02000000u, 0x03000000u})
    EXPECT_TRUE(mentions(error_of_header([&](auto& w) { w.version = version; }), "big-endian"));
}

TEST(Gguf, RefusesCountsThatTheFileCannotHold) {
  for (const std::uint64_t count : {std::uint64_t{1000}, std::uint64_t{1} << 32, ~std::uint64_t{0}})
    for (auto member : {&GgufWriter::tensor_count, &GgufWriter::key_count})
      EXPECT_TRUE(mentions(error_of_header([&](GgufWriter& w) { w.*member = count; }),
                           std::to_string(count) + " items"));
  // Fits by size, but there is nothing to read.
  EXPECT_NE(error_of_header([](auto& w) { w.tensor_count = 1; }), "");
  EXPECT_NE(error_of_header([](auto& w) { w.key_count = 1; }), "");
}

TEST(Gguf, RefusesHeadersOverItsLimitWithoutReadingThem) {
  constexpr std::uint64_t kLimit = 64u << 20;
  const TempDir dir;
  GgufWriter writer;
  writer.raw("k", 8, bytes_of(kLimit));  // a text that alone has as many bytes as a header may have
  write_file(dir / "model.gguf", writer.bytes());
  std::filesystem::resize_file(dir / "model.gguf", 2 * kLimit);  // a hole: takes no disk
  EXPECT_TRUE(mentions(error_of([&] { read_gguf(dir / "model.gguf"); }),
                       "past its limit of " + std::to_string(kLimit) + " bytes"));
}

TEST(Gguf, RefusesKeysOfAnyOtherForm) {
  const auto error = [](std::uint32_t type, std::string_view bytes) {
    return error_of_header([&](GgufWriter& w) { w.raw("k", type, bytes); });
  };
  const auto array = [](std::uint32_t type, std::uint64_t count) {
    return bytes_of(type) + bytes_of(count);
  };
  EXPECT_TRUE(mentions(error_of_header([](auto& w) { w.u32("", 1); }), "has 0 bytes"));
  EXPECT_TRUE(mentions(error_of_header([](auto& w) { w.u32(std::string(65536, 'k'), 1); }),
                       "has 65536 bytes"));
  EXPECT_TRUE(mentions(error_of_header([](auto& w) { w.u32("k", 1), w.f32("k", 1); }),
                       "'k' is given twice"));
  EXPECT_TRUE(mentions(error(13, ""), "value type 13 is unknown"));
  EXPECT_TRUE(mentions(error(~0u, ""), "is unknown"));
  EXPECT_TRUE(mentions(error(7, bytes_of<std::uint8_t>(2)), "a boolean has the value 2"));
  EXPECT_TRUE(mentions(error(10, bytes_of(~std::uint64_t{0})), "does not fit 63 bits"));
  EXPECT_TRUE(mentions(error(8, bytes_of(std::uint64_t{1} << 40)), "past the end of the file"));
  EXPECT_TRUE(mentions(error(8, bytes_of(~std::uint64_t{0})), "past the end of the file"));
  EXPECT_TRUE(mentions(error(9, array(13, 0)), "array element type 13 is unknown"));
  EXPECT_TRUE(mentions(error(9, array(0, ~std::uint64_t{0})), "past the end of the file"));
  EXPECT_TRUE(mentions(error(9, array(12, std::uint64_t{1} << 61)), "past the end of the file"));
  EXPECT_TRUE(mentions(error(9, array(8, std::uint64_t{1} << 61)), "past the end of the file"));
  EXPECT_TRUE(mentions(error(9, array(7, 1) + '\2'), "a boolean has the value 2"));
  EXPECT_TRUE(mentions(error(9, array(4, 1) + bytes_of(~0u)), "does not fit 32 bits"));
  EXPECT_TRUE(mentions(error(9, array(11, 1) + bytes_of(std::int64_t{1} << 40)), "32 bits"));
}

TEST(Gguf, RefusesArraysInsideArraysAtAnyDepth) {
  std::string nested;
  for (int depth = 0; depth < 100'000; ++depth) nested += bytes_of(9u) + bytes_of(std::uint64_t{1});
  EXPECT_TRUE(mentions(error_of_header([&](auto& w) { w.raw("k", 9, nested); }), "array"));
}

TEST(Gguf, RefusesTensorInfosOfAnyOtherForm) {
  using Shape = std::vector<std::int64_t>;
  const auto error = [](std::string_view name, const Shape& shape, std::uint32_t type = kF32,
                        std::uint64_t offset = 0) {
    return error_of_header([&](GgufWriter& w) { w.info(name, shape, type, offset); });
  };
  EXPECT_EQ(error("a", {4, 4}), "");
  EXPECT_TRUE(mentions(error("", {4}), "has 0 bytes"));
  EXPECT_TRUE(mentions(error(std::string(65, 'a'), {4}), "has 65 bytes"));
  EXPECT_TRUE(mentions(error("a", {}), "0 axes"));
  EXPECT_TRUE(mentions(error("a", {1, 1, 1, 1, 1}), "5 axes"));
  EXPECT_TRUE(mentions(error("a", {-1}), "does not fit 63 bits"));
  EXPECT_TRUE(mentions(error("a", {std::int64_t{1} << 62}), "'a'"));
  EXPECT_TRUE(mentions(error("a", {1 << 20, 1 << 20, 1 << 20, 1 << 20}), "overflows"));
  EXPECT_TRUE(mentions(error("a", {33}, 8), "'a'"));  // a row that is not whole blocks
  EXPECT_TRUE(mentions(error("a", {16, 2}, 2), "'a'"));
  EXPECT_EQ(error("a", {256}, 12), "");  // Q4_K
  EXPECT_TRUE(mentions(error("a", {288}, 12), "288 columns is not whole blocks of 256 (Q4_K)"));
  EXPECT_TRUE(mentions(error("a", {256}, 35), "'a'"));
  EXPECT_TRUE(mentions(error("a", {256}, 35), "ggml type TQ2_0 are not supported"));
  EXPECT_TRUE(mentions(error("a", {256}, 35), "Q4_K, Q5_K, Q6_K"));
  for (const WeightFormat& format : as_data(GgufBlocks())) {  // rows that are not whole blocks
    const std::int64_t half = format.block_elements / 2;
    EXPECT_TRUE(
        mentions(error("odd", {3 * half}, format.gguf_id), "reading the info of tensor 'odd'"));
    EXPECT_TRUE(mentions(
        error("odd", {3 * half}, format.gguf_id),
        " columns is not whole blocks of " + std::to_string(2 * half) + " (" + format.name + ")"));
  }
  EXPECT_TRUE(mentions(error("a", {4}, 26), "I32"));
  EXPECT_TRUE(mentions(error("a", {4}, 4711), "number 4711"));
}

TEST(Gguf, RefusesOffsetsThatAreNotAlignedOrLeaveTheFile) {
  const auto error = [](std::uint64_t offset, std::uint64_t alignment = 32) {
    return error_of_header([&](GgufWriter& w) {
      w.alignment = alignment;
      w.info("a", {4}, kF32, offset);
    });
  };
  EXPECT_EQ(error(0), "");
  EXPECT_EQ(error(64, 64), "");
  EXPECT_TRUE(mentions(error(1), "not a multiple of 32"));
  EXPECT_TRUE(mentions(error(32, 64), "not a multiple of 64"));
  EXPECT_TRUE(mentions(error(256), "are missing, from tensor 'a' on"));
  EXPECT_TRUE(mentions(error(std::uint64_t{1} << 63), "are missing, from tensor 'a' on"));
  EXPECT_TRUE(mentions(error(~std::uint64_t{31}), "the end of tensor 'a' overflows"));
}

TEST(Gguf, RefusesAlignmentsThatAreNoPowerOfTwo) {
  for (const std::uint32_t alignment : {0u, 3u, 33u, 1u << 21, 1u << 31})
    EXPECT_TRUE(
        mentions(error_of_header([&](GgufWriter& w) { w.u32("general.alignment", alignment); }),
                 "'general.alignment' is " + std::to_string(alignment)));
  EXPECT_TRUE(mentions(error_of_header([](auto& w) { w.i32("general.alignment", -32); }), "-32"));
  EXPECT_TRUE(mentions(error_of_header([](auto& w) { w.text("general.alignment", "32"); }),
                       "not an integer"));
}

TEST(Gguf, RefusesTensorsThatOverlapOrShareAName) {
  const auto error = [](std::string_view second, std::int64_t extent, std::uint64_t offset) {
    return error_of_header([&](GgufWriter& w) {
      w.info("a", {32}, kF32, 0);  // 128 bytes
      w.info(second, {extent}, kF32, offset);
    });
  };
  EXPECT_EQ(error("b", 8, 128), "");
  EXPECT_TRUE(mentions(error("a", 8, 128), "'a' is given twice"));
  EXPECT_TRUE(mentions(error("b", 8, 96), "overlap"));
  EXPECT_TRUE(mentions(error("b", 32, 0), "overlap"));
  EXPECT_EQ(error("b", 0, 128), "");
  EXPECT_TRUE(mentions(error("b", 0, 64), "overlap"));  // without bytes, but inside another
}

TEST(Gguf, RefusesAFileTruncatedInItsData) {
  const std::string whole = gguf_writer(tiny_model()).bytes();
  EXPECT_EQ(error_of_file(whole), "");
  for (const std::size_t missing : {std::size_t{1}, whole.size() / 2}) {
    const std::string error = error_of_file(whole.substr(0, whole.size() - missing));
    EXPECT_TRUE(mentions(error, "truncated"));
    EXPECT_TRUE(mentions(error, ": " + std::to_string(missing) + " are missing, from tensor '"));
  }
}

TEST(Gguf, RenamesTensorsToCanonicalNamesAndLeavesOthers) {
  const Family& llama = *find_family(known_families(), "llama");
  EXPECT_EQ(canonical_gguf_name(llama, "token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(canonical_gguf_name(llama, "blk.31.attn_q.weight"),
            "model.layers.31.self_attn.q_proj.weight");
  for (const char* name : {"blk.3.ffn_gate_exps.weight", "blk..attn_q.weight", "blk.3x.attn_q.bias",
                           "blk.3", "rope_freqs.weight", ""})
    EXPECT_EQ(canonical_gguf_name(llama, name), name);
}

}  // namespace
}  // namespace canopy::testing
