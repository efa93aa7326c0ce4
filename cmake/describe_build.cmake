# Writes what a build is, as constants of C++, to OUT, which is left alone where it says so already:
#   cmake -DROOT=DIR "-DCOMPILER=GCC 12.2.0, Release" -DDEVICES=... -DCOMMIT=... -DOUT=FILE -P describe_build.cmake
# COMMIT is that of sources without their history, where somebody knows it.
execute_process(COMMAND git -C ${ROOT} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)  # sources without their history
  set(commit "${COMMIT}")
endif()
set(text "constexpr std::string_view kCommit = \"${commit}\";
constexpr std::string_view kCompiler = \"${COMPILER}\";
constexpr std::string_view kDevices = \"${DEVICES}\";
")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUT} "${text}")
endif()
