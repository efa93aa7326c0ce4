# What a CUDA compiler is good for, by its version.

# canopy_cuda_version(COMPILER VARIABLE): its release, as 12.8; nothing where it does not say.
function(canopy_cuda_version compiler variable)
  execute_process(COMMAND ${compiler} --version OUTPUT_VARIABLE said ERROR_QUIET)
  if(said MATCHES "release ([0-9]+[.][0-9]+)")
    set(${variable} ${CMAKE_MATCH_1} PARENT_SCOPE)
  else()
    set(${variable} "" PARENT_SCOPE)
  endif()
endfunction()

# canopy_cuda_fault(VERSION VARIABLE): the reason for which it cannot compile the kernels; nothing where it can.
function(canopy_cuda_fault version variable)
  set(fault "")
  if(version AND version VERSION_LESS 12)
    set(fault "nvcc ${version} is too old for the CUDA backend: C++20 needs CUDA 12 or newer")
  endif()
  set(${variable} "${fault}" PARENT_SCOPE)
endfunction()

# canopy_cuda_code(VERSION VARIABLE): the option that asks for Ampere to Hopper, with PTX for what is newer; Blackwell's workstation
# cards where the compiler knows them, for they take seconds to compile that PTX when they first start. All cards have the code of one
# PTX, which tests run: for Hopper the compiler writes the same, but for the name, and takes as long again. For Blackwell CUDA 13.0 has
# another backend; what it would gain there was not measured.
function(canopy_cuda_code version variable)
  set(cards sm_80,sm_89,sm_90)
  if(version VERSION_GREATER_EQUAL 12.8)
    string(APPEND cards ",sm_120")
  endif()
  set(${variable} "--generate-code=arch=compute_80,code=[compute_80,${cards}]" PARENT_SCOPE)
endfunction()
