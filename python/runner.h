#pragma once
// Room python: the package `canopy` for Python: an extension module, and python/canopy on top of
// it. In: options and requests, from any of Python's threads. Out: pieces of texts, texts, errors.
// Must not know: any other room; include/canopy is all that it sees.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "include/canopy/canopy.h"

namespace canopy::python {

using Patience = std::chrono::milliseconds;

/// A text on its way from the thread that sweeps to those that wait for it. Any number of threads.
class GrowingText {
 public:
  void add(std::string_view piece);
  void end(const Text& text);
  /// Ends it with an error, unless it has ended.
  void fail(std::string_view why);

  /// Waits for a piece, or for the end. False: neither came in that time.
  bool wait_for_piece(Patience patience);
  bool wait_for_end(Patience patience);
  /// All pieces since the last call. Empty: there are none, or the text has ended.
  std::string take_pieces();
  /// The whole text. Nothing: it has not ended, or with an error.
  std::optional<Text> text() const;
  std::optional<std::string> error() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string pieces_;
  std::optional<Text> text_;
  std::optional<std::string> error_;
};

/// A stage of Model::open().
struct Progress {
  std::string what;
  std::uint64_t done = 0, all = 0;  // bytes, while weights are loaded
  bool operator==(const Progress&) const = default;
};

/// A model on a thread of its own, which opens it, sweeps while there are texts, and closes it. All
/// functions may be called from any thread.
class Runner {
 public:
  /// Begins to open.
  explicit Runner(const Options& options);
  ~Runner() { close(); }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  /// False: it is not open after that time. Throws what Model::open() threw.
  bool wait_until_open(Patience patience);
  Progress progress() const;

  struct Admitted {
    Ticket ticket = 0;
    std::shared_ptr<GrowingText> text;
  };
  /// Throws Error as Session::admit() does, and once the model is closed.
  Admitted admit(const Request& request);
  void cancel(Ticket ticket);
  /// Throws Error once it is closed.
  Model model() const;
  std::vector<std::string> notes() const;
  /// Ends all texts, within a few reads, and frees the memory. Opening stops, too.
  void close();

 private:
  void work(const Options& options);
  void sweep();
  void keep_notes();
  /// Throws Error if there is no model to run. The lock is held.
  void require_open() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Progress progress_;
  std::optional<Model> model_;
  std::shared_ptr<Session> session_;
  std::exception_ptr fault_;  // of opening
  std::string failure_;       // of sweeps
  std::vector<std::string> notes_;
  bool has_work_ = false;
  std::stop_source stop_;
  std::mutex closing_;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace canopy::python
