#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace canopy {

/// Bytes of one message, whose memory is kept for the next one. Move-only.
class MessageBytes {
 public:
  MessageBytes() = default;
  MessageBytes(MessageBytes&& other) noexcept { swap(other); }
  MessageBytes& operator=(MessageBytes&& other) noexcept {
    swap(other);
    return *this;
  }
  void swap(MessageBytes& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  /// Makes room for `count` bytes; their values are whatever was there.
  void resize(std::size_t count) {
    if (count > capacity_) {
      data_ = std::make_unique_for_overwrite<std::byte[]>(count);
      capacity_ = count;
    }
    size_ = count;
  }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t size_ = 0, capacity_ = 0;
};
using Message = std::shared_ptr<const MessageBytes>;

/// Messages between the processes of a run, each between two of them, in the order sent. One call
/// at a time, from any thread. Nothing here waits.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// Names the machine of a rank, for messages to users.
  virtual std::string host(int rank) const = 0;

  /// Begins to send: the message is let go of when it has left. Throws Error if it is too large, or
  /// the connection is broken.
  virtual void send(int to, const Message& message) = 0;
  /// Takes the next message of a rank; false if none has arrived. Throws Error if the connection is
  /// broken, or the run was aborted.
  virtual bool receive(int from, MessageBytes& into) = 0;
  /// Returns a rank that has not taken all messages yet, if there is one; moves them on.
  virtual std::optional<int> unsent() = 0;
  /// Ends all processes of the run, where that can be done, this one too.
  virtual void abort() noexcept = 0;
};

}  // namespace canopy
