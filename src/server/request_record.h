#pragma once
#include <chrono>
#include <string>

namespace canopy::server {

/// A request and what became of it, for a log.
struct RequestRecord {
  std::string id;            // the client's, by x-request-id, or made here
  std::string method, path;  // "" if they could not be read
  int status = 0;            // 0: the client went away before a reply
  std::chrono::duration<double> time{};
  std::string reason;  // of an error, also of one in a stream

  // Fields of texts.
  bool texts = false;
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  double tokens_per_sweep = 0, seconds_per_token = 0;  // of the first; 0: unknown
  std::string finish;                                  // reasons, with commas between
};

}  // namespace canopy::server
