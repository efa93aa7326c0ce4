#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "planner/hardware_profile.h"
#include "planner/learned_acceptance.h"
#include "src/engine/engine.h"
#include "src/measure/hardware.h"

namespace canopy {

// The measurements that plans are made from: the user's cache keeps those of these models.

/// Functions that report to whoever waits for a profile.
struct ProfileEvents {
  std::function<void(const std::string&)> on_note;  // a sentence for the user
  OnMeasure on_measure;
};
/// The profile that the cache keeps of these models on this machine; measured now where there is
/// none or other code measured it, and kept if it can be: if not, a note says so. So is what was
/// measured when a stop request, or the end of the process, cuts it: the next call goes on from
/// there. Throws Error, Stopped.
HardwareProfile find_profile(const ModelFiles& models, const EngineOptions& options,
                             const ProfileEvents& events, const std::stop_token& stop);
/// A profile from the content of `file`. Throws Error naming it.
HardwareProfile parse_profile(const std::string& file, const std::string& content);

/// The use of a pair of models: all that its acceptance depends on.
struct AcceptanceKey {
  const ModelFiles& models;
  Sampling sampling;
  SpeculationMethod method = SpeculationMethod::kAuto;
};
/// Use of what texts have shown: if on, plans are made from it, and texts add to it.
enum class Learning : bool { kOff, kOn };
/// Takes a sentence for the user.
using OnNote = std::function<void(const std::string&)>;

struct KeptAcceptance {
  Acceptance acceptance;
  std::string from;  // in words, with the file
  Calibrated calibrated = {};
};
/// The acceptance that the cache keeps of this pair: what was measured of it, changed as far as
/// texts exclude it; without learning what was measured. Nothing without a draft, or where nothing
/// is kept. A note says which file of texts cannot be used. Throws Error naming a measurement that
/// is none.
std::optional<KeptAcceptance> find_acceptance(const AcceptanceKey& key, Learning learning,
                                              const OnNote& on_note);
/// Adds to what texts have shown; runs that do so at once all count. A note says where a file that
/// cannot be used is replaced. Throws Error where it cannot be kept.
void keep_acceptance(const AcceptanceKey& key, const LearnedAcceptance& learned,
                     const OnNote& on_note);

/// The routes that the cache keeps of a mixture; those of the table where there are none. A note
/// says which file cannot be used.
LearnedRoutes find_routes(const ModelFiles& models, const OnNote& on_note);
/// Keeps what an engine's sweeps have shown, with what was there before it. Throws Error where it
/// cannot be kept.
void keep_routes(const Engine& engine);

}  // namespace canopy
