#pragma once
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace canopy::server {

/// An error that a client gets instead of an answer, by the names of OpenAI's API.
struct ApiError : std::exception {
  int status;
  std::string message, type, param;
  nlohmann::json more;  // further members of "error"

  ApiError(int status, std::string message, std::string param = {}, nlohmann::json more = {})
      : status(status),
        message(std::move(message)),
        param(std::move(param)),
        more(std::move(more)) {
    type = status == 401   ? "authentication_error"
           : status == 403 ? "permission_error"
           : status == 404 ? "not_found_error"
           : status == 429 ? "rate_limit_error"
           : status == 503 ? "unavailable_error"
           : status >= 500 ? "server_error"
                           : "invalid_request_error";
  }
  const char* what() const noexcept override { return message.c_str(); }

  nlohmann::json body() const {
    nlohmann::json error{{"message", message},
                         {"type", type},
                         {"param", param.empty() ? nlohmann::json() : nlohmann::json(param)},
                         {"code", status}};
    if (more.is_object()) error.update(more);
    return {{"error", std::move(error)}};
  }

  // The same by Anthropic's API.
  nlohmann::json anthropic_body() const;
  int anthropic_status() const { return status == 503 ? 529 : status; }
};

/// An error's message for a client: without the places in our sources, on one line.
std::string reported(std::string text);
inline std::string reported(const std::exception& error) {
  return reported(std::string(error.what()));
}

}  // namespace canopy::server
