#include "src/server/page.h"

namespace canopy::server {

namespace {

#include "page.inc"  // kPage, kScriptHash, kStyleHash: cmake/embed_page.cmake

}  // namespace

std::string_view page() { return {kPage, sizeof(kPage) - 1}; }

std::string page_policy() {
  return std::string("default-src 'none'; connect-src 'self'; img-src data:; script-src '") +
         kScriptHash + "'; style-src '" + kStyleHash +
         "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
}

}  // namespace canopy::server
