#include "src/hub/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "src/base/error.h"

namespace canopy::hub {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
  void begin() {
    require(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1,
            "OpenSSL has no SHA-256");
  }
};

Sha256::Sha256() : state_(std::make_unique<State>()) { state_->begin(); }
Sha256::~Sha256() = default;

void Sha256::add(std::string_view bytes) {
  require(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1,
          "OpenSSL's SHA-256 failed");
}

std::string Sha256::finish() {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int bytes = 0;
  require(EVP_DigestFinal_ex(state_->context, digest.data(), &bytes) == 1,
          "OpenSSL's SHA-256 failed");
  std::string text;
  for (unsigned int i = 0; i < bytes; ++i) {
    text += kHex[digest[i] >> 4];
    text += kHex[digest[i] & 15];
  }
  state_->begin();
  return text;
}

}  // namespace canopy::hub
