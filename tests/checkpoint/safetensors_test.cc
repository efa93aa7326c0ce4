// The safetensors reader: what it accepts, and every way in which a header can lie.
#include <gtest/gtest.h>

#include <sstream>

#include "src/base/utf8.h"
#include "src/checkpoint/readers.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {
namespace {

constexpr std::string_view kPair = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

/// The error of reading a model.safetensors of these bytes; "" if it is read.
std::string error_of_file(std::string_view bytes) {
  const TempDir dir;
  write_file(dir / "model.safetensors", bytes);
  return error_of([&] { read_safetensors(dir.path()); });
}

std::string error_of_header(std::string_view header, std::size_t data_bytes = 8) {
  return error_of_file(safetensors_with_header(header, data_bytes));
}

/// One tensor "a" of F32 [2] whose fields a test replaces.
std::string error_of_tensor(std::string_view fields, std::size_t data_bytes = 8) {
  return error_of_header(std::string(R"({"a":{)").append(fields).append("}}"), data_bytes);
}

struct Case {
  std::string_view text, error;
};

TEST(Safetensors, GivesEachTensorItsPlaceAtWhateverByteItStarts) {
  for (const std::size_t padding : {0u, 1u, 2u, 3u}) {
    const TempDir dir;
    std::mt19937_64 random(padding);
    const std::vector<FileTensor> written{
        random_tensor("b", DType::kBF16, {3, 5}, random, 0, 1),
        random_tensor("empty", DType::kF16, {0, 4}, random, 0, 1),
        random_tensor("a", DType::kF32, {7}, random, 0, 1),
    };
    const std::string file = safetensors_bytes(written, padding);
    write_file(dir / "model.safetensors", file);
    const TensorIndex index = read_safetensors(dir.path());
    ASSERT_EQ(index.tensors.size(), written.size());
    for (const FileTensor& tensor : written) {
      const auto at = std::find_if(index.tensors.begin(), index.tensors.end(),
                                   [&](const TensorEntry& t) { return t.name == tensor.name; });
      ASSERT_NE(at, index.tensors.end()) << tensor.name;
      EXPECT_EQ(at->dtype, tensor.dtype);
      EXPECT_EQ(at->shape, tensor.shape);
      EXPECT_EQ(file.substr(at->offset, at->bytes), tensor.bytes);
    }
  }
}

TEST(Safetensors, RefusesHeaderLengthsThatTheFileDoesNotHave) {
  EXPECT_TRUE(mentions(error_of_file(""), "past the end of the file"));
  EXPECT_TRUE(mentions(error_of_file("1234567"), "past the end of the file"));
  for (const std::uint64_t length :
       {std::uint64_t{56}, std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    std::string file;
    append(file, length);
    EXPECT_TRUE(mentions(error_of_file(file.append(kPair)), std::to_string(length))) << length;
  }
  EXPECT_TRUE(mentions(error_of_header("", 8), "not a safetensors file"));
}

TEST(Safetensors, RefusesHeadersOverItsLimitWithoutReadingThem) {
  const TempDir dir;
  constexpr std::uint64_t kLength = 1u << 30;
  std::string file;
  append(file, kLength);
  write_file(dir / "model.safetensors", file);
  std::filesystem::resize_file(dir / "model.safetensors", kLength + 8);  // a hole: takes no disk
  EXPECT_TRUE(mentions(error_of([&] { read_safetensors(dir.path()); }), "past its limit"));
}

TEST(Safetensors, RefusesHeadersOfAnyOtherForm) {
  for (const Case& c : {
           Case{"[]", "not a safetensors file"},
           Case{R"("a")", "not a safetensors file"},
           Case{"{", "not valid JSON at byte"},
           Case{R"({"a":)", "not valid JSON"},
           Case{R"({}x)", "not valid JSON"},
           Case{"{\"a\xff\":{}}", "not valid JSON"},
           Case{R"({"a":1})", "an unexpected number"},
           Case{R"({"a":"F32"})", "an unexpected string"},
           Case{R"({"a":null})", "an unexpected null"},
           Case{R"({"a":[]})", "an unexpected array"},
           Case{R"({"a":{}})", "missing"},
           Case{R"({"__metadata__":[]})", "an unexpected array"},
           Case{R"({"__metadata__":{"x":1}})", "an unexpected number"},
           Case{R"({"__metadata__":{"x":{}}})", "an object where a value belongs"},
       })
    EXPECT_TRUE(mentions(error_of_header(c.text), c.error)) << c.text;
}

TEST(Safetensors, RefusesTensorsOfAnyOtherForm) {
  for (const Case& c : {
           Case{R"("dtype":"F32","shape":[2])", "data_offsets is missing"},
           Case{R"("dtype":"F32","data_offsets":[0,8])", "missing"},
           Case{R"("shape":[2],"data_offsets":[0,8])", "missing"},
           Case{R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])", "given twice"},
           Case{R"("dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8])", "given twice"},
           Case{R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)", "unknown field 'x'"},
           Case{R"("dtype":4,"shape":[2],"data_offsets":[0,8])", "an unexpected number"},
           Case{R"("dtype":["F32"],"shape":[2],"data_offsets":[0,8])", "an unexpected array"},
           Case{R"("dtype":"F32","shape":2,"data_offsets":[0,8])", "an unexpected number"},
           Case{R"("dtype":"F32","shape":"2","data_offsets":[0,8])", "an unexpected string"},
           Case{R"("dtype":"F32","shape":null,"data_offsets":[0,8])", "an unexpected null"},
           Case{R"("dtype":"F32","shape":[true],"data_offsets":[0,8])", "an unexpected boolean"},
           Case{R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])", "an unexpected string"},
           Case{R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])", "an unexpected array"},
           Case{R"("dtype":"F32","shape":[{}],"data_offsets":[0,8])", "an object where"},
           Case{R"("dtype":"F32","shape":{},"data_offsets":[0,8])", "an object where"},
           Case{R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", "not a 64-bit integer"},
           Case{R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", "a negative number"},
           Case{R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])", "8 axes"},
           Case{R"("dtype":"F32","shape":[2],"data_offsets":[])", "not a pair"},
           Case{R"("dtype":"F32","shape":[2],"data_offsets":[0])", "not a pair"},
           Case{R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])", "not a pair"},
           Case{R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])", "a negative number"},
       })
    EXPECT_TRUE(mentions(error_of_tensor(c.text), c.error)) << c.text;
}

