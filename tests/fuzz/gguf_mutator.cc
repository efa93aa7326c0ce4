// Changes a GGUF header as the structure that it is, so that the bytes after a changed part are
// still read. Linked into the targets whose inputs are GGUF files.
#include <optional>
#include <utility>
#include <vector>

#include "tests/fuzz/mutation.h"

namespace canopy::fuzz {
namespace {

constexpr std::size_t kMostItems = 4096;

class Bytes {
 public:
  explicit Bytes(std::string_view left) : left_(left) {}
  template <class T>
  T number() {
    T value{};
    const std::string_view part = take(sizeof(T));
    std::memcpy(&value, part.data(), part.size());
    return value;
  }
  std::string text() { return std::string(take(number<std::uint64_t>())); }
  std::string_view take(std::uint64_t bytes) {
    ok_ = ok_ && bytes <= left_.size();
    const std::string_view part = left_.substr(0, ok_ ? static_cast<std::size_t>(bytes) : 0);
    left_.remove_prefix(part.size());
    return part;
  }
  bool ok() const { return ok_; }
  std::string_view left() const { return left_; }

 private:
  std::string_view left_;
  bool ok_ = true;
};

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void append_text(std::string& out, std::string_view text) {
  append<std::uint64_t>(out, text.size());
  out += text;
}

std::size_t bytes_of(std::uint32_t type) {
  static constexpr std::size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}
constexpr std::uint32_t kText = 8, kArray = 9;

struct Key {
  std::string name, value;  // the value's bytes, with an array's type and count
  std::uint32_t type = 0;
};
struct Info {
  std::string name;
  std::vector<std::uint64_t> extents;
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
};
struct File {
  std::string magic;
  std::uint32_t version = 0;
  std::vector<Key> keys;
  std::vector<Info> infos;
  std::string data;

