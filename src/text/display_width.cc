#include "src/text/display_width.h"

#include <utf8proc.h>

namespace canopy::text {

int display_width(char32_t character) {
  return utf8proc_charwidth(static_cast<utf8proc_int32_t>(character));
}

}  // namespace canopy::text