TEST(Safetensors, RefusesSizesThatOverflowOrDisagree) {
  for (
      const Case& c : {
          Case{R"("dtype":"F32","shape":[3],"data_offsets":[0,8])", "hold 8 bytes"},
          Case{R"("dtype":"F32","shape":[],"data_offsets":[0,8])", "takes 4"},
          Case{R"("dtype":"F32","shape":[0],"data_offsets":[0,8])", "takes 0"},
          Case{R"("dtype":"F32","shape":[2],"data_offsets":[8,0])", "run backwards"},
          Case{R"("dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,8])", "'a'"},
          Case{R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])", "too large"},
          Case{R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8])", "64-bit"},
          Case{R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])",
               "overflows"},
          Case{R"("dtype":"F32","shape":[2305843009213693952,1],"data_offsets":[0,0])",
               "overflows"},
          Case{
              R"("dtype":"F32","shape":[2],"data_offsets":[9223372036854775800,9223372036854775808])",
              "too large"},
      })
    EXPECT_TRUE(mentions(error_of_tensor(c.text), c.error)) << c.text;
}

/// A header of F32 vectors: {name, begin, end} in bytes.
struct Place {
  const char* name;
  std::uint64_t begin, end;
};
std::string header_of(std::initializer_list<Place> places) {
  std::ostringstream header;
  header << "{";
  const char* comma = "";
  for (const auto& [name, begin, end] : places) {
    header << comma << '"' << name << R"(":{"dtype":"F32","shape":[)" << (end - begin) / 4
           << R"(],"data_offsets":[)" << begin << ',' << end << "]}";
    comma = ",";
  }
  header << "}";
  return header.str();
}

TEST(Safetensors, RefusesDataThatOverlapLeaveGapsOrEndElsewhere) {
  EXPECT_EQ(error_of_header(header_of({{"a", 0, 8}, {"b", 8, 16}}), 16), "");
  EXPECT_TRUE(mentions(error_of_header(header_of({{"a", 0, 8}, {"b", 4, 12}}), 12), "overlap"));
  EXPECT_TRUE(mentions(error_of_header(header_of({{"a", 0, 8}, {"b", 0, 8}}), 8), "overlap"));
  EXPECT_TRUE(mentions(error_of_header(header_of({{"a", 0, 8}, {"b", 12, 16}}), 16), "a gap"));
  EXPECT_TRUE(mentions(error_of_header(header_of({{"a", 4, 8}}), 8), "a gap"));
  EXPECT_TRUE(mentions(error_of_header(header_of({{"a", 0, 8}}), 7), "the file is truncated"));
  EXPECT_TRUE(mentions(error_of_header(header_of({{"a", 0, 8}}), 5), ": 3 are missing"));
  EXPECT_TRUE(mentions(error_of_header(header_of({{"a", 0, 8}}), 9), "bytes of no tensor"));
  EXPECT_TRUE(mentions(error_of_header("{}", 1), "bytes of no tensor"));
}

TEST(Safetensors, ATensorWithoutBytesMaySitBetweenOthersButNotInsideOne) {
  EXPECT_EQ(error_of_header(header_of({{"a", 0, 8}, {"z", 8, 8}, {"b", 8, 16}}), 16), "");
  EXPECT_EQ(error_of_header(header_of({{"z", 0, 0}, {"a", 0, 8}, {"y", 8, 8}}), 8), "");
  EXPECT_TRUE(mentions(error_of_header(header_of({{"a", 0, 8}, {"z", 4, 4}}), 8), "overlap"));
  EXPECT_TRUE(mentions(error_of_header(header_of({{"a", 0, 8}, {"z", 12, 12}}), 8), "a gap"));
}

TEST(Safetensors, RefusesANameGivenTwice) {
  EXPECT_TRUE(
      mentions(error_of_header(header_of({{"a", 0, 8}, {"a", 8, 16}}), 16), "'a' is given twice"));
}

TEST(Safetensors, DeepNestingAndLongNamesCostNothing) {
  const std::string deep(1 << 20, '[');
  EXPECT_TRUE(mentions(error_of_header(R"({"a":{"shape":)" + deep), "an unexpected array"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"shape":)";
  EXPECT_TRUE(mentions(error_of_header(objects), "an object where a value belongs"));
  const std::string error = error_of_header("{\"" + std::string(1 << 20, 'x') + R"(":null})");
  EXPECT_TRUE(mentions(error, "xxx..."));
  EXPECT_LT(error.size(), 1000u);
}

TEST(Safetensors, ErrorsShowHostileNamesOnOneLine) {
  const std::string error = error_of_header(R"({"a\n\u001b[2J":null})");
  EXPECT_TRUE(mentions(error, R"('a\x0a\x1b[2J')"));
}

TEST(Safetensors, ErrorsShowWhatIsNoJsonOnOneLine) {
  for (const std::string& value :
       {std::string("\xff\x01"), std::string("\"a\xc3\n"), "1." + std::string(5000, '0')}) {
    const std::string error = error_of_header("{\"a\":{\"shape\":[" + value + "]}}");
    EXPECT_TRUE(is_utf8(error)) << error;
    EXPECT_LT(error.substr(0, error.find("\n  while")).size(), 300u) << error;
    EXPECT_EQ(error.substr(0, error.find("\n  while")).find('\n'), std::string::npos) << error;
  }
}

/// A directory of two shards, x.safetensors with "x" and y.safetensors with "y".
class Shards : public ::testing::Test {
 protected:
  Shards() {
    std::mt19937_64 random(1);
    for (const std::string name : {"x", "y"})
      write_file(dir_ / (name + ".safetensors"),
                 safetensors_bytes({random_tensor(name, DType::kF32, {4}, random, 0, 1)}));
  }
  std::string error_of_index(std::string_view index) const {
    write_file(dir_ / "model.safetensors.index.json", index);
    return error_of([&] { read_safetensors(dir_.path()); });
  }
  const TempDir dir_;
};

TEST_F(Shards, AreReadThroughTheirIndex) {
  EXPECT_EQ(error_of_index(R"({"weight_map":{"x":"x.safetensors","y":"y.safetensors"}})"), "");
  const TensorIndex index = read_safetensors(dir_.path());
  ASSERT_EQ(index.tensors.size(), 2u);
  for (const TensorEntry& tensor : index.tensors)
    EXPECT_EQ(index.files[static_cast<std::size_t>(tensor.file)],
              dir_ / (tensor.name + ".safetensors"));
}

TEST_F(Shards, OutsideTheDirectoryAreRefused) {
  for (const char* shard : {"../x", "../x.safetensors", "/etc/passwd", "sub/x.safetensors", "..",
                            ".", "", "a\\\\b", "x.safetensors\\u0000"})
    EXPECT_TRUE(mentions(
        error_of_index(std::string(R"({"weight_map":{"x":")").append(shard).append("\"}}")),
        "a shard must be a file beside the index"))
        << shard;
}

TEST_F(Shards, ThatTheIndexGetsWrongAreRefused) {
  for (const Case& c : {
           Case{R"({"weight_map":{"x":"gone.safetensors"}})", "gone.safetensors"},
           Case{R"({"weight_map":{"x":"x.safetensors","z":"y.safetensors"}})",
                "'y' of y.safetensors is not in the index"},
           Case{R"({"weight_map":{"x":"y.safetensors","y":"x.safetensors"}})",
                "but the index says"},
           Case{R"({"weight_map":{"x":"x.safetensors","z":"x.safetensors"}})",
                "'z' is not in x.safetensors"},
           Case{R"({"weight_map":{"x":7}})", "is not a name"},
           Case{R"({"weight_map":[]})", "no object 'weight_map'"},
           Case{R"({})", "no object 'weight_map'"},
           Case{R"([])", "no object 'weight_map'"},
           Case{R"({"weight_map":{"x":"x.safetensors","x":"y.safetensors"}})", "given twice"},
           Case{R"({"weight_map":)", "not JSON"},
           Case{"", "not JSON"},
       })
    EXPECT_TRUE(mentions(error_of_index(c.text), c.error)) << c.text;
  const std::string deep(1 << 20, '[');
  EXPECT_TRUE(mentions(error_of_index(deep), "nested deeper than"));
}

TEST_F(Shards, ThatAreTruncatedOrNoFilesAreRefusedByName) {
  const std::string index = R"({"weight_map":{"x":"x.safetensors","y":"y.safetensors"}})";
  const auto shard = dir_ / "y.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  EXPECT_TRUE(mentions(error_of_index(index), "y.safetensors"));
  EXPECT_TRUE(mentions(error_of_index(index), "the file is truncated"));
  std::filesystem::remove(shard);
  std::filesystem::create_directory(shard);
  EXPECT_TRUE(mentions(error_of_index(index), "y.safetensors: Is a directory"));
}

TEST(Safetensors, SaysWhatADirectoryWithoutWeightsLacks) {
  const TempDir dir;
  EXPECT_TRUE(mentions(error_of([&] { read_safetensors(dir.path()); }),
                       "neither model.safetensors nor model.safetensors.index.json"));
}

}  // namespace
}  // namespace canopy::testing
