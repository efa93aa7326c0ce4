#pragma once
// Room src/convert: new model files from others: quantize, inflate, pack, unpack.
// In: a Checkpoint. Out: a GGUF file or a directory that appears when it is complete.
// Must not know: devices, plans, texts.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/partial.h"

namespace canopy {

/// Called now and then while an output is written: bytes done, bytes in all. May throw to end the
/// work; nothing is left then, but by pack().
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// An output that exists whole or not at all: it is written next to its place (Partial), and takes
/// its name when it is complete. One thread.
class StagedOutput {
 public:
  using Kind = Partial::Kind;
  using Leftover = Partial::Leftover;
  /// Treatment of a directory that has the name already and is not empty.
  enum class Existing : std::uint8_t { kRefused, kKeptIfTheSame };
  /// Refuses to replace a file or a directory that is not empty, a place that cannot be written,
  /// and a file system with less than `bytes` free, those of a leftover among them. Throws: Error.
  StagedOutput(const std::filesystem::path& path, Kind kind, std::uint64_t bytes,
               Existing existing = Existing::kRefused, Leftover leftover = Leftover::kReplaced);

  const std::filesystem::path& partial() const { return partial_.name(); }
  /// Removes what a leftover has but these files. Throws: Error.
  void keep_only(std::initializer_list<std::string_view> names);
  /// Lets it stay under its partial name, if it is not published, or go again.
  void keep() { partial_.keep(); }
  void drop() { partial_.drop(); }
  /// Throws Error if a directory has the name that differs in a file from this one, which must be
  /// complete. publish() keeps one that does not.
  void require_same() const;
  /// Gives the output its name, durably: its files must have been finished. A file `extra` of a
  /// directory goes just before, so that next to no time lies between the two. Throws: Error.
  void publish(std::string_view extra = {});

 private:
  Kind kind_;
  bool exists_;      // what has the name stays
  Partial partial_;  // removed unless published or kept
};

/// A file written once, front to back, through a buffer. Written pages are pushed to the disk and
/// dropped from the page cache as it grows, so that a small memory limit is enough for any size.
/// One thread.
class OutputFile {
 public:
  /// `bytes`: how long the file will be, for the message when the disk is full. `kept`: bytes of a
  /// file that is there, after which it goes on; without them it begins anew. Throws: Error if it
  /// cannot be created.
  OutputFile(std::filesystem::path path, std::uint64_t bytes, std::uint64_t kept = 0);

  void write(std::span<const std::byte> bytes);  // throws Error: full disk, short write, ...
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  /// Makes durable what was written so far. Throws: Error.
  void sync();
  /// Flushes, fsyncs, drops the pages and closes. Throws: Error, also if the length is not what was
  /// announced.
  void finish();

  /// Forgets all from byte `at` on, which write() then continues with. Throws: Error.
  void cut(std::uint64_t at);
  /// Finishes a file whose length was not known: it has `bytes` bytes by now, and `start` takes the
  /// place of the first of them. Throws: Error.
  void finish_with(const std::string& start, std::uint64_t bytes);

 private:
  void flush();
  void write_at(std::uint64_t at, std::span<const std::byte> bytes);
  void push_to_disk(std::uint64_t until);
  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path path_;
  std::uint64_t expected_ = 0, flushed_ = 0, pushed_ = 0;
  std::vector<std::byte> buffer_;
  UniqueFd descriptor_;
};

/// Makes durable which files a directory has. Throws: Error.
void sync_directory(const std::filesystem::path& path);

/// A small file, whole and fsynced. Throws: Error.
void write_text_file(const std::filesystem::path& path, const std::string& text);

}  // namespace canopy
