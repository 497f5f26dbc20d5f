# SPDX-License-Identifier: MIT
# Whether the CUDA operators are built, and for which GPUs. Sets DNNSUITE_HAS_CUDA and CMAKE_CUDA_ARCHITECTURES.
#
#   DNNSUITE_CUDA  AUTO (default)  where nvcc is, and an architecture is named, a GPU is present, or torch has CUDA
#                  ON              an error where nvcc is missing
#                  all             ON, for all architectures
#                  OFF             without
#
# Architectures: CMAKE_CUDA_ARCHITECTURES (also from the environment), CUDAARCHS, TORCH_CUDA_ARCH_LIST; else those of
# the GPUs that are present; else all.

set(DNNSUITE_HAS_CUDA OFF)
set(cuda_left_out "so the CUDA operators are left out: on a GPU norms, dropout, losses, optimizers and recurrent layers are several \
launches of torch's each")

# A name or a list of TORCH_CUDA_ARCH_LIST ("8.0 9.0a+PTX") → architectures of CMake (80-real;90a).
function(dnnsuite_from_torch_list text result)
  string(REGEX MATCHALL "[^ ;,]+" words "${text}")
  foreach(word IN LISTS words)
    if(NOT word MATCHES "^([0-9]+)\\.([0-9])([a-z]?)(\\+PTX)?$")
      message(FATAL_ERROR "dnnsuite: TORCH_CUDA_ARCH_LIST has '${word}': write numbers, as in '8.0 9.0+PTX', "
        "or set CMAKE_CUDA_ARCHITECTURES.")
    endif()
    set(kind "-real")
    if(CMAKE_MATCH_4)
      set(kind "")
    endif()
    list(APPEND found "${CMAKE_MATCH_1}${CMAKE_MATCH_2}${CMAKE_MATCH_3}${kind}")
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# The architectures of the GPUs that are present, as far as the compiler knows them; empty without one.
function(dnnsuite_present_architectures result)
  set(${result} "" PARENT_SCOPE)
  find_program(DNNSUITE_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(DNNSUITE_NVIDIA_SMI)
  if(NOT DNNSUITE_NVIDIA_SMI)
    return()
  endif()
  execute_process(COMMAND ${DNNSUITE_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE answer ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    return()
  endif()
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE compiler ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${answer}")
  foreach(capability IN LISTS capabilities)
    string(REPLACE "." "" number ${capability})
    if(compiler MATCHES "compute_${number}")
      list(APPEND found ${number})  # with its PTX: a later GPU starts slowly, but starts
    else()
      message(STATUS "dnnsuite: nvcc does not know the GPU that is present (${capability}): all architectures are built.")
      return()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

string(TOUPPER "${DNNSUITE_CUDA}" cuda_wanted)
if(NOT cuda_wanted MATCHES "^(AUTO|ALL|ON|OFF|1|0|TRUE|FALSE|YES|NO)$")
  message(FATAL_ERROR "dnnsuite: DNNSUITE_CUDA must be AUTO, ON, OFF or all, not '${DNNSUITE_CUDA}'.")
endif()
if(NOT cuda_wanted MATCHES "^(OFF|0|FALSE|NO)$")
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND cuda_wanted STREQUAL "AUTO")
    message(STATUS "dnnsuite: no CUDA compiler found, ${cuda_left_out}; install a released wheel, or put nvcc on PATH "
      "(or set CUDACXX) and reinstall, to get them.")
  elseif(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "dnnsuite: DNNSUITE_CUDA=${DNNSUITE_CUDA} asks for the CUDA operators, but no CUDA "
      "compiler was found: put nvcc on PATH, set CUDACXX to its path, or set DNNSUITE_CUDA=OFF.")
  else()
    set(cuda_reason "")
    if(DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(cuda_reason "CMAKE_CUDA_ARCHITECTURES")
    elseif(NOT "$ENV{CMAKE_CUDA_ARCHITECTURES}" STREQUAL "")
      set(CMAKE_CUDA_ARCHITECTURES "$ENV{CMAKE_CUDA_ARCHITECTURES}")
      set(cuda_reason "CMAKE_CUDA_ARCHITECTURES of the environment")
    elseif(NOT "$ENV{CUDAARCHS}" STREQUAL "")
      set(CMAKE_CUDA_ARCHITECTURES "$ENV{CUDAARCHS}")
      set(cuda_reason "CUDAARCHS")
    elseif(NOT "$ENV{TORCH_CUDA_ARCH_LIST}" STREQUAL "")
      dnnsuite_from_torch_list("$ENV{TORCH_CUDA_ARCH_LIST}" CMAKE_CUDA_ARCHITECTURES)
      set(cuda_reason "TORCH_CUDA_ARCH_LIST")
    elseif(NOT cuda_wanted STREQUAL "ALL")
      dnnsuite_present_architectures(present)
      if(present)
        set(CMAKE_CUDA_ARCHITECTURES ${present})
        set(cuda_reason "the GPU that is present")
      endif()
    endif()
    if(NOT cuda_reason AND NOT cuda_wanted STREQUAL "AUTO")
      set(cuda_reason "DNNSUITE_CUDA=${DNNSUITE_CUDA}")
    elseif(NOT cuda_reason AND EXISTS "${torch_dir}/version.py")  # for GPUs of other machines, as on a login node
      file(STRINGS "${torch_dir}/version.py" torch_cuda REGEX "^cuda.*= *['\"]")
      if(torch_cuda)
        set(cuda_reason "a torch with CUDA, and no GPU here to build for alone")
      endif()
    endif()
    if(cuda_reason)
      if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
        execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc_version)
        string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" _ "${nvcc_version}")
        if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.8)
          set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 120)
        else()
          set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
        endif()
      endif()
      message(STATUS "dnnsuite: CUDA operators for ${CMAKE_CUDA_ARCHITECTURES} (${cuda_reason})")
      enable_language(CUDA)
      set(CMAKE_CUDA_STANDARD 17)  # CMake before 3.30 cannot spell CUDA C++20
      set(CMAKE_CUDA_STANDARD_REQUIRED ON)
      set(DNNSUITE_HAS_CUDA ON)
    else()
      message(STATUS "dnnsuite: neither a GPU nor a torch with CUDA is here, ${cuda_left_out}; "
        "set DNNSUITE_CUDA=all, or CMAKE_CUDA_ARCHITECTURES, and reinstall to get them.")
    endif()
  endif()
endif()
