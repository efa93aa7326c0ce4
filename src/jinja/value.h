#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace canopy::jinja {

class Runtime;
class Value;
struct Arguments;
struct Macro;

/// Bytes of a render's live memory, given back at the end of this object's life.
class Charge {
 public:
  Charge() = default;  // for what the render does not pay: literals, and the caller's variables
  explicit Charge(Runtime& runtime) : runtime_(&runtime) {}
  Charge(Charge&& other) noexcept
      : runtime_(other.runtime_), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge();
  /// Throws TemplateError if the render may not have them.
  void grow(std::size_t bytes);

 private:
  Runtime* runtime_ = nullptr;
  std::size_t bytes_ = 0;
};

struct Text {
  std::string bytes;           // UTF-8
  std::size_t characters = 0;  // as many as bytes: all are ASCII
  Charge charge;
  bool safe = false;  // of |safe or |escape: what is added to it by '+' is escaped for HTML
};

enum class ListKind : std::uint8_t {
  kList,
  kTuple,
  kGenerator,  // the result of filters such as map(): true however empty, without length, read once
};

struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::kList;
  int depth = 1;              // of lists and dicts in it, this one counted
  mutable bool used = false;  // a generator that was read
  Charge charge;
};

/// Keys are strings, numbers, booleans or none. Searched in order: those of templates are small.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  Charge charge;
  const Value* find(Runtime& runtime, const Value& key) const;  // nullptr if absent
  const Value* find(Runtime& runtime, std::string_view key) const;
};

/// The only thing that changes once it is made. The render owns it until its end.
struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
  Charge charge;
  Value* find(std::string_view name);  // nullptr if absent
};

/// The variable `loop`. Its items are the loop's, `at` the one whose turn it is.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t at = 0;
};

/// A method of a value, or a global function (of which the value is undefined).
struct Method {
  std::string_view name;
  Value (*call)(Runtime&, const Value& self, const Arguments&);
};
struct BoundMethod;

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kLargeInt,  // an integer that 63 bits do not hold: printed and compared, not computed with
  kFloat,
  kString,
  kList,  // tuples and generators, too
  kDict,
  kNamespace,
  kLoop,
  kMethod,
  kMacro
};

/// An integer outside of int64_t.
struct LargeInt {
  std::string digits;  // with a sign where it is negative
};

struct None {};
struct Undefined {
  std::shared_ptr<const std::string> why;  // the message for who uses it
};

/// The value of an expression: immutable but for namespaces, shared, cheap to copy. One thread at a
/// time, except literals.
class Value {
 public:
  using Storage = std::variant<Undefined, None, bool, std::int64_t, std::shared_ptr<const LargeInt>,
                               double, std::shared_ptr<const Text>, std::shared_ptr<const List>,
                               std::shared_ptr<const Dict>, Namespace*, std::shared_ptr<Loop>,
                               std::shared_ptr<const BoundMethod>, const Macro*>;
  Value() = default;  // undefined
  template <class T>
  explicit Value(T content) : storage_(std::move(content)) {}
  /// A string that no render pays for.
  static Value literal(std::string text);

  Kind kind() const { return static_cast<Kind>(storage_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_number() const { return is_integer() || is(Kind::kLargeInt) || is(Kind::kFloat); }
  /// True of at most 63 bits, and not of a float: booleans are integers, as in Python.
  bool is_integer() const { return is(Kind::kBool) || is(Kind::kInt); }
  bool is_generator() const { return is(Kind::kList) && list().kind == ListKind::kGenerator; }

  // These throw where the value is of another kind.
  bool boolean() const { return std::get<bool>(storage_); }
  std::int64_t integer() const {
    return is(Kind::kBool) ? boolean() : std::get<std::int64_t>(storage_);
  }
  double number() const;
  const LargeInt& large_integer() const {
    return *std::get<std::shared_ptr<const LargeInt>>(storage_);
  }
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(storage_); }
  std::string_view string() const { return text().bytes; }
  const List& list() const { return *shared_list(); }
  const std::shared_ptr<const List>& shared_list() const {
    return std::get<std::shared_ptr<const List>>(storage_);
  }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(storage_); }
  Namespace& name_space() const { return *std::get<Namespace*>(storage_); }
  const Loop& loop() const { return *std::get<std::shared_ptr<Loop>>(storage_); }
  const BoundMethod& method() const {
    return *std::get<std::shared_ptr<const BoundMethod>>(storage_);
  }
  const Macro& macro() const { return *std::get<const Macro*>(storage_); }
  const std::string* why_undefined() const { return std::get<Undefined>(storage_).why.get(); }
  /// True if both are one object: `is sameas`.
  bool same_object(const Value& other) const;
  /// Lists and dicts inside each other.
  int depth() const;

 private:
  Storage storage_;
};

struct BoundMethod {
  const Method* method;
  Value self;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

}  // namespace canopy::jinja