  std::string bytes(std::uint64_t more_infos, std::uint64_t more_keys) const {
    std::string out = magic;
    append(out, version);
    append<std::uint64_t>(out, infos.size() + more_infos);
    append<std::uint64_t>(out, keys.size() + more_keys);
    for (const Key& key : keys) {
      append_text(out, key.name);
      append(out, key.type);
      out += key.value;
    }
    for (const Info& info : infos) {
      append_text(out, info.name);
      append(out, static_cast<std::uint32_t>(info.extents.size()));
      for (const std::uint64_t extent : info.extents) append(out, extent);
      append(out, info.type);
      append(out, info.offset);
    }
    return out.append(31 - (out.size() + 31) % 32, '\0') + data;
  }
};

void skip_value(Bytes& bytes, std::uint32_t type) {
  if (type == kText) {
    bytes.text();
  } else if (type == kArray) {
    const auto element = bytes.number<std::uint32_t>();
    const auto count = bytes.number<std::uint64_t>();
    if (element == kText)
      for (std::uint64_t i = 0; i < count && bytes.ok(); ++i) bytes.text();
    else
      bytes.take(count > (1u << 24) ? ~0ull : count * bytes_of(element));
  } else {
    bytes.take(bytes_of(type));
  }
}

std::optional<File> parse(std::string_view input) {
  Bytes bytes(input);
  File file;
  file.magic = bytes.take(4);
  file.version = bytes.number<std::uint32_t>();
  const auto infos = bytes.number<std::uint64_t>(), keys = bytes.number<std::uint64_t>();
  if (!bytes.ok() || infos > kMostItems || keys > kMostItems) return std::nullopt;
  for (std::uint64_t i = 0; i < keys && bytes.ok(); ++i) {
    Key key{bytes.text(), {}, bytes.number<std::uint32_t>()};
    const std::string_view before = bytes.left();
    skip_value(bytes, key.type);
    key.value = before.substr(0, before.size() - bytes.left().size());
    file.keys.push_back(std::move(key));
  }
  for (std::uint64_t i = 0; i < infos && bytes.ok(); ++i) {
    Info info{bytes.text(), {}, 0, 0};
    for (std::uint32_t axes = bytes.number<std::uint32_t>() % 8; axes > 0; --axes)
      info.extents.push_back(bytes.number<std::uint64_t>());
    info.type = bytes.number<std::uint32_t>();
    info.offset = bytes.number<std::uint64_t>();
    file.infos.push_back(std::move(info));
  }
  if (!bytes.ok()) return std::nullopt;
  bytes.take((32 - (input.size() - bytes.left().size()) % 32) % 32);
  file.data = bytes.left();
  return file;
}

/// A value of another kind, or the same with other bytes, or other lengths in it.
void change_value(Key& key, Random& random) {
  switch (random() % 4) {
    case 0:
      key.type = static_cast<std::uint32_t>(random() % 15);
      break;
    case 1:  // the length of a text, the type and count of an array, a number
      if (key.type == kArray && key.value.size() >= 12) {
        const auto type = static_cast<std::uint32_t>(random() % 14);
        if (random() % 2) std::memcpy(key.value.data(), &type, sizeof type);
        const std::uint64_t count = odd_number(key.value.size() / 8, random);
        if (random() % 2) std::memcpy(key.value.data() + 4, &count, sizeof count);
      } else {
        const std::uint64_t number = odd_number(key.value.size(), random);
        std::memcpy(key.value.data(), &number, std::min(key.value.size(), sizeof number));
      }
      break;
    case 2:
      key.value = mutated(key.value);
      break;
    default:
      key.type = kText;
      key.value.clear();
      append_text(key.value, mutated("llama"));
  }
}

void change_key(File& file, Random& random) {
  Key& key = file.keys[below(file.keys.size(), random)];
  switch (random() % 6) {
    case 0:
      key.name = mutated(key.name);
      break;
    case 1:
      file.keys.push_back(Key(key));
      break;
    case 2:
      file.keys.erase(file.keys.begin() + (&key - file.keys.data()));
      break;
    case 3: {
      Key alignment{"general.alignment", {}, 4};
      append(alignment.value, static_cast<std::uint32_t>(odd_number(32, random)));
      file.keys.push_back(std::move(alignment));
      break;
    }
    default:
      change_value(key, random);
  }
}

void change_info(File& file, Random& random) {
  Info& info = file.infos[below(file.infos.size(), random)];
  const Info& other = file.infos[below(file.infos.size(), random)];
  switch (random() % 8) {
    case 0:
      info.name = random() % 2 ? mutated(info.name) : other.name;
      break;
    case 1:
      info.type = random() % 2 ? static_cast<std::uint32_t>(random() % 45) : other.type;
      break;
    case 2:
      info.offset = other.offset + 32 * (random() % 3);
      break;
    case 3:
      info.offset = odd_number(info.offset, random);
      break;
    case 4:
      info.extents.resize(random() % 6, odd_number(1, random));
      break;
    case 5:
      if (random() % 2)
        file.infos.push_back(Info(info));
      else
        file.infos.erase(file.infos.begin() + (&info - file.infos.data()));
      break;
    default:
      if (!info.extents.empty()) {
        std::uint64_t& extent = info.extents[below(info.extents.size(), random)];
        extent = odd_number(extent, random);
      }
  }
}

}  // namespace
}  // namespace canopy::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  using namespace canopy::fuzz;
  Random random(seed);
  std::optional<File> file = parse({reinterpret_cast<const char*>(data), size});
  if (!file || random() % 8 == 0) return LLVMFuzzerMutate(data, size, most);
  std::uint64_t more_infos = 0, more_keys = 0;
  for (std::size_t changes = 1 + below(3, random); changes > 0; --changes) {
    const std::size_t kind = below(16, random);
    if (kind == 0) {
      file->version = static_cast<std::uint32_t>(odd_number(3, random));
    } else if (kind == 1) {
      (random() % 2 ? more_infos : more_keys) = odd_number(0, random);
    } else if (kind == 2) {
      file->data.resize(below(2 * file->data.size() + 64, random) % (1 << 16));
    } else if (kind < 9 && !file->keys.empty()) {
      change_key(*file, random);
    } else if (!file->infos.empty()) {
      change_info(*file, random);
    }
  }
  return give(file->bytes(more_infos, more_keys), data, most);
}
