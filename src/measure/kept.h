#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "planner/hardware_profile.h"
#include "src/engine/engine.h"
#include "src/measure/hardware.h"

namespace canopy {

// What plans are made from: the user's cache keeps what was measured of these models.

/// What whoever waits for a profile is told.
struct ProfileEvents {
  std::function<void(const std::string&)> on_note;  // a sentence for the user
  OnMeasure on_measure;
};
/// The profile that the cache keeps of these models on this machine; measured now where there is
/// none or other code measured it, and kept if it can be: if not, a note says so. Throws Error,
/// Stopped.
HardwareProfile find_profile(const ModelFiles& models, const EngineOptions& options,
                             const ProfileEvents& events, const std::stop_token& stop);
/// A profile from the content of `file`. Throws Error naming it.
HardwareProfile parse_profile(const std::string& file, const std::string& content);

struct KeptAcceptance {
  Acceptance acceptance;
  std::filesystem::path file;
};
/// The acceptance that the cache keeps of this pair for this sampling; nothing without a draft.
/// Throws Error naming the file if it is none.
std::optional<KeptAcceptance> find_acceptance(const ModelFiles& models, const Sampling& sampling);

}  // namespace canopy
