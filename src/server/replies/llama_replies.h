#pragma once
#include <nlohmann/json.hpp>

#include "src/server/replies/answer.h"

namespace canopy::server {

// Objects of llama-server's /completion.

/// Describes what is new of a choice, for a stream.
nlohmann::json llama_piece_json(const Answer& answer, std::size_t choice,
                                const JobUpdate::Choice& more, const Tokenizer& tokenizer);
/// A choice that has ended, with its text; in a stream, which has sent it, without.
nlohmann::json llama_end_json(const Answer& answer, std::size_t choice, const Tokenizer& tokenizer,
                              double link_bytes_per_second);

}  // namespace canopy::server
