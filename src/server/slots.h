#pragma once
#include <optional>
#include <vector>

#include "src/engine/session.h"

namespace canopy::server {

/// One of the places for texts that share the sweeps: the text in it, and how far it is.
struct Slot {
  Ticket text = 0;
  Sampling sampling;
  LogitEditing edits;
  int prompt_tokens = 0, prompt_read = 0, cached_tokens = 0;
  int generated = 0, most = 0;  // tokens
};
using Slots = std::vector<std::optional<Slot>>;

/// Puts down how far the texts are. One keeps its place for as long as it runs.
void follow(Slots& slots, const std::vector<RunningText>& running);

}  // namespace canopy::server
