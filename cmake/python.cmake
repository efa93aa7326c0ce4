# The module canopy._canopy, which the package in python/canopy stands on, and its stub: component `python` of what is installed.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
find_package(nanobind CONFIG REQUIRED)
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/*.cc)
# From Python 3.12 on one module serves all versions.
nanobind_add_module(canopy_python STABLE_ABI NB_STATIC PROTECT_STACK NB_SUPPRESS_WARNINGS ${sources})
set_target_properties(canopy_python PROPERTIES OUTPUT_NAME _canopy)
target_link_libraries(canopy_python PRIVATE canopy_library)
get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
list(FILTER targets INCLUDE REGEX "^nanobind")
foreach(target ${targets})  # sources of others, with warnings of theirs
  target_compile_options(${target} PRIVATE -w)
endforeach()
nanobind_add_stub(canopy_python_stub MODULE _canopy OUTPUT ${PROJECT_BINARY_DIR}/_canopy.pyi
                  PYTHON_PATH $<TARGET_FILE_DIR:canopy_python> DEPENDS canopy_python)
install(TARGETS canopy_python LIBRARY DESTINATION canopy COMPONENT python)
install(FILES ${PROJECT_BINARY_DIR}/_canopy.pyi DESTINATION canopy COMPONENT python)
