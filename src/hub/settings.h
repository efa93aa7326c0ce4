#pragma once
#include <chrono>
#include <filesystem>
#include <string>

namespace canopy::hub {

/// The user's settings of the Hub, under the names that huggingface_hub gives them.
struct Settings {
  std::filesystem::path cache;  // HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT, without a slash at its end
  std::string token;     // HF_TOKEN, else the file HF_TOKEN_PATH or HF_HOME/token; "": none
  bool offline = false;  // HF_HUB_OFFLINE
  std::chrono::seconds most_silence{10};  // HF_HUB_DOWNLOAD_TIMEOUT: no byte arrives for so long
};

/// Reads them from the environment. Throws Error naming the variable. Source: huggingface_hub,
/// "Environment variables".
Settings settings_from_environment();

}  // namespace canopy::hub
