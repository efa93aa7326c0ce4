# What is installed, and the package for Debian: cmake --install, cpack.
if(NOT CANOPY_INSTALL)
  return()
endif()
install(TARGETS canopy)
install(TARGETS canopy_shared EXPORT canopy)
install(DIRECTORY include/canopy DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE THIRD_PARTY.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# The library depends on nothing that a program must find, so the targets are the whole package.
install(EXPORT canopy NAMESPACE canopy:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/canopy FILE canopy-config.cmake)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/canopy-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/canopy-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/canopy)
# Relative to itself, so that it holds wherever the tree is installed.
file(RELATIVE_PATH PC_INCLUDES ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(cmake/canopy.pc.in generated/canopy.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/canopy.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Manual pages and completions are made from what the program's --help prints, so they need one that runs here.
find_package(Python3 COMPONENTS Interpreter)
if(CMAKE_CROSSCOMPILING OR NOT Python3_FOUND)
  message(STATUS "No manual pages and completions: they need Python and a canopy that runs on this machine")
else()
  set(manual ${PROJECT_BINARY_DIR}/manual)
  add_custom_command(OUTPUT ${manual}/commands.md
                     COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/manual $<TARGET_FILE:canopy> ${manual}
                     DEPENDS canopy ${PROJECT_SOURCE_DIR}/scripts/manual VERBATIM)
  add_custom_target(manual ALL DEPENDS ${manual}/commands.md)
  install(DIRECTORY ${manual}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${manual}/completions/canopy.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME canopy)
  install(FILES ${manual}/completions/_canopy DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(FILES ${manual}/completions/canopy.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME canopy)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Exact inference of language models far larger than memory")
set(CPACK_PACKAGE_CONTACT "Canopy maintainers")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # what the program is linked with
set(CPACK_DEBIAN_PACKAGE_SUGGESTS openmpi-bin)  # mpirun, for several machines
set(CPACK_DEBIAN_PACKAGE_DEPENDS ca-certificates)  # by which canopy pull trusts the Hub
if(CANOPY_CUDA)  # cuBLAS and the driver are looked for at run time
  set(CPACK_PACKAGE_NAME canopy-cuda)
  set(CPACK_DEBIAN_PACKAGE_PROVIDES canopy)
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS canopy)
  set(CPACK_DEBIAN_PACKAGE_REPLACES canopy)
endif()
include(CPack)
