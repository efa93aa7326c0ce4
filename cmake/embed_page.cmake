# embed_page(PAGE OUT): writes OUT, which defines the constants kPage, the bytes of PAGE, and kScriptHash and kStyleHash,
# by which a Content-Security-Policy names its one script and its one style.

# SHA-256 of TEXT in base64, which CMake gives in hexadecimal digits.
function(sha256_base64 text out)
  string(SHA256 hex "${text}")
  set(digits ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(APPEND hex 00)  # 33 bytes: 11 groups of three; the last one's last digit stands for nothing
  set(base64 "")
  foreach(at RANGE 0 63 3)
    string(SUBSTRING ${hex} ${at} 3 three)
    math(EXPR high "0x${three} >> 6")
    math(EXPR low "0x${three} & 63")
    string(SUBSTRING ${digits} ${high} 1 high)
    string(SUBSTRING ${digits} ${low} 1 low)
    string(APPEND base64 ${high}${low})
  endforeach()
  string(SUBSTRING ${base64} 0 43 base64)
  set(${out} "${base64}=" PARENT_SCOPE)
endfunction()

# What stands between the first <TAG> and the </TAG> behind it.
function(inside text tag out)
  string(FIND "${text}" "<${tag}>" from)
  string(FIND "${text}" "</${tag}>" to)
  if(from EQUAL -1 OR to LESS from)
    message(FATAL_ERROR "the page has no <${tag}> ... </${tag}>")
  endif()
  string(LENGTH "<${tag}>" skip)
  math(EXPR from "${from} + ${skip}")
  math(EXPR length "${to} - ${from}")
  string(SUBSTRING "${text}" ${from} ${length} found)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

function(embed_page page out)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
  file(READ ${page} PAGE)
  file(SIZE ${page} size)
  if(size GREATER 65535)  # the longest string literal that every C++ compiler must take
    message(FATAL_ERROR "${page}: longer than a string literal may be")
  endif()
  inside("${PAGE}" script script)
  inside("${PAGE}" style style)
  sha256_base64("${script}" SCRIPT_HASH)
  sha256_base64("${style}" STYLE_HASH)
  file(CONFIGURE OUTPUT ${out} @ONLY CONTENT [[
constexpr char kPage[] = R"canopy_page(@PAGE@)canopy_page";
constexpr char kScriptHash[] = "sha256-@SCRIPT_HASH@";
constexpr char kStyleHash[] = "sha256-@STYLE_HASH@";
]])
endfunction()
